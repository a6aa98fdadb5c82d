"""What the memory store holds: immutable values in tables that a transaction copies and replaces."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import uuid4

from gridpost.core.delivery import Side, TraceEntry, final_since
from gridpost.core.holds import Hold
from gridpost.core.message import InternalMessage
from gridpost.core.message_box import BoxEntry, Outgoing
from gridpost.core.notices import Notice, Subscription
from gridpost.stores.journal_rows import Stored

DISTANT = datetime.max.replace(tzinfo=UTC)
Key = tuple[Side, str]


@dataclass(frozen=True, slots=True)
class Message:
    """An entry with what belongs to its metadata."""

    entry: BoxEntry
    arrived_at: datetime
    trace: tuple[TraceEntry, ...] = ()
    acknowledgements: tuple[InternalMessage, ...] = ()

    @property
    def key(self) -> Key:
        return self.entry.delivery.side, self.entry.message_id

    @property
    def final_at(self) -> datetime | None:
        """When retention begins to count, sooner or later."""
        return final_since(self.entry.delivery, DISTANT)


@dataclass(frozen=True, slots=True)
class Remnant:
    """What is left of a message after its metadata: its identifier, perhaps its content."""

    side: Side
    message_id: str
    final_at: datetime

    @property
    def key(self) -> Key:
        return self.side, self.message_id


@dataclass(frozen=True, slots=True)
class Transfer:
    outgoing: Outgoing
    message: int | None
    """The number of the message in the box that it transfers."""


@dataclass(slots=True)
class State:
    """All tables; everything by number. `numbers` finds messages and remnants by their key."""

    messages: dict[int, Message] = field(default_factory=dict)
    remnants: dict[int, Remnant] = field(default_factory=dict)
    numbers: dict[Key, int] = field(default_factory=dict)
    conversations: dict[tuple[str, str], int] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    transfers: dict[int, Transfer] = field(default_factory=dict)
    journal: dict[int, Stored] = field(default_factory=dict)
    subscriptions: dict[int, Subscription] = field(default_factory=dict)
    notices: dict[int, Notice] = field(default_factory=dict)
    holds: dict[tuple[str, str], Hold] = field(default_factory=dict)
    resends: dict[int, str] = field(default_factory=dict)
    papers: dict[int, dict[str, bytes]] = field(default_factory=dict)
    last_message: int = 0
    last_transfer: int = 0
    last_row: int = 0
    last_notice: int = 0
    exported: int = 0

    def copy(self) -> State:
        """Values are immutable: a copy of the tables is a copy of everything."""
        return replace(
            self,
            messages=self.messages.copy(),
            remnants=self.remnants.copy(),
            numbers=self.numbers.copy(),
            conversations=self.conversations.copy(),
            contents=self.contents.copy(),
            transfers=self.transfers.copy(),
            journal=self.journal.copy(),
            subscriptions=self.subscriptions.copy(),
            notices=self.notices.copy(),
            holds=self.holds.copy(),
            resends=self.resends.copy(),
            papers=self.papers.copy(),
        )


@dataclass(slots=True)
class MemoryDisk:
    """What outlives a store object: a test opens a second store on it, as after a restart."""

    state: State = field(default_factory=State)
    component: str = ""
    instance: str = field(default_factory=lambda: str(uuid4()))
    in_use: bool = False
