"""The ledger of capacity as a port: append-only, and the only truth about what was sold.

A work runs alone, on the book as all earlier works left it; what it appends is committed as one, and
nobody hears of it before that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from gridpost.core.allocation import Grant, Outcome
from gridpost.core.broadcast import Allocation
from gridpost.core.capacity import Book, Market, Offer, Status, Trigger
from gridpost.core.journal import Identity, JournalRow
from gridpost.core.ports import Journal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """Who asks for allocations, and how it was asked."""

    user: str
    correlation_id: str
    event: Trigger
    allocation_type: str


RequestKey = tuple[str, str]
"""User and correlation-id: a second request with both is a repetition (CMM 3.2.2.2)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the ledger, as a replay sees it. Lines with one commit number belong together."""

    sequence: int
    commit: int
    at: datetime
    kind: str
    out_area: str = ""
    in_area: str = ""
    period_start: datetime | None = None
    period_end: datetime | None = None
    quantity: int = 0
    event: str = ""
    actor: str = ""
    balancing_group: str = ""
    client_id: str = ""
    correlation_id: str = ""
    text: str = ""


class CapacityUnit(Protocol):
    """What one work sees and writes."""

    @property
    def book(self) -> Book: ...

    @property
    def journal(self) -> Journal: ...

    def note(self, row: JournalRow) -> None:
        """Into the journal, with everything else this work notes, when it ends."""
        ...

    @property
    def run(self) -> int:
        """Number of this start of the service."""
        ...

    def offer(self, offers: Sequence[Offer], event: Trigger, actor: str, at: datetime) -> None: ...

    def allocate(
        self, grants: Sequence[Grant], request: Request, at: datetime
    ) -> list[Allocation]: ...

    def set_status(
        self, border: str, interconnector: str, status: Status, actor: str, at: datetime
    ) -> None: ...

    def login(self, user: str, arguments: str, at: datetime) -> None: ...

    def session_ended(self, user: str, at: datetime) -> None:
        """Its queues are gone: a later start of the service must not take it for logged in."""
        ...

    def next_sequence_id(self, group: str) -> int:
        """CMM 3.1.1.3.1: from 0 with each start of the service."""
        ...

    def next_broadcast_id(self) -> str:
        """Unique in this ledger."""
        ...

    def first_outcomes(
        self, asked: Sequence[RequestKey], since: datetime
    ) -> dict[RequestKey, tuple[Outcome, ...]]:
        """Of those that works before this one have answered since then."""
        ...

    def keep_outcome(
        self, user: str, correlation_id: str, at: datetime, outcomes: Sequence[Outcome]
    ) -> None: ...

    def forget_outcomes(self, before: datetime) -> int: ...


class CapacityReader(Protocol):
    """Questions that change nothing."""

    def allocations(
        self, group: str, areas: tuple[str, str], start: datetime, end: datetime, limit: int
    ) -> list[Allocation]:
        """Of a group on an interconnector, both ways, whose period starts in [start, end)."""
        ...

    def logins(self) -> dict[str, str]:
        """User -> arguments of its last Login, unless its session has ended since."""
        ...

    @property
    def journal(self) -> Journal: ...

    def entries(self, after: int, limit: int) -> list[Entry]:
        """Lines after a number, oldest first."""
        ...

    def latest(self, limit: int, before: int | None = None) -> list[Entry]:
        """Newest first; the next page is `before` the last one's number."""
        ...


class CapacityLedger(Protocol):
    @property
    def identity(self) -> Identity: ...

    async def activate(self, holder: str, at: datetime) -> int:
        """Write down who is the active service from now on; the number of this run."""
        ...

    async def change_market(self, market: Market) -> None:
        """New reference data: the book is made anew for it."""
        ...

    async def run(self, work: Callable[[CapacityUnit], T]) -> T: ...

    async def read(self, work: Callable[[CapacityReader], T]) -> T: ...

    def look(self, work: Callable[[Book], T]) -> T:
        """Ask the book in memory; short, because works wait meanwhile."""
        ...

    async def close(self) -> None: ...


KEEP_BEHIND = timedelta(days=2)
"""How long the book remembers units that are over; the ledger keeps them for good."""
