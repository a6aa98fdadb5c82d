"""What every component writes down for good: one row per fact, typed by kind.

A row is committed together with the fact it tells of. Kinds change by adding optional fields only;
anything else is a new kind, so that old segments stay readable.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from gridpost.core.delivery import Event, Side, State
from gridpost.core.refusal import Refusal


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
    generated_text: str = ""
    """503 cl. 6.5.4 signs this text, not the time that it means."""
    extension: str = ""
    signature_algorithm: str = ""
    related_message_id: str = ""
    sender_description: str = ""
    """MADES 1.1 cl. 3.14.3 signs it too; messages of version 2 have none."""


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
    message_type: str = ""
    generated_text: str = ""
    extension: str = ""
    signature_algorithm: str = ""
    sender_description: str = ""


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


def refusal_row(
    refusal: Refusal, now: datetime, *, peer: str = "", message_id: str = "", security: bool = False
) -> RefusalRow:
    return RefusalRow(
        now,
        refusal.id,
        refusal.rule.name,
        refusal.code,
        refusal.message,
        refusal.details,
        peer,
        message_id,
        security,
    )


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


class Standing(StrEnum):
    """What became of an entry or a certificate of the directory."""

    PUBLISHED = "published"
    GONE = "gone"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class EntryRow(JournalRow):
    """An entry of the directory as this component came to know it; no person is named."""

    KIND: ClassVar[str] = "entry"

    code: str
    type: str
    component_directory: str
    standing: Standing
    organization: str = ""
    urls: str = ""


@dataclass(frozen=True, slots=True)
class CertificateRow(JournalRow):
    """A published certificate: years later a signature is judged by it, not by its id."""

    KIND: ClassVar[str] = "certificate"

    owner: str
    certificate_kind: str
    certificate_id: str
    standing: Standing
    der: bytes
    not_before: datetime
    not_after: datetime
    subject_code: str = ""
    component_directory: str = ""


@dataclass(frozen=True, slots=True)
class AtcRow(JournalRow):
    """CMM 5.3.3: what was available in one unit and direction, as a broadcast said it."""

    KIND: ClassVar[str] = "capacity-atc"

    border: str
    out_area: str
    in_area: str
    day: str
    period_start: datetime
    period_end: datetime
    quantity: int
    offered: int
    allocated: int
    event: str
    broadcast_id: str
    status: str = "ALLOCATION"


@dataclass(frozen=True, slots=True)
class AllocationRow(JournalRow):
    """CMM 5.3.4: an allocation, with the request that it came by."""

    KIND: ClassVar[str] = "capacity-allocation"

    allocation_id: int
    border: str
    out_area: str
    in_area: str
    period_start: datetime
    period_end: datetime
    quantity: int
    requested: int
    balancing_group: str
    user: str
    client_id: str
    correlation_id: str
    allocation_type: str
    event: str
    pool_out_area: str = ""
    pool_in_area: str = ""
    """Whose capacity it took: on a border with common ATC that of the leading interconnector."""


@dataclass(frozen=True, slots=True)
class BroadcastRow(JournalRow):
    """CMM 3.1.1: a broadcast that was decided; it is sent after this row is safe."""

    KIND: ClassVar[str] = "capacity-broadcast"

    broadcast_id: str
    exchange: str
    event: str
    out_area: str
    in_area: str
    entries: int
    border: str = ""
    day: str = ""
    balancing_group: str = ""
    sequence_id: int = -1
    """-1: broadcasts of this kind have none."""
    run: int = 0
    """Which start of the service: sequence ids begin anew with each."""


class SessionEvent(StrEnum):
    """What began or ended: of a user's session rows the last one counts."""

    LOGIN = "login"
    BINDINGS = "bindings"
    """Its grants changed, and with them what it is told."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class SessionRow(JournalRow):
    """CMM 3.2.1: who is logged in, and the broadcasts of which balancing groups it is told."""

    KIND: ClassVar[str] = "capacity-session"

    user: str
    event: SessionEvent
    arguments: str = ""
    """The filter, as its Login has it."""
    filtered: bool = False
    """Its filter may keep broadcasts of these groups from it."""
    balancing_groups: str = ""
    """Separated by blanks."""
    run: int = 0
    """Which start of the service."""


@dataclass(frozen=True, slots=True)
class EnvelopeRow(JournalRow):
    """61968-100: an envelope that passed a bus, with what came of it."""

    KIND: ClassVar[str] = "envelope"

    direction: str
    """`in` or `out`."""
    message_kind: str
    """request, response, event or fault."""
    verb: str
    noun: str
    context: str
    source: str
    message_id: str
    correlation_id: str
    size: int
    destination: str = ""
    result: str = ""
    codes: str = ""
    milliseconds: int = -1
    """From its arrival to its reply; -1: not a request that was answered."""
    sla_milliseconds: int = -1
    content: bytes | None = None
    """Only where the owner of the bus switched it on for this noun."""


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
        AtcRow,
        AllocationRow,
        BroadcastRow,
        EntryRow,
        CertificateRow,
        EnvelopeRow,
        SessionRow,
    )
}


LISTED_KINDS = frozenset({AdministrationRow.KIND, RefusalRow.KIND})
"""What people page through; stores keep these findable among millions of other rows."""


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
