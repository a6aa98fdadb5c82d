"""How long a bus took to answer, per verb and noun, and whether that is what was agreed (61968-100 6.14).

Times are by one clock, that of the bus: from the arrival of a request to its reply. They are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gridpost.pipeline.gold.completeness import JOURNALS
from gridpost.pipeline.gold.sla import ResponseAgreement

KEY = ("day", "hour", "component", "context", "verb", "noun")
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def requests(envelopes: DataFrame) -> DataFrame:
    """Requests that came in; how each ended stands in its row."""
    came = (F.col("direction") == "in") & (F.col("message_kind") == "request")
    return envelopes.where(came).withColumn("hour", F.date_trunc("hour", "time"))


def response_times(envelopes: DataFrame) -> DataFrame:
    """`within` and `beyond` are by the limit that the bus itself had for the request."""
    took, limit = F.col("milliseconds"), F.col("sla_milliseconds")
    return (
        requests(envelopes)
        .groupBy(*KEY)
        .agg(
            F.count("*").alias("requests"),
            F.count(took).alias("answered"),
            _count(F.col("result") == "FAILED").alias("failed"),
            _count(took <= limit).alias("within"),
            _count(took > limit).alias("beyond"),
            *(_percentile(share).alias(f"{name}_ms") for name, share in SHARES.items()),
            F.max(took).alias("longest_ms"),
            F.sum("size").alias("octets"),
        )
        .select(
            *KEY,
            "requests",
            "answered",
            "failed",
            "within",
            "beyond",
            *(f"{name}_ms" for name in SHARES),
            "longest_ms",
            "octets",
        )
    )


def traffic(envelopes: DataFrame) -> DataFrame:
    """Envelopes of every kind, either way."""
    key = ("day", "component", "context", "direction", "message_kind", "verb", "noun", "result")
    return (
        envelopes.groupBy(*key)
        .agg(F.count("*").alias("envelopes"), F.sum("size").alias("octets"))
        .select(*key, "envelopes", "octets")
    )


def conformance(envelopes: DataFrame, agreements: Sequence[ResponseAgreement]) -> DataFrame:
    """ "X % within Y" of each agreement and day. A request without an answer counts against it."""
    came = requests(envelopes)
    return reduce(DataFrame.unionByName, [_judged(came, one) for one in agreements])


def _judged(came: DataFrame, agreement: ResponseAgreement) -> DataFrame:
    mine = came
    for column in ("verb", "noun", "context"):
        wanted = getattr(agreement, column)
        if wanted != "*":
            mine = mine.where(F.col(column) == wanted)
    limit = round(agreement.within_seconds * 1000)
    return (
        mine.groupBy("day", "verb", "noun")
        .agg(
            F.count("*").alias("requests"),
            _count(F.col("milliseconds") <= limit).alias("within"),
            _percentile(agreement.percent / 100).alias("percentile_ms"),
            F.array_sort(F.collect_set("component")).alias(JOURNALS),
        )
        .select(
            "day",
            F.lit(agreement.name).alias("agreement"),
            "verb",
            "noun",
            F.lit(agreement.percent).cast("decimal(7,4)").alias("percent"),
            F.lit(limit).cast("long").alias("within_ms"),
            "requests",
            "within",
            "percentile_ms",
            (
                F.col("within") * 1_000_000 >= F.col("requests") * int(agreement.percent * 10_000)
            ).alias("conforms"),
            JOURNALS,
        )
    )


def _percentile(share: float) -> Column:
    found = F.expr(f"percentile_disc({share}) within group (order by milliseconds)")
    return found.cast("long")


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, 1))
