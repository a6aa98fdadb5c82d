"""Delivery key figures by Spark, DuckDB and Polars: the same question, on the same files.

Each engine's time ends with all rows as tuples of Python; they come from Spark in columns of Arrow.
"""

from __future__ import annotations

import os
from typing import Any

from gridpost.bench._timing import median
from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline import bronze
from gridpost.pipeline.files import Place
from gridpost.pipeline.gold import delivery as figures
from gridpost.pipeline.lake import Lake, columns_beside
from gridpost.pipeline.schemas import BRONZE
from gridpost.pipeline.silver import facts
from gridpost.pipeline.silver.messages import messages

KEY = figures.KEY
_KEY = ", ".join(KEY)
COUNTS = (
    "messages",
    "sent",
    "arrived",
    "accepted",
    "delivered",
    "received",
    "failed",
    "expired",
    "octets",
    "transfer_attempts",
)
MEASURES = ("accept_to_deliver", "accept_to_receive")
PERCENTILES = tuple(f"{measure}_{share}_us" for measure in MEASURES for share in figures.SHARES)
NAMES = (*KEY, *COUNTS, *PERCENTILES)
"""Every column of `gold.delivery` that is a figure."""
_TIMES = sorted({at for ends in figures.MEASURES.values() for at in ends})
_MADE = (
    *("message_type", "route", "sender_code", "receiver_code", "internal_type"),
    *("generated", "size", "status", "failure", "sent_views", "received_views"),
    *("transfer_attempts", *_TIMES),
)
"""What key figures are made of, and no more: what is kept in memory has a price."""
_MACROS = """
CREATE TEMP MACRO exponent(us) AS floor(log2(us))::INT;
CREATE TEMP MACRO bucket(us) AS CASE WHEN us < 8 THEN us
  ELSE (exponent(us) - 2) * 8 + (us >> (exponent(us) - 3)) - 8 END;
CREATE TEMP MACRO upper_end(b) AS CASE WHEN b < 8 THEN b
  ELSE ((8 + (b + 1) % 8) << ((b + 1) // 8 - 1)) - 1 END;
"""
_DUCK = """
WITH journal AS (SELECT * FROM read_parquet('{bronze}/*.parquet', union_by_name = true)),
sent AS (SELECT message.*, time AS taken_at FROM journal WHERE kind = 'message'
  AND message.side = 'sent' AND message.internal_type = 'STANDARD_MESSAGE'),
came AS (SELECT message.* FROM journal WHERE kind = 'message'
  AND message.side = 'received' AND message.internal_type = 'STANDARD_MESSAGE'),
story AS (SELECT tracking.message_id AS message_id,
  min(time) FILTER (tracking.event = 'ACCEPT') AS accepted_at,
  min(time) FILTER (tracking.event = 'DELIVERY_ACKNOWLEDGED' AND tracking.moved) AS delivered_at,
  min(time) FILTER (tracking.event = 'RECEIVE_ACKNOWLEDGED' AND tracking.moved) AS received_at,
  arg_max(tracking.state, (time, sequence)) FILTER (tracking.side = 'sent' AND tracking.moved) AS s,
  arg_min(tracking.event, time) FILTER (tracking.side = 'sent' AND tracking.moved
    AND tracking.state = 'FAILED') AS failure,
  count(*) FILTER (tracking.event IN ('TRANSFERRED', 'TRANSFER_FAILED')) AS attempts
  FROM journal WHERE kind = 'tracking' GROUP BY 1),
message AS (SELECT coalesce(sent.generated, came.generated)::DATE AS day,
  date_trunc('hour', coalesce(accepted_at, taken_at, came.generated)) AS hour,
  coalesce(sent.message_type, came.message_type) AS message_type,
  coalesce(sent.route, came.route) AS route,
  coalesce(sent.sender_code, came.sender_code) AS sender_code,
  coalesce(sent.receiver_code, came.receiver_code) AS receiver_code,
  coalesce(sent.size, came.size) AS size, sent.message_id AS sent_id, came.message_id AS came_id,
  CASE s WHEN 'DELIVERING' THEN 'ACCEPTED' ELSE s END AS status, failure, attempts,
  epoch_us(delivered_at) - epoch_us(coalesce(accepted_at, taken_at)) AS accept_to_deliver,
  epoch_us(received_at) - epoch_us(coalesce(accepted_at, taken_at)) AS accept_to_receive
  FROM sent FULL JOIN came USING (message_id) LEFT JOIN story USING (message_id)),
counts AS (SELECT {key}, count(*) AS messages, count(sent_id) AS sent, count(came_id) AS arrived,
  count(*) FILTER (status = 'ACCEPTED') AS accepted,
  count(*) FILTER (status = 'DELIVERED') AS delivered,
  count(*) FILTER (status = 'RECEIVED') AS received,
  count(*) FILTER (status = 'FAILED') AS failed,
  count(*) FILTER (status = 'FAILED' AND failure = 'EXPIRE') AS expired,
  sum(size)::BIGINT AS octets, coalesce(sum(attempts), 0)::BIGINT AS transfer_attempts
  FROM message GROUP BY ALL),
buckets AS ({buckets}),
running AS (SELECT *, sum(n) OVER (PARTITION BY {key}, measure ORDER BY bucket) AS up_to,
  sum(n) OVER (PARTITION BY {key}, measure) AS total FROM buckets),
shares AS (SELECT {key}, {shares} FROM running GROUP BY ALL)
SELECT {names} FROM counts LEFT JOIN shares USING ({key})
"""


