"""What every component writes down for good: one row per fact, typed by kind.

A row is committed together with the fact it tells of. Kinds change by adding optional fields only;
anything else is a new kind, so that old segments stay readable.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, ClassVar

from gridpost.core.delivery import Event, Side, State


@dataclass(frozen=True, slots=True)
class JournalRow:
    """Base of all kinds; `at` is when the fact happened, in UTC."""

    KIND: ClassVar[str]
    SCHEMA_VERSION: ClassVar[int] = 1

    at: datetime


@dataclass(frozen=True, slots=True)
class MessageRow(JournalRow):
    """An internal message that this endpoint accepted from an application or received."""

    KIND: ClassVar[str] = "message"

    side: Side
    message_id: str
    internal_type: str
    sender_code: str
    receiver_code: str
    message_type: str
    generated: datetime
    expiration_time: datetime
    route: str
    size: int
    fingerprint: bytes
    ba_message_id: str = ""
    sender_application: str = ""
    conversation_id: str = ""
    signing_certificate_id: str = ""
    encryption_certificate_id: str = ""
    signature: str = ""
    content: bytes | None = None
    """Only where the owner of the endpoint switched it on for this message-type."""


@dataclass(frozen=True, slots=True)
class TrackingRow(JournalRow):
    """One line of a trace."""

    KIND: ClassVar[str] = "tracking"

    side: Side
    message_id: str
    event: Event
    state: State
    moved: bool
    detail: str = ""
    acknowledgement_id: str = ""


@dataclass(frozen=True, slots=True)
class AcknowledgementRow(JournalRow):
    """An acknowledgement that was sent, or that came in and was judged."""

    KIND: ClassVar[str] = "acknowledgement"

    side: Side
    message_id: str
    related_message_id: str
    internal_type: str
    sender_code: str
    receiver_code: str
    generated: datetime
    route: str
    content: bytes
    signature: str = ""
    signing_certificate_id: str = ""


@dataclass(frozen=True, slots=True)
class TransferRow(JournalRow):
    """503 cl. 10: an internal message that passed between two components."""

    KIND: ClassVar[str] = "transfer"

    side: Side
    message_id: str
    sender_code: str
    receiver_code: str
    message_type: str
    peer: str
    size: int
    outcome: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RefusalRow(JournalRow):
    """503 cl. 10: something was refused, by us or to us; `security` marks what needs a look."""

    KIND: ClassVar[str] = "refusal"

    refusal_id: str
    rule: str
    code: str
    message: str
    details: str = ""
    peer: str = ""
    message_id: str = ""
    security: bool = False


@dataclass(frozen=True, slots=True)
class AdministrationRow(JournalRow):
    """503 cl. 10: who changed what, in configuration or by a command."""

    KIND: ClassVar[str] = "administration"

    actor: str
    action: str
    target: str = ""
    before: str = ""
    after: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class UnknownRow(JournalRow):
    """A row that a newer Gridpost wrote, as it stands: to be reported and passed on, never guessed.

    It is what a reader gets; nobody appends one.
    """

    KIND: ClassVar[str] = "unknown"

    kind: str
    schema_version: int
    payload: str


KINDS: dict[str, type[JournalRow]] = {
    kind.KIND: kind
    for kind in (
        MessageRow,
        TrackingRow,
        AcknowledgementRow,
        TransferRow,
        RefusalRow,
        AdministrationRow,
    )
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose journal it is. A store that is made anew is another instance of its component."""

    component: str
    instance: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """A row in its place: the sequence has no gaps per component and instance."""

    sequence: int
    row: JournalRow


def values(row: JournalRow) -> dict[str, Any]:
    """The fields of a row by name."""
    return {field.name: getattr(row, field.name) for field in fields(row)}
