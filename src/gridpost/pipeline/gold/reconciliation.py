"""Do both ends tell the same story? *matched, mismatch, not yet known* or *no view*, per message.

Nothing is called a mismatch before both journals are in this lake past the message's deadline: what
is not here yet may only be late. A party whose journal is not in the lake is judged by its signed
acknowledgement.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

MATCHED, MISMATCH, UNKNOWN, NO_VIEW = "matched", "mismatch", "not yet known", "no view"
# What the recipient may say when the sender says this.
AGREEING = {
    "DELIVERED": ("WAITING", "CONFIRMED", "EXPIRED", "TRACE_ANSWERED"),
    "RECEIVED": ("CONFIRMED",),
    "FAILED": ("REFUSED", "EXPIRED"),
}


def reconciliation(messages: DataFrame, marks: DataFrame) -> DataFrame:
    """`marks`: component, time, since; one row for each component whose journal is in the lake."""
    joined = messages.join(
        F.broadcast(_marks_of(marks, "sender_code", "sender")), on="sender_code", how="left"
    ).join(
        F.broadcast(_marks_of(marks, "receiver_code", "recipient")),
        on="receiver_code",
        how="left",
    )
    status, state = F.col("status"), F.col("recipient_state")
    both = (F.col("sent_views") > 0) & (F.col("received_views") > 0)
    same = F.col("sent_fingerprint") == F.col("received_fingerprint")
    agree = F.lit(False)
    for ours, theirs in AGREEING.items():
        said = (status == ours) & F.coalesce(state.isin(*theirs), F.lit(False))
        agree = agree | (said if ours == "FAILED" else said & both & same)
    deadline = F.col("expiration_time")
    # Of what was before the first row that is here, nobody has said anything yet.
    begun = F.greatest("sender_since", "recipient_since")
    told = F.coalesce(F.col("generated") >= begun, F.lit(True))
    past = told & (F.col("sender_mark") > deadline) & (F.col("recipient_mark") > deadline)
    never_came = (status == "FAILED") & (F.col("received_views") == 0) & state.isNull()
    foreign = F.col("sender_mark").isNull() | F.col("recipient_mark").isNull()
    verdict = (
        F.when(foreign, NO_VIEW)
        .when(
            F.coalesce(agree, F.lit(False)) | F.coalesce(never_came & past, F.lit(False)), MATCHED
        )
        .when(past, MISMATCH)
        .otherwise(UNKNOWN)
    )
    reason = (
        F.when(foreign & F.col("acknowledgement_id").isNotNull(), "signed acknowledgement held")
        .when(foreign & (F.col("sent_views") > 0), "no signed acknowledgement")
        .when(foreign, "only the recipient's view")
        .when(verdict != MISMATCH, "")
        .when(F.col("sent_views") == 0, "the sender does not know the message")
        .when(F.col("received_views") == 0, "the recipient does not know the message")
        .when(~same, "the fingerprints differ")
        .otherwise(
            F.concat_ws(
                " ",
                F.lit("sender says"),
                F.coalesce(status, F.lit("nothing")),
                F.lit("recipient says"),
                F.coalesce(state, F.lit("nothing")),
            )
        )
    )
    return joined.select(
        "day",
        "message_id",
        "message_type",
        "sender_code",
        "receiver_code",
        "expiration_time",
        "status",
        "recipient_state",
        verdict.alias("verdict"),
        reason.alias("reason"),
    )


def _marks_of(marks: DataFrame, code: str, whose: str) -> DataFrame:
    return marks.select(
        F.col("component").alias(code),
        F.col("time").alias(f"{whose}_mark"),
        F.col("since").alias(f"{whose}_since"),
    )


def waiting(messages: DataFrame, marks: DataFrame, stuck_after_seconds: int) -> DataFrame:
    """Messages that are not at their end, as of the newest row of the journal that says so."""
    mine = marks.select(F.col("component").alias("seen_by"), F.col("time").alias("as_of"))
    sent = messages.where(F.col("status").isin("ACCEPTED", "DELIVERED")).select(
        "*", F.col("sent_component").alias("seen_by"), F.col("status").alias("stands")
    )
    came = messages.where(F.col("recipient_state") == "WAITING").select(
        "*", F.col("received_component").alias("seen_by"), F.col("recipient_state").alias("stands")
    )
    since = F.coalesce(
        F.when(F.col("stands") == "WAITING", F.col("arrived_at")),
        F.when(F.col("stands") == "DELIVERED", F.col("delivered_at")),
        F.col("accepted_at"),
    )
    joined = sent.unionByName(came).join(F.broadcast(mine), on="seen_by", how="left")
    age = (F.unix_micros("as_of") - F.unix_micros("since")) / 1_000_000
    return (
        joined.withColumn("since", since)
        .withColumn("seconds", F.floor(age).cast("long"))
        .select(
            "day",
            "message_id",
            "message_type",
            "sender_code",
            "receiver_code",
            "route",
            "seen_by",
            "stands",
            "since",
            "as_of",
            "seconds",
            "expiration_time",
            # 503 cl. 5.7: after its expiration nothing more may happen to it.
            F.coalesce(
                (F.col("as_of") < F.col("expiration_time"))
                & (F.col("seconds") > stuck_after_seconds),
                F.lit(False),
            ).alias("stuck"),
        )
    )
