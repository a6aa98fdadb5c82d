"""How an event of a delivery is written down: state, trace and journal, in the caller's transaction."""

from __future__ import annotations

from datetime import datetime

from gridpost.core.delivery import Decision, Effect, Event, Occurrence, Side, decide
from gridpost.core.journal import (
    AcknowledgementRow,
    MessageRow,
    TrackingRow,
)
from gridpost.core.message import ENCRYPTION, SIGNATURE, InternalMessage, Metadata
from gridpost.core.message_box import BoxEntry
from gridpost.core.message_path import Route
from gridpost.core.ports import UnitOfWork


def happen(work: UnitOfWork, entry: BoxEntry, occurrence: Occurrence, now: datetime) -> Decision:
    """Decide what an event means for a stored message, and store the outcome."""
    decision = decide(entry.delivery, occurrence, now)
    record(work, entry, decision)
    return decision


def record(work: UnitOfWork, entry: BoxEntry, decision: Decision) -> None:
    side = entry.delivery.side
    work.box.move(side, decision)
    if Effect.STOP_TRANSFER in decision.effects and decision.entry.event is not Event.TRANSFERRED:
        work.box.stop_transfer(entry.message_id)
    work.journal.append(tracking_row(entry, decision))
    if side is Side.SENT:
        work.notices.tell(
            entry.message_id, decision.entry, status=Effect.TELL_APPLICATION in decision.effects
        )


def tracking_row(entry: BoxEntry, decision: Decision) -> TrackingRow:
    line = decision.entry
    return TrackingRow(
        line.at,
        entry.delivery.side,
        entry.message_id,
        line.event,
        line.state,
        line.moved,
        line.detail,
        line.acknowledgement_id,
    )


def is_signed(metadata: Metadata) -> bool:
    return bool(metadata.processors_named(SIGNATURE))


def message_row(
    entry: BoxEntry, now: datetime, *, encryption_certificate_id: str, content: bytes | None
) -> MessageRow:
    metadata = entry.metadata
    signature, certificate_id, algorithm = _signature(metadata)
    return MessageRow(
        now,
        entry.delivery.side,
        metadata.message_id,
        metadata.internal_type,
        metadata.sender_code,
        metadata.receiver_code,
        metadata.message_type,
        metadata.generated.at,
        entry.delivery.expires_at,
        str(entry.route),
        entry.size,
        entry.fingerprint,
        metadata.ba_message_id,
        metadata.sender_application,
        entry.conversation_id,
        certificate_id,
        encryption_certificate_id or processor_value(metadata, ENCRYPTION, "Certificate ID"),
        signature,
        content,
        metadata.generated.text,
        metadata.extension,
        algorithm,
        metadata.related_message_id,
        metadata.sender_description,
    )


def acknowledgement_row(
    side: Side, message: InternalMessage, route: Route, now: datetime
) -> AcknowledgementRow:
    metadata = message.metadata
    signature, certificate_id, algorithm = _signature(metadata)
    return AcknowledgementRow(
        now,
        side,
        metadata.message_id,
        metadata.related_message_id,
        metadata.internal_type,
        metadata.sender_code,
        metadata.receiver_code,
        metadata.generated.at,
        str(route),
        message.content,
        signature,
        certificate_id,
        metadata.message_type,
        metadata.generated.text,
        metadata.extension,
        algorithm,
        metadata.sender_description,
    )


def _signature(metadata: Metadata) -> tuple[str, str, str]:
    """The first value of each of its entries that a journal wants."""
    found: dict[str, str] = {}
    for processor in metadata.processors:
        if processor.processor_id == SIGNATURE:
            for entry in processor.entries:
                found.setdefault(entry.key, entry.value)
    return found.get("Signature", ""), found.get("Certificate ID", ""), found.get("Algorithm", "")


def processor_value(metadata: Metadata, processor_id: str, key: str) -> str:
    for processor in metadata.processors_named(processor_id):
        for found in processor.all(key):
            return found.value
    return ""
