"""What an endpoint keeps of a message (503 cl. 5.9): the values that stores persist and give back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gridpost.core.delivery import Delivery, Side, State, Status
from gridpost.core.identifiers import ComponentCode, MessageId
from gridpost.core.message import InternalMessage, Metadata
from gridpost.core.message_path import Route
from gridpost.core.node import PurgeStrategy


@dataclass(frozen=True, slots=True)
class BoxEntry:
    """A message in the box, without its content.

    (side, message id) is the key: an endpoint that sends to itself holds both sides of one id.
    """

    delivery: Delivery
    metadata: Metadata
    route: Route
    fingerprint: bytes
    size: int
    application: str = ""
    """Who handed the message in, the text of an Origin; conversation ids are unique per application."""
    conversation_id: str = ""
    number: int = field(default=0, compare=False)
    """Where it stands in the box, in the order of arrival; given by the store, 0 before."""

    @property
    def message_id(self) -> MessageId:
        return self.metadata.message_id


@dataclass(frozen=True, slots=True)
class Staged:
    """A content that a store has on its disk already; only the store that gave it can use it."""

    name: str
    size: int


Content = bytes | Staged


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An internal message that waits for its transfer; content and signature as at composition.

    Encryption happens at each transfer, with the certificate that is right by then.
    """

    number: int
    message: InternalMessage
    route: Route
    expires_at: datetime
    priority: int = 0
    attempts: int = 0
    due_at: datetime | None = None
    """Not before this time (back-off); None: at once."""


@dataclass(frozen=True, slots=True)
class Search:
    """What an operator or application looks for; empty fields match everything.

    `since` (inclusive) and `until` (exclusive) are about when the message came into the box: the
    `changed_at` that it was put with.
    """

    side: Side | None = None
    message_id: str = ""
    conversation_id: str = ""
    ba_message_id: str = ""
    peer: ComponentCode | None = None
    message_type: str = ""
    status: Status | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str = ""
    """Part of what the trace says, in any case of letters; only messages in trouble have such a text:
    those that failed, expired or were refused, and those whose transfer is being repeated."""


LOOKED_AT = 10_000
"""Messages that one page of a search looks at, whatever is asked and however full the box is."""


@dataclass(frozen=True, slots=True)
class Found:
    """One page of a search, newest first.

    It may be short or empty although older messages fit: then it has looked at LOOKED_AT messages.
    """

    entries: tuple[BoxEntry, ...] = ()
    more: int | None = None
    """`before` of the next page; None: nothing older fits."""


IN_TROUBLE = frozenset({State.FAILED, State.REFUSED, State.EXPIRED})


@dataclass(frozen=True, slots=True)
class Brief:
    """As much of a message as a chart needs."""

    arrived_at: datetime
    side: Side
    state: State
    changed_at: datetime
    size: int


@dataclass(frozen=True, slots=True)
class Tally:
    """How full the box is, for whoever looks after it."""

    statuses: Mapping[Status, int]
    waiting: int
    oldest_waiting: datetime | None
    """When the oldest document came that no application has confirmed."""
    queued: int
    oldest_queued: datetime | None
    """When the oldest message was accepted that still waits for its transfer."""


@dataclass(frozen=True, slots=True)
class Retention:
    """503 cl. 5.9: what is kept after the final state, and for how long.

    Identifiers of received messages outlive their metadata, to stop duplicates (5.8.3).
    """

    sent_metadata: timedelta = timedelta(days=30)
    sent_content: timedelta = timedelta(days=7)
    received_metadata: timedelta = timedelta(days=30)
    received_content: timedelta = timedelta(days=7)
    received_ids: timedelta = timedelta(days=60)
    by_type: Mapping[str, PurgeStrategy] = field(default_factory=dict)
    """MADES 1.1 cl. 3.6: message-types of which less goes, or nothing; of all others everything."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            kept_for = getattr(self, name)
            if isinstance(kept_for, timedelta) and kept_for < timedelta(0):
                raise ValueError(f"retention {name} must not be negative")
        if self.received_ids < self.received_metadata:
            raise ValueError("identifiers must be kept at least as long as metadata")

    def metadata(self, side: Side) -> timedelta:
        return self.sent_metadata if side is Side.SENT else self.received_metadata

    def content(self, side: Side) -> timedelta:
        return self.sent_content if side is Side.SENT else self.received_content

    @property
    def content_stays(self) -> tuple[str, ...]:
        return self._types(PurgeStrategy.NEVER)

    @property
    def metadata_stays(self) -> tuple[str, ...]:
        return self._types(PurgeStrategy.NEVER, PurgeStrategy.CONTENT)

    def _types(self, *strategies: PurgeStrategy) -> tuple[str, ...]:
        return tuple(sorted(t for t, s in self.by_type.items() if s in strategies))


@dataclass(frozen=True, slots=True)
class Purged:
    """What one round of retention removed."""

    contents: int = 0
    entries: int = 0
    identifiers: int = 0