def _duck(bronze: Place) -> str:
    buckets = " UNION ALL ".join(
        f"SELECT {_KEY}, '{m}' AS measure, bucket({m}) AS bucket, count(*) AS n "
        f"FROM message WHERE {m} >= 0 GROUP BY ALL"
        for m in MEASURES
    )
    shares = ", ".join(
        f"upper_end(min(bucket) FILTER (measure = '{m}' AND up_to * 10000 >= total * {of})) "
        f"AS {m}_{share}_us"
        for m in MEASURES
        for share, of in figures.SHARES.items()
    )
    return _DUCK.format(
        bronze=bronze, key=_KEY, buckets=buckets, shares=shares, names=", ".join(NAMES)
    )


Line = tuple[Any, ...]


def key_figures(spark: Any, lake: Lake) -> tuple[float, float, float]:
    """Seconds of each engine; none is told before all agree."""
    folder = gathered(lake)
    ours = by_spark(spark, folder)
    for name, theirs in (("DuckDB", by_duckdb(folder)), ("Polars", by_polars(folder))):
        if ours != theirs:
            raise Refusal(Rule.INTERNAL, f"Spark and {name} disagree on the key figures")
    return (
        median(lambda: by_spark(spark, folder)),
        median(lambda: by_duckdb(folder)),
        median(lambda: by_polars(folder)),
    )


def gathered(lake: Lake) -> Place:
    """All files of bronze in one folder, so that every engine reads the same ones."""
    table = lake.table(bronze.LAYER, bronze.TABLE)
    folder = (lake.root / "kpi").mkdir()
    for file in table.files(table.pointer().parts):
        os.link(file, folder / f"{file.parent.name}-{file.name}")
    return folder


def by_spark(spark: Any, folder: Place) -> list[Line]:
    source = spark.read.schema(BRONZE).parquet(str(folder))
    # Rows of a message are found by its id, as in the other engines: the day, which is there for
    # increments, is that of the message.
    found = messages(
        facts.message_views(source),
        facts.tracking_events(source),
        facts.acknowledgements(source),
        key=("message_id",),
        only=_MADE,
    )
    # Messages are made once, as in a build, which reads them from silver.
    made = found.selectExpr("* EXCEPT (message_id)", "to_date(generated) AS day").persist()
    rows = figures.delivery(made, figures.latency_histograms(made)).toArrow()
    made.unpersist()
    return ordered(zip(*(rows[name].to_pylist() for name in NAMES), strict=True))


def by_duckdb(folder: Place) -> list[Line]:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        # It goes to standard output, which belongs to the result.
        connection.execute("SET enable_progress_bar = false")
        connection.execute(_MACROS)
        return ordered(connection.execute(_duck(folder)).fetchall())


