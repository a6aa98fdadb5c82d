"""One row for each message: what its sender, its recipient and its acknowledgement say of it.

Times of the sender's side are by the sender's clock, those of the recipient's side by the
recipient's: nothing here subtracts one from the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gridpost.core.delivery import STATUS

_VIEW = (
    "time",
    "component",
    "instance",
    "sequence",
    "segment",
    "internal_type",
    "sender_code",
    "receiver_code",
    "message_type",
    "generated",
    "expiration_time",
    "route",
    "size",
    "fingerprint",
    "ba_message_id",
    "signing_certificate_id",
    "encryption_certificate_id",
)
# What is signed and what signs it is wide: only proofs carry it along.
_EVIDENCE = (
    *_VIEW,
    "signature",
    "signature_algorithm",
    "generated_text",
    "extension",
    "related_message_id",
    "sender_application",
    "sender_description",
)
_WORD = ("time", "acknowledgement_id", "signing_certificate_id")
_SIGNED_WORD = (
    "time",
    "component",
    "instance",
    "sequence",
    "segment",
    "acknowledgement_id",
    "sender_code",
    "receiver_code",
    "message_type",
    "generated",
    "generated_text",
    "extension",
    "content",
    "signature",
    "signature_algorithm",
    "signing_certificate_id",
    "sender_description",
)
_KEY = ("day", "message_id")
# Which of several rows about the same is the first.
_ORDER = ("time", "component", "instance", "sequence")
_EITHER = (
    "internal_type",
    "sender_code",
    "receiver_code",
    "message_type",
    "route",
    "generated",
    "expiration_time",
    "size",
    "ba_message_id",
)
# Columns of one view, and what they are called there.
_SENT = {
    "sent_component": "component",
    "sent_instance": "instance",
    "sent_sequence": "sequence",
    "sent_segment": "segment",
    "sent_fingerprint": "fingerprint",
    "signing_certificate_id": "signing_certificate_id",
    "encryption_certificate_id": "encryption_certificate_id",
}
_RECEIVED = {
    "received_component": "component",
    "received_instance": "instance",
    "received_sequence": "sequence",
    "received_segment": "segment",
    "received_fingerprint": "fingerprint",
    "arrived_at": "time",
}
_ACKNOWLEDGEMENT = {
    "acknowledgement_id": "acknowledgement_id",
    "acknowledged_at": "time",
    "acknowledgement_certificate_id": "signing_certificate_id",
}
_COLUMNS = (
    *_EITHER,
    # the sender's view
    *_SENT,
    "accepted_at",
    "transferred_at",
    "delivered_at",
    "received_at",
    "failed_at",
    "failure",
    "sender_state",
    "status",
    "transfer_attempts",
    # the recipient's view
    *_RECEIVED,
    "confirmed_at",
    "recipient_state",
    "arrived_again",
    "sent_views",
    "received_views",
    # the recipient's word
    *_ACKNOWLEDGEMENT,
)
# State -> message-status (503 cl. 5.6.1); what is not here is a state of the recipient.
_STATUS = {state.value: status.value for state, status in STATUS.items()}


def messages(
    views: DataFrame,
    events: DataFrame,
    acknowledgements: DataFrame,
    *,
    key: Sequence[str] = _KEY,
    only: Sequence[str] | None = None,
) -> DataFrame:
    """All three of the same days.

    `key` is what all rows about a message have in common, `only` the columns that are asked for: Spark
    does not see by itself that a part of the first view is not, and would carry all of it along.
    """
    wanted = _COLUMNS if only is None else [name for name in _COLUMNS if name in only]
    fields = {
        field for name in wanted for field in (_SENT.get(name), _RECEIVED.get(name), name) if field
    }
    seen = _views(views, [name for name in _VIEW if name in fields], key)
    happened = _events(events, key)
    joined = seen.join(happened, on=list(key), how="left")
    if any(name in _ACKNOWLEDGEMENT for name in wanted):
        acknowledged = _acknowledged(acknowledgements, _WORD, key)
        joined = joined.join(acknowledged, on=list(key), how="left")
    return joined.select(*(F.col(name) for name in key), *map(_message_column, wanted))


def _message_column(name: str) -> Column:
    sent, received = F.col("sent"), F.col("received")
    if name in _SENT:
        return sent[_SENT[name]].alias(name)
    if name in _RECEIVED:
        return received[_RECEIVED[name]].alias(name)
    if name in _ACKNOWLEDGEMENT:
        return F.col("acknowledgement")[_ACKNOWLEDGEMENT[name]].alias(name)
    if name in _EITHER:
        return F.coalesce(sent[name], received[name]).alias(name)
    if name == "accepted_at":
        return F.coalesce(F.col(name), sent["time"]).alias(name)
    if name == "status":
        status = F.create_map(*(F.lit(x) for pair in _STATUS.items() for x in pair))
        return status[F.col("sender_state")].alias(name)
    if name in ("transfer_attempts", "arrived_again"):
        return F.coalesce(name, F.lit(0)).cast("long").alias(name)
    return F.col(name).cast("long").alias(name) if name.endswith("_views") else F.col(name)


def proofs(views: DataFrame, acknowledgements: DataFrame) -> DataFrame:
    """The evidence of each sent message, ready to be judged: both signed texts with their parts."""
    seen = _views(views.where(F.col("side") == "sent"), _EVIDENCE)
    joined = seen.join(_acknowledged(acknowledgements, _SIGNED_WORD), on=list(_KEY), how="left")
    sent, word = F.col("sent"), F.col("acknowledgement")
    return joined.select(
        "day",
        "message_id",
        *(
            sent[name].alias(name)
            for name in (
                "component",
                "instance",
                "sequence",
                "segment",
                "internal_type",
                "sender_code",
                "receiver_code",
                "message_type",
                "generated",
                "generated_text",
                "extension",
                "related_message_id",
                "ba_message_id",
                "sender_application",
                "fingerprint",
                "signature",
                "signature_algorithm",
                "signing_certificate_id",
                "sender_description",
            )
        ),
        *(
            word[name].alias(f"ack_{name}")
            for name in (
                "acknowledgement_id",
                "sender_code",
                "receiver_code",
                "message_type",
                "generated",
                "generated_text",
                "extension",
                "content",
                "signature",
                "signature_algorithm",
                "signing_certificate_id",
                "sender_description",
            )
        ),
    )


def _views(views: DataFrame, columns: Sequence[str], key: Sequence[str] = _KEY) -> DataFrame:
    sent, received = F.col("side") == "sent", F.col("side") == "received"
    view = _ordered(columns)
    return views.groupBy(*key).agg(
        F.min(F.when(sent, view)).alias("sent"),
        F.min(F.when(received, view)).alias("received"),
        F.count(F.when(sent, 1)).alias("sent_views"),
        F.count(F.when(received, 1)).alias("received_views"),
    )


def _ordered(columns: Sequence[str]) -> Column:
    """Structs of which the least is the first: no two rows agree in what it begins with.

    `min_by` would hold the same columns twice, as the value and as its order.
    """
    return F.struct(*_ORDER, *(name for name in columns if name not in _ORDER))


def _events(events: DataFrame, key: Sequence[str]) -> DataFrame:
    sent, received = F.col("side") == "sent", F.col("side") == "received"
    event, moved = F.col("event"), F.col("moved")

    def first_time(*names: str) -> Column:
        return F.min(F.when(event.isin(*names), F.col("time")))

    order = ("time", "instance", "sequence")
    failing = sent & moved & (F.col("state") == "FAILED")
    stood = F.struct(*order, "state")
    found = events.groupBy(*key).agg(
        first_time("ACCEPT", "ACCEPT_TRACING").alias("accepted_at"),
        first_time("TRANSFERRED").alias("transferred_at"),
        F.min(
            F.when(
                event.isin("DELIVERY_ACKNOWLEDGED", "TRACING_ACKNOWLEDGED") & moved, F.col("time")
            )
        ).alias("delivered_at"),
        F.min(F.when((event == "RECEIVE_ACKNOWLEDGED") & moved, F.col("time"))).alias(
            "received_at"
        ),
        F.min(F.when(failing, F.struct(*order, "event", "detail"))).alias("failed"),
        F.max(F.when(sent & moved, stood)).alias("sender"),
        F.count(F.when(event.isin("TRANSFERRED", "TRANSFER_FAILED"), 1)).alias("transfer_attempts"),
        first_time("CONFIRM").alias("confirmed_at"),
        F.max(F.when(received & moved, stood)).alias("recipient"),
        F.count(F.when(event == "ARRIVED_AGAIN", 1)).alias("arrived_again"),
    )
    failure = F.struct(F.col("failed.event").alias("event"), F.col("failed.detail").alias("detail"))
    return found.select(
        *key,
        "accepted_at",
        "transferred_at",
        "delivered_at",
        "received_at",
        F.col("failed.time").alias("failed_at"),
        F.when(F.col("failed").isNotNull(), failure).alias("failure"),
        F.col("sender.state").alias("sender_state"),
        "transfer_attempts",
        "confirmed_at",
        F.col("recipient.state").alias("recipient_state"),
        "arrived_again",
    )


def _acknowledged(
    acknowledgements: DataFrame, columns: Sequence[str], key: Sequence[str] = _KEY
) -> DataFrame:
    """The first DELIVERY_ACKNOWLEDGEMENT that the sender of the message holds."""
    return (
        acknowledgements.where(F.col("internal_type") == "DELIVERY_ACKNOWLEDGEMENT")
        .where(F.col("side") == "sent")
        .groupBy(*key)
        .agg(F.min(_ordered(columns)).alias("acknowledgement"))
    )
