"""Facts of one kind each, from bronze: pure functions that end in the columns they promise.

`day` is the partition of a fact. A fact about a message lies on the UTC day on which the message
was generated, as the same journal says: all that is known of a message is found on one day, however
late it lands. Facts whose message is not known yet have no day, until it is.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

ROW = ("component", "instance", "sequence")
LINEAGE = (*ROW, "segment")
# How far a fact may lie from its message. Wider than any expiration time and any retention.
DAYS_AFTER, DAYS_BEFORE = 400, 2


def _of(bronze: DataFrame, kind: str) -> DataFrame:
    return bronze.where(F.col("kind") == kind)


def _own_day() -> Column:
    return F.to_date("time").alias("day")


def message_views(bronze: DataFrame) -> DataFrame:
    """A message as one endpoint saw it; `content` stays in bronze and in the content tables."""
    m = "message"
    return _of(bronze, m).select(
        *LINEAGE,
        "time",
        f"{m}.side",
        f"{m}.message_id",
        f"{m}.internal_type",
        f"{m}.sender_code",
        f"{m}.receiver_code",
        f"{m}.message_type",
        f"{m}.generated",
        f"{m}.expiration_time",
        f"{m}.route",
        f"{m}.size",
        f"{m}.fingerprint",
        f"{m}.ba_message_id",
        f"{m}.sender_application",
        f"{m}.conversation_id",
        f"{m}.signing_certificate_id",
        f"{m}.encryption_certificate_id",
        f"{m}.signature",
        f"{m}.signature_algorithm",
        f"{m}.generated_text",
        f"{m}.extension",
        f"{m}.related_message_id",
        f"{m}.sender_description",
        F.col(f"{m}.content").isNotNull().alias("has_content"),
        F.to_date(f"{m}.generated").alias("day"),
    )


def tracking_events(bronze: DataFrame) -> DataFrame:
    t = "tracking"
    return _of(bronze, t).select(
        *LINEAGE,
        "time",
        f"{t}.side",
        f"{t}.message_id",
        f"{t}.event",
        f"{t}.state",
        f"{t}.moved",
        f"{t}.detail",
        f"{t}.acknowledgement_id",
        F.lit(None).cast("date").alias("day"),
    )


def acknowledgements(bronze: DataFrame) -> DataFrame:
    """`message_id` is that of the message it acknowledges, `side` that of the message."""
    a = "acknowledgement"
    # Who receives an acknowledgement has sent the message.
    side = F.when(F.col(f"{a}.side") == "received", F.lit("sent")).otherwise(F.lit("received"))
    return _of(bronze, a).select(
        *LINEAGE,
        "time",
        side.alias("side"),
        F.col(f"{a}.related_message_id").alias("message_id"),
        F.col(f"{a}.message_id").alias("acknowledgement_id"),
        f"{a}.internal_type",
        f"{a}.sender_code",
        f"{a}.receiver_code",
        f"{a}.message_type",
        f"{a}.generated",
        f"{a}.generated_text",
        f"{a}.extension",
        f"{a}.route",
        f"{a}.content",
        f"{a}.signature",
        f"{a}.signature_algorithm",
        f"{a}.signing_certificate_id",
        f"{a}.sender_description",
        F.lit(None).cast("date").alias("day"),
    )


def documents(bronze: DataFrame) -> DataFrame:
    """Contents, where the owner of an endpoint has them journalled."""
    found = _of(bronze, "message").where(F.col("message.content").isNotNull())
    return found.select(
        *LINEAGE,
        "time",
        "message.message_id",
        "message.message_type",
        "message.content",
        F.to_date("message.generated").alias("day"),
    )


def transfers(bronze: DataFrame) -> DataFrame:
    return _of(bronze, "transfer").select(*LINEAGE, "time", "transfer.*", _own_day())


def transfers_once(transfers: DataFrame) -> DataFrame:
    """For readers of `silver.transfers`: each event of a message once, as the first row told it.

    The edges of a broker before RabbitMQ write a row before they settle, so one that dies in between
    leaves a row that another edge, or the same one later, writes again. Which of several rows is the
    repetition and which a second transfer nobody can tell from them, so all of them stay in the table;
    `rows` says how many there are. Attempts have their number in `detail`: each is an event.
    """
    event = ("component", "message_id", "side", "outcome", "detail")
    # Null-safe: rows without a detail are one event.
    same = Window.partitionBy(*(F.coalesce(F.col(name), F.lit("")) for name in event))
    order = same.orderBy("time", "instance", "sequence")
    numbered = transfers.withColumn("number", F.row_number().over(order)).withColumn(
        "rows", F.count(F.lit(1)).over(same)
    )
    return numbered.where(F.col("number") == 1).select(*transfers.columns, "rows")


def refusals(bronze: DataFrame) -> DataFrame:
    return _of(bronze, "refusal").select(*LINEAGE, "time", "refusal.*", _own_day())


def administration(bronze: DataFrame) -> DataFrame:
    return _of(bronze, "administration").select(*LINEAGE, "time", "administration.*", _own_day())


def components(bronze: DataFrame) -> DataFrame:
    """Directory entries as they became known, where and when."""
    return _of(bronze, "entry").select(*LINEAGE, "time", "entry.*", _own_day())


def certificates(bronze: DataFrame) -> DataFrame:
    return _of(bronze, "certificate").select(
        *LINEAGE,
        "time",
        "certificate.*",
        F.sha2("certificate.der", 256).alias("fingerprint"),
        _own_day(),
    )


def placed(facts: DataFrame, views: DataFrame) -> DataFrame:
    """Facts with the day of their message, as the journal of the same instance knows it."""
    index = views.select(
        "component", "instance", "side", "message_id", F.col("day").alias("message_day")
    )
    near = F.datediff(F.to_date("time"), F.col("message_day"))
    joined = facts.drop("day").join(
        index, on=["component", "instance", "side", "message_id"], how="left"
    )
    day = F.when(near.between(-DAYS_BEFORE, DAYS_AFTER), F.col("message_day"))
    return joined.withColumn("day", day).select(*facts.columns)