def by_polars(folder: Place) -> list[Line]:
    import polars
    from polars import col

    files = folder.glob("*.parquet")
    columns = polars.Schema(columns_beside(files[0], files))
    journal = polars.scan_parquet(
        f"{folder}/*.parquet", schema=columns, missing_columns="insert", extra_columns="ignore"
    )
    of, told = col("message").struct.field, col("tracking").struct.field
    names = ("message_type", "route", "sender_code", "receiver_code", "size", "generated")
    views = journal.filter(col("kind") == "message").select(
        *("time", of("message_id", "side", "internal_type", *names))
    )
    standard = views.filter(col("internal_type") == "STANDARD_MESSAGE")
    sent = standard.filter(col("side") == "sent").select(
        "message_id", *names, at=col("time"), was_sent=True
    )
    came = standard.filter(col("side") == "received").select("message_id", *names, came=True)
    events = journal.filter(col("kind") == "tracking").select(
        "time", "sequence", told("message_id", "side", "event", "state", "moved")
    )
    mine = (col("side") == "sent") & col("moved")
    failing = mine & (col("state") == "FAILED")

    def first(event: str, moved: bool = True) -> Any:
        happened = (col("event") == event) & (col("moved") if moved else True)
        return col("time").filter(happened).min()

    story = events.group_by("message_id").agg(
        accepted_at=first("ACCEPT", moved=False),
        delivered_at=first("DELIVERY_ACKNOWLEDGED"),
        received_at=first("RECEIVE_ACKNOWLEDGED"),
        status=col("state")
        .filter(mine)
        .sort_by(col("time").filter(mine), col("sequence").filter(mine))
        .last()
        .replace("DELIVERING", "ACCEPTED"),
        failure=col("event").filter(failing).sort_by(col("time").filter(failing)).first(),
        attempts=col("event").is_in(["TRANSFERRED", "TRANSFER_FAILED"]).sum(),
    )
    both = sent.join(came, on="message_id", how="full", coalesce=True)
    either = {name: polars.coalesce(name, f"{name}_right") for name in names}
    start = polars.coalesce("accepted_at", "at")
    message = (
        both.with_columns(**either)
        .join(story, on="message_id", how="left")
        .with_columns(
            day=col("generated").dt.date(),
            hour=polars.coalesce(start, "generated").dt.truncate("1h"),
            accept_to_deliver=(col("delivered_at") - start).dt.total_microseconds(),
            accept_to_receive=(col("received_at") - start).dt.total_microseconds(),
        )
    )
    status = col("status")
    found = message.group_by(*KEY).agg(
        messages=polars.len(),
        sent=col("was_sent").count(),
        arrived=col("came").count(),
        accepted=(status == "ACCEPTED").sum(),
        delivered=(status == "DELIVERED").sum(),
        received=(status == "RECEIVED").sum(),
        failed=(status == "FAILED").sum(),
        expired=((status == "FAILED") & (col("failure") == "EXPIRE")).sum(),
        octets=col("size").sum(),
        transfer_attempts=col("attempts").sum(),
    )
    for measure in MEASURES:
        found = found.join(_shares(message, measure), on=KEY, how="left")
    return ordered(found.select(NAMES).collect().iter_rows())


def _shares(message: Any, measure: str) -> Any:
    """Percentiles from the histogram of each group."""
    import polars
    from polars import col

    us = col(measure)
    exponent = us.clip(8).log(2).floor().cast(polars.Int64)
    power = polars.lit(2, polars.Int64).pow(exponent - 3)
    bucket = polars.when(us < 8).then(us).otherwise((exponent - 2) * 8 + us // power - 8)
    following = col("bucket") + 1
    top = (8 + following % 8) * polars.lit(2, polars.Int64).pow(following // 8 - 1) - 1
    running = (
        message.filter(us >= 0)
        .group_by(*KEY, bucket.alias("bucket"))
        .agg(n=polars.len().cast(polars.Int64))
        .sort("bucket")
        .with_columns(
            up_to=col("n").cum_sum().over(*KEY),
            total=col("n").sum().over(*KEY),
            top=polars.when(col("bucket") < 8).then(col("bucket")).otherwise(top),
        )
    )
    return running.group_by(*KEY).agg(
        **{
            f"{measure}_{share}_us": col("top")
            .filter(col("up_to") * 10_000 >= col("total") * of)
            .min()
            for share, of in figures.SHARES.items()
        }
    )


def ordered(rows: Any) -> list[Line]:
    return sorted((row[0], row[1].replace(tzinfo=None), *row[2:]) for row in rows)
