"""Key figures of delivery: counts, latencies and reasons, per hour, type, route and pair of parties.

Latencies subtract times of one clock. The one figure across two clocks is named so.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gridpost.pipeline.gold.completeness import JOURNALS
from gridpost.pipeline.gold.histogram import bucket_column, power_of_two
from gridpost.pipeline.percentile import NEGATIVE, SUB_BITS

KEY = ("day", "hour", "message_type", "route", "sender_code", "receiver_code")
# measure -> from, to; all by the sender's clock, but for those that say otherwise.
MEASURES = {
    "accept_to_deliver": ("accepted_at", "delivered_at"),
    "deliver_to_receive": ("delivered_at", "received_at"),
    "accept_to_receive": ("accepted_at", "received_at"),
    "recipient_arrive_to_confirm": ("arrived_at", "confirmed_at"),
    "cross_clock_accept_to_arrive": ("accepted_at", "arrived_at"),
}
SHARES = {"p50": 5000, "p95": 9500, "p99": 9900}


def standard(messages: DataFrame) -> DataFrame:
    """Documents of applications; tracing messages test the way and are no traffic."""
    hour = F.date_trunc("hour", F.coalesce("accepted_at", "generated"))
    return messages.where(F.col("internal_type") == "STANDARD_MESSAGE").withColumn("hour", hour)


def _gathered(messages: DataFrame) -> DataFrame:
    """All of a key in one place: counts, histograms, running sums and the join need no shuffle of their own.

    Few messages have the same key, of an hour and a pair: partial results would hardly be fewer rows.
    """
    return standard(messages).repartition(*KEY)


def delivery(messages: DataFrame, latency: DataFrame) -> DataFrame:
    """`latency` is `latency_histograms` of the same messages."""
    counts = (
        _gathered(messages)
        .groupBy(*KEY)
        .agg(
            F.count("*").alias("messages"),
            _count(F.col("sent_views") > 0).alias("sent"),
            _count(F.col("received_views") > 0).alias("arrived"),
            _count(F.col("status") == "ACCEPTED").alias("accepted"),
            _count(F.col("status") == "DELIVERED").alias("delivered"),
            _count(F.col("status") == "RECEIVED").alias("received"),
            _count(F.col("status") == "FAILED").alias("failed"),
            _count((F.col("status") == "FAILED") & (F.col("failure.event") == "EXPIRE")).alias(
                "expired"
            ),
            F.sum("size").alias("octets"),
            F.sum("transfer_attempts").alias("transfer_attempts"),
        )
    )
    shares = percentiles(latency)
    return counts.join(shares, on=list(KEY), how="left").select(
        *KEY,
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
        *(f"{m}_{p}_us" for m in ("accept_to_deliver", "accept_to_receive") for p in SHARES),
    )


def latency_histograms(messages: DataFrame) -> DataFrame:
    """How many messages took how long: rows may be added up over any of the keys."""
    frame = _gathered(messages)
    spans = F.array(
        *(
            F.struct(
                F.lit(name).alias("measure"),
                (F.unix_micros(end) - F.unix_micros(start)).alias("us"),
            )
            for name, (start, end) in MEASURES.items()
        )
    )
    return (
        frame.select(*KEY, F.explode(spans).alias("span"))
        .where(F.col("span.us").isNotNull())
        .groupBy(
            *KEY,
            F.col("span.measure").alias("measure"),
            bucket_column(F.col("span.us")).alias("bucket"),
        )
        .agg(F.count("*").alias("messages"), F.sum("span.us").alias("total_us"))
        .select(*KEY, "measure", "bucket", "messages", "total_us")
    )


def percentiles(latency: DataFrame) -> DataFrame:
    """p50, p95 and p99 of the two measures that people ask for, from the histograms."""
    from pyspark.sql import Window

    wanted = ("accept_to_deliver", "accept_to_receive")
    # Both sums are of one order, so that one pass finds them.
    by = Window.partitionBy(*KEY, "measure").orderBy("bucket")
    up_to = by.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    whole = by.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    counted = latency.where(F.col("measure").isin(*wanted) & (F.col("bucket") != NEGATIVE)).select(
        *KEY,
        "measure",
        "bucket",
        F.sum("messages").over(up_to).alias("running"),
        F.sum("messages").over(whole).alias("total"),
    )

    def share(measure: str, of_ten_thousand: int) -> Column:
        enough = F.col("running") * 10_000 >= F.col("total") * of_ten_thousand
        found = F.min(F.when(enough & (F.col("measure") == measure), F.col("bucket")))
        return upper_column(found)

    return counted.groupBy(*KEY).agg(
        *(share(m, s).alias(f"{m}_{p}_us") for m in wanted for p, s in SHARES.items())
    )


def upper_column(number: Column) -> Column:
    """`histogram.upper` in Spark's words."""
    linear = 1 << SUB_BITS
    following = number + 1
    exponent = F.floor(following / linear).cast("int") - 1
    low = (F.lit(linear) + following % linear).cast("long") * power_of_two(exponent)
    return F.when(number < linear, number.cast("long")).otherwise(low - 1)


