"""What a sender application is told of a delivery: when and where its status changed (503 Tables 41, 42).

The same items answer CheckMessageStatus and are the lines of OUT_LOG (503 Table 48).

The trace of a message holds every event, for operators; of those, an application sees the ones
that moved the message-status, each at the component where it happened and by that one's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gridpost.core.delivery import STATUS, Event, Status, TraceEntry
from gridpost.core.identifiers import ComponentCode
from gridpost.core.instant import Instant
from gridpost.core.message import InternalMessage, InternalType, Metadata

_AT_RECIPIENT = frozenset(
    {
        Event.DELIVERY_ACKNOWLEDGED,
        Event.RECEIVE_ACKNOWLEDGED,
        Event.FAILURE_ACKNOWLEDGED,
        Event.TRACING_ACKNOWLEDGED,
    }
)

_SAID = {
    Event.ACCEPT: "accepted",
    Event.DELIVERY_ACKNOWLEDGED: "is at the recipient endpoint",
    Event.RECEIVE_ACKNOWLEDGED: "is at the recipient application",
    Event.TRACING_ACKNOWLEDGED: "has reached the recipient endpoint",
    Event.FAILURE_ACKNOWLEDGED: "was refused by the recipient endpoint",
    Event.FINGERPRINT_DIFFERS: "was acknowledged with another content",
    Event.CANCEL: "cancelled",
    Event.ABANDON: "given up",
    Event.EXPIRE: "expired",
}


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """503 Table 42, but for the display name of the component."""

    timestamp: Instant
    status: Status
    component: ComponentCode
    details: str
    """English text, with the ID of the message."""


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    events: tuple[StatusEvent, ...]
    received_at: Instant | None
    """503 Table 41: when the received acknowledgement was generated, by the recipient's clock."""


def report(
    metadata: Metadata, trace: Sequence[TraceEntry], acknowledgements: Sequence[InternalMessage]
) -> DeliveryReport:
    generated: dict[str, Instant] = {
        a.metadata.message_id: a.metadata.generated for a in acknowledgements
    }
    received_at = next(
        (
            a.metadata.generated
            for a in acknowledgements
            if a.metadata.internal_type is InternalType.RECEIVE_ACKNOWLEDGEMENT
        ),
        None,
    )
    events: list[StatusEvent] = []
    last: Status | None = None

    def tell(line: TraceEntry, status: Status, at: Instant) -> None:
        there = line.event in _AT_RECIPIENT
        component = metadata.receiver_code if there else metadata.sender_code
        events.append(StatusEvent(at, status, component, said(metadata.message_id, line)))

    for line in trace:
        status = STATUS.get(line.state)
        if status is None or status is last or not line.moved:
            continue
        at = generated.get(line.acknowledgement_id, Instant.of(line.at))
        if status is Status.RECEIVED:
            if last is not Status.DELIVERED:
                # The received acknowledgement was here first and waited for the signed one.
                tell(line, Status.DELIVERED, at)
            at = received_at or at
        tell(line, status, at)
        last = status
    return DeliveryReport(tuple(events), received_at if last is Status.RECEIVED else None)


def said(message_id: str, line: TraceEntry) -> str:
    detail = f": {line.detail}" if line.detail else ""
    return f"message {message_id} {_SAID.get(line.event, line.event.value)}{detail}"
