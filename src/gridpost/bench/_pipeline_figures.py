"""Delivery key figures by Spark, DuckDB and Polars: the same question, on the same files."""

from __future__ import annotations

import os
from typing import Any

from gridpost.bench._timing import median, timed
from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline import bronze
from gridpost.pipeline.files import Place
from gridpost.pipeline.gold import delivery as figures
from gridpost.pipeline.lake import Lake
from gridpost.pipeline.schemas import BRONZE
from gridpost.pipeline.silver import facts
from gridpost.pipeline.silver.messages import messages

_DUCK = """
WITH journal AS (SELECT * FROM read_parquet('{bronze}/*.parquet')),
sent AS (SELECT message.message_id AS id, message.* FROM journal
  WHERE kind = 'message' AND message.side = 'sent'),
came AS (SELECT DISTINCT message.message_id AS id FROM journal
  WHERE kind = 'message' AND message.side = 'received'),
story AS (SELECT tracking.message_id AS id,
  min(time) FILTER (tracking.event = 'ACCEPT') AS accepted_at,
  min(time) FILTER (tracking.event = 'DELIVERY_ACKNOWLEDGED' AND tracking.moved) AS delivered_at,
  arg_max(tracking.state, (time, sequence)) FILTER (tracking.side = 'sent' AND tracking.moved) AS s
  FROM journal WHERE kind = 'tracking' GROUP BY 1)
SELECT date_trunc('hour', accepted_at) AS hour, message_type, route, sender_code, receiver_code,
  count(*) AS messages, count(came.id) AS arrived,
  count(*) FILTER (s = 'DELIVERED') AS delivered, count(*) FILTER (s = 'RECEIVED') AS received,
  count(*) FILTER (s = 'FAILED') AS failed, sum(size)::BIGINT AS octets,
  quantile_disc(epoch_us(delivered_at) - epoch_us(accepted_at), [0.5, 0.95, 0.99]) AS q
FROM sent JOIN story USING (id) LEFT JOIN came USING (id) GROUP BY ALL
"""
NAMES = (
    "hour",
    "message_type",
    "route",
    "sender_code",
    "receiver_code",
    "sent",
    "arrived",
    "delivered",
    "received",
    "failed",
    "octets",
)
Line = tuple[Any, ...]


def key_figures(spark: Any, lake: Lake) -> tuple[float, float, float]:
    """Seconds of each engine; none is told before all agree."""
    table = lake.table(bronze.LAYER, bronze.TABLE)
    gathered = (lake.root / "kpi").mkdir()
    for file in table.files(table.pointer().parts):
        os.link(file, gathered / file.name)
    ours = by_spark(spark, gathered)
    for name, theirs in (("DuckDB", by_duckdb(gathered)), ("Polars", by_polars(gathered))):
        if ours != theirs:
            raise Refusal(Rule.INTERNAL, f"Spark and {name} disagree on the key figures")
    return (
        timed(lambda: by_spark(spark, gathered)),
        median(lambda: by_duckdb(gathered)),
        median(lambda: by_polars(gathered)),
    )


def by_spark(spark: Any, folder: Place) -> list[Line]:
    source = spark.read.schema(BRONZE).parquet(str(folder))
    # Messages are asked for by their id alone, as in the other engines; days are for increments.
    found = messages(
        *(
            make(source).drop("day").selectExpr("*", "date'2026-01-01' AS day")
            for make in (facts.message_views, facts.tracking_events, facts.acknowledgements)
        )
    )
    rows = figures.delivery(found, figures.latency_histograms(found)).collect()
    return _ordered(tuple(row[name] for name in NAMES) for row in rows)


def by_duckdb(folder: Place) -> list[Line]:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        # It goes to standard output, which belongs to the result.
        connection.execute("SET enable_progress_bar = false")
        rows = connection.execute(_DUCK.format(bronze=folder)).fetchall()
    return _ordered(row[:11] for row in rows)


def by_polars(folder: Place) -> list[Line]:
    import polars
    from polars import col

    journal = polars.scan_parquet(f"{folder}/*.parquet")
    of, told = col("message").struct.field, col("tracking").struct.field
    views = journal.filter(col("kind") == "message").select(
        of("message_id", "side", "message_type", "route", "sender_code", "receiver_code", "size")
    )
    came = views.filter(col("side") == "received").select("message_id", came=1)
    events = journal.filter(col("kind") == "tracking").select(
        "time", "sequence", told("message_id", "side", "event", "state", "moved")
    )
    mine = (col("side") == "sent") & col("moved")
    story = events.group_by("message_id").agg(
        accepted_at=col("time").filter(col("event") == "ACCEPT").min(),
        delivered_at=col("time")
        .filter((col("event") == "DELIVERY_ACKNOWLEDGED") & col("moved"))
        .min(),
        status=col("state")
        .filter(mine)
        .sort_by(col("time").filter(mine), col("sequence").filter(mine))
        .last(),
    )
    took = (col("delivered_at") - col("accepted_at")).dt.total_microseconds()
    found = (
        views.filter(col("side") == "sent")
        .join(story, on="message_id", how="inner")
        .join(came.unique("message_id"), on="message_id", how="left")
        .group_by(col("accepted_at").dt.truncate("1h").alias("hour"), *NAMES[1:5])
        .agg(
            sent=polars.len(),
            arrived=col("came").count(),
            delivered=(col("status") == "DELIVERED").sum(),
            received=(col("status") == "RECEIVED").sum(),
            failed=(col("status") == "FAILED").sum(),
            octets=col("size").sum(),
            p50=took.quantile(0.5, "lower"),
            p95=took.quantile(0.95, "lower"),
            p99=took.quantile(0.99, "lower"),
        )
        .collect()
    )
    return _ordered(found.select(NAMES).iter_rows())


def _ordered(rows: Any) -> list[Line]:
    return sorted((row[0].replace(tzinfo=None), *row[1:]) for row in rows)