def failure_reasons(messages: DataFrame) -> DataFrame:
    return (
        standard(messages)
        .where(F.col("status") == "FAILED")
        .groupBy(
            "day",
            "message_type",
            "sender_code",
            "receiver_code",
            F.col("failure.event").alias("event"),
            F.col("failure.detail").alias("reason"),
        )
        .agg(
            F.count("*").alias("messages"),
            F.min("failed_at").alias("first_at"),
            F.max("failed_at").alias("last_at"),
        )
    )


def traffic_matrix(messages: DataFrame) -> DataFrame:
    return (
        standard(messages)
        .groupBy("day", "sender_code", "receiver_code", "message_type", "route")
        .agg(F.count("*").alias("messages"), F.sum("size").alias("octets"))
    )


def duplicates(messages: DataFrame) -> DataFrame:
    """Message ids that were accepted or stored more than once, or that arrived again."""
    return messages.where(
        (F.col("sent_views") > 1) | (F.col("received_views") > 1) | (F.col("arrived_again") > 0)
    ).select(
        "day",
        "message_id",
        "message_type",
        "sender_code",
        "receiver_code",
        "sent_views",
        "received_views",
        "arrived_again",
    )


def certificate_usage(messages: DataFrame) -> DataFrame:
    uses = F.array(
        _use("signing", "signing_certificate_id", "sender_code", "accepted_at"),
        _use("encryption", "encryption_certificate_id", "receiver_code", "accepted_at"),
        _use(
            "acknowledgement", "acknowledgement_certificate_id", "receiver_code", "acknowledged_at"
        ),
    )
    return (
        messages.select("day", views(), F.explode(uses).alias("use"))
        .where(F.col("use.certificate_id").isNotNull() & (F.col("use.certificate_id") != ""))
        .groupBy("day", "use.role", "use.owner", "use.certificate_id")
        .agg(
            F.count("*").alias("messages"),
            F.min("use.at").alias("first_at"),
            F.max("use.at").alias("last_at"),
            journals(),
        )
    )


def views() -> Column:
    """Whose journals tell of a message."""
    return F.array("sent_component", "received_component").alias(JOURNALS)


def journals() -> Column:
    """Those of all messages of a group."""
    return F.array_sort(
        F.array_compact(F.array_distinct(F.flatten(F.collect_set(JOURNALS))))
    ).alias(JOURNALS)


def _use(role: str, certificate_id: str, owner: str, at: str) -> Column:
    return F.struct(
        F.lit(role).alias("role"),
        F.col(certificate_id).alias("certificate_id"),
        F.col(owner).alias("owner"),
        F.col(at).alias("at"),
    )


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, 1))
