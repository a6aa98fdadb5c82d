"""What a bus needs of its store: objects in a transaction, what was handled, and what is to be sent.

The law of this file: what a handler changed, the memory of its request, its replies and its event
are one commit. Whatever was sent can be sent again from what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from gridpost.core.envelope import Identifier, IdKind
from gridpost.core.journal import JournalRow

T = TypeVar("T")


class ObjectState(StrEnum):
    """61968-100 Annex B: canceled because of errors, closed because it is finished."""

    ACTIVE = "active"
    CANCELED = "canceled"
    CLOSED = "closed"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class ObjectName:
    """A name with what qualifies it."""

    name: str
    id_type: str = ""
    id_authority: str = ""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of the type that a noun names, as its master holds it."""

    noun: str
    mrid: str
    content: str
    """Its XML element."""
    state: ObjectState = ObjectState.ACTIVE
    names: tuple[ObjectName, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of a meter; the quantity's unit is in the reading type."""

    meter: str
    reading_type: str
    at: datetime
    value: str


class Transaction(Protocol):
    """What handlers change. `back` undoes everything since a mark, the latest first."""

    def mark(self) -> int: ...

    def back(self, mark: int) -> None: ...

    def find(self, noun: str, identifier: Identifier) -> StoredObject | None:
        """By mRID, or by a name with as much of its type and authority as is given."""
        ...

    def all(self, noun: str) -> Iterator[StoredObject]:
        """Without those that are deleted."""
        ...

    def put(self, stored: StoredObject, at: datetime) -> None:
        """New or changed; what it was before is kept as history."""
        ...

    def history(self, noun: str, mrid: str) -> Sequence[StoredObject]: ...

    def add_readings(self, readings: Iterable[Reading]) -> None: ...

    def readings(
        self, meters: Sequence[str], start: datetime | None, end: datetime | None
    ) -> Iterator[Reading]:
        """From `start` on and before `end`; no meters: all of them."""
        ...


def named(stored: StoredObject, identifier: Identifier) -> bool:
    """Is this the object that an ID means? One rule for every store."""
    if identifier.effective_kind is not IdKind.NAME:
        return stored.mrid == identifier.value
    return any(
        name.name == identifier.value
        and identifier.id_type in (None, name.id_type)
        and identifier.id_authority in (None, name.id_authority)
        for name in stored.names
    )


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message that the bus has decided to send: to a queue, a topic or a URL."""

    address: str
    """As a reply address: `queue:…`, `topic:…` or a URL; empty: the answer of a synchronous exchange."""
    body: bytes
    message_id: str = ""
    correlation_id: str = ""
    """Of the transport (61968-100 cl. 6.3.2: each level has its own)."""
    reply: bool = True


@dataclass(frozen=True, slots=True)
class Posted:
    """An outgoing message in its place in the outbox."""

    sequence: int
    outgoing: Outgoing


@dataclass(frozen=True, slots=True)
class Handled:
    """What is remembered of a request: its bytes' fingerprint and everything that was sent for it."""

    digest: bytes
    posted: tuple[Posted, ...]


@dataclass(frozen=True, slots=True)
class Instance:
    """61968-100 cl. 6.15: a process that serves, when it was last seen and how much it has to do."""

    name: str
    seen: datetime
    load: int


class BusUnit(Transaction, Protocol):
    """One transaction."""

    def handled(self, source: str, keys: Sequence[str]) -> Handled | None:
        """The request that was remembered under any of these keys."""
        ...

    def remember(
        self,
        source: str,
        keys: Sequence[str],
        digest: bytes,
        posts: Sequence[Outgoing],
        at: datetime,
    ) -> tuple[Posted, ...]: ...

    def expect(self, correlation: str, address: str, transport: str, at: datetime) -> None:
        """A reply with this correlation comes from elsewhere and goes to `address` then."""
        ...

    def expected(self, correlation: str) -> tuple[str, str] | None:
        """The address of whoever waits, and its transport's correlation."""
        ...

    def settled(self, correlation: str) -> None: ...

    def record(self, row: JournalRow) -> None: ...

    def prune(self, now: datetime, retention: timedelta, keep_exported: timedelta) -> int:
        """Journal rows whose time is over go, some at a time; how many went."""
        ...

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        """SQL of a handler's own, in tables of its own."""
        ...


class BusLedger(Protocol):
    async def run(self, work: Callable[[BusUnit], T], within: float | None = None) -> T:
        """Durable when it returns. Too late is a Refusal HANDLER_TIMEOUT, and nothing happened."""
        ...

    async def unsent(self, limit: int) -> Sequence[Posted]: ...

    async def sent(self, sequences: Sequence[int]) -> None: ...

    async def forget(self, before: datetime) -> int: ...

    async def alive(self, instance: str, at: datetime, load: int) -> None: ...

    async def instances(self, since: datetime) -> Sequence[Instance]: ...
