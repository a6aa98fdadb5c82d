"""One work on a capacity ledger, whichever database keeps it: what is appended, and the book after it.

What a work appends is numbered at once and written when the work ends, in few statements. A work that
fails after it touched the book, and a commit that fails, make the book anew from the ledger
(`Bookkeeping`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from json.encoder import encode_basestring_ascii as _text
from threading import Lock
from typing import Any, TypeVar

from gridpost.core.allocation import Grant, Outcome, apply
from gridpost.core.broadcast import Allocation
from gridpost.core.capacity import Book, Offer, Status, Trigger
from gridpost.core.capacity_ledger import Entry, Request, RequestKey
from gridpost.core.journal import JournalRow
from gridpost.core.market_time import Period
from gridpost.stores.values import from_microseconds, read_json, to_microseconds, write_json

T = TypeVar("T")

ENDED = "ENDED"
"""The event of a `login` line that ends what an earlier one began."""


class State:
    """What is in memory: the book, and sequence ids of this run."""

    def __init__(self, book: Book, run: int) -> None:
        self.book = book
        self.run = run
        self.commit = 0
        self.sequence_ids: dict[str, int] = {}
        self.broadcasts = 0
        self.last_entry: int | None = None
        """The highest number of a line; None: the ledger has to be asked."""
        self.dirty = False


class Bookkeeping:
    """The state of a ledger, and how it goes back to what is committed when something failed."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.lock = Lock()
        self.stale = False
        self._sequence_ids: dict[str, int] = {}

    def begin(self, rebuild: Callable[[], State]) -> None:
        """At the start of a transaction."""
        if self.stale:
            self._restore(rebuild, self._sequence_ids)
            self.stale = False
        self._sequence_ids = dict(self.state.sequence_ids)

    def alone(self, work: Callable[[State], T]) -> T:
        with self.lock:
            return work(self.state)

    @contextmanager
    def undoing(self, failed: Callable[[], bool], rebuild: Callable[[], State]) -> Iterator[None]:
        """Around one work: when it failed after it touched the book, the book is made anew."""
        before = dict(self.state.sequence_ids)
        self.state.dirty = False
        yield
        if failed() and self.state.dirty:
            self._restore(rebuild, before)

    def _restore(self, rebuild: Callable[[], State], sequence_ids: dict[str, int]) -> None:
        with self.lock:
            state = rebuild()
            state.sequence_ids = sequence_ids
            state.broadcasts = self.state.broadcasts
            self.state = state

    def replace(self, state: State) -> None:
        """By a book for other reference data; inside a work."""
        state.sequence_ids = self.state.sequence_ids
        state.commit, state.broadcasts = self.state.commit, self.state.broadcasts
        self.state = state


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table `entry` before it has a number; the order of fields is that of columns."""

    commit: int
    at: int
    kind: str
    out_area: str = ""
    in_area: str = ""
    start: int | None = None
    end: int | None = None
    quantity: int = 0
    event: str = ""
    actor: str = ""
    group: str = ""
    client_id: str = ""
    correlation_id: str = ""
    text: str = ""

    def columns(self) -> tuple[Any, ...]:
        return (
            self.commit, self.at, self.kind, self.out_area, self.in_area, self.start, self.end,
            self.quantity, self.event, self.actor, self.group, self.client_id, self.correlation_id,
            self.text,
        )  # fmt: skip


class CapacityWork(ABC):
    """core.capacity_ledger.CapacityUnit but for its journal."""

    __slots__ = ("_allocated", "_kept", "_rows", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        self._rows: list[JournalRow] = []
        self._kept: dict[RequestKey, tuple[int, str]] = {}
        self._allocated = False
        state.commit += 1

    def done(self) -> None:
        """At the end of the work: what it kept and noted is written."""
        if self._kept:
            self._keep_all([(*key, *told) for key, told in self._kept.items()])
        if self._rows:
            self._journal_all(self._rows)

    @abstractmethod
    def _journal_all(self, rows: Sequence[JournalRow]) -> None: ...

    @abstractmethod
    def _append(self, lines: Sequence[Line]) -> list[int]:
        """Their numbers."""

    @abstractmethod
    def _outcomes(
        self, asked: Sequence[RequestKey], since: int
    ) -> Iterable[tuple[str, str, str]]: ...

    @abstractmethod
    def _keep_all(self, rows: Sequence[tuple[str, str, int, str]]) -> None: ...

    @abstractmethod
    def _forget(self, before: int) -> int: ...

    @property
    def book(self) -> Book:
        return self._state.book

    @property
    def run(self) -> int:
        return self._state.run

    def offer(self, offers: Sequence[Offer], event: Trigger, actor: str, at: datetime) -> None:
        commit, when = self._state.commit, to_microseconds(at)
        lines = []
        for offer in offers:
            place = self.book.market.place(offer.out_area, offer.in_area)
            if place is None:
                raise ValueError("an offer for an unknown interconnector")
            end = offer.start + place.border.unit
            lines.append(
                Line(
                    commit, when, "offer", offer.out_area, offer.in_area,
                    to_microseconds(offer.start), to_microseconds(end), offer.quantity,
                    event.value, actor,
                )
            )  # fmt: skip
        self._append(lines)
        self._state.dirty = True
        for offer in offers:
            placed = self.book.place(offer.out_area, offer.in_area)
            if placed is not None:
                pool, direction = placed
                pool.offer(direction, offer.start, offer.quantity)

    def allocate(self, grants: Sequence[Grant], request: Request, at: datetime) -> list[Allocation]:
        # One number for each request of a work: a replay judges them one after the other.
        self._state.commit += self._allocated
        self._allocated = True
        commit, when = self._state.commit, to_microseconds(at)
        lines = [
            Line(
                commit, when, "allocation", grant.order.out_area, grant.order.in_area,
                to_microseconds(grant.order.period.start), to_microseconds(grant.order.period.end),
                grant.quantity, request.event.value, request.user, grant.group,
                grant.order.client_id, request.correlation_id, request.allocation_type,
            )
            for grant in grants
        ]  # fmt: skip
        numbers = self._append(lines)
        self._state.dirty = True
        apply(self.book, grants)
        return [
            Allocation(
                number, at, request.user, grant.group, grant.order.client_id, grant.order.out_area,
                grant.order.in_area, grant.order.period, grant.quantity, request.event,
                request.correlation_id,
            )
            for number, grant in zip(numbers, grants, strict=True)
        ]  # fmt: skip

    def set_status(
        self, border: str, interconnector: str, status: Status, actor: str, at: datetime
    ) -> None:
        self.book.pools_of(border, interconnector)
        text = write_json([border, interconnector])
        self._one(at, "status", event=status.value, actor=actor, text=text)
        self._state.dirty = True
        self.book.set_status(border, interconnector, status)

    def note(self, row: JournalRow) -> None:
        self._rows.append(row)

    def login(self, user: str, arguments: str, at: datetime) -> None:
        self._one(at, "login", actor=user, text=arguments)

    def session_ended(self, user: str, at: datetime) -> None:
        self._one(at, "login", event=ENDED, actor=user)

    def active(self, holder: str, at: datetime) -> None:
        self._one(at, "active", actor=holder, quantity=self.run)

    def next_sequence_id(self, group: str) -> int:
        self._state.dirty = True
        number = self._state.sequence_ids.get(group, 0)
        self._state.sequence_ids[group] = number + 1
        return number

    def next_broadcast_id(self) -> str:
        self._state.broadcasts += 1
        return f"{self._state.run}-{self._state.broadcasts}"

    def first_outcomes(
        self, asked: Sequence[RequestKey], since: datetime
    ) -> dict[RequestKey, tuple[Outcome, ...]]:
        return {
            (user, correlation_id): tuple(Outcome(*values) for values in read_json(text))
            for user, correlation_id, text in self._outcomes(asked, to_microseconds(since))
        }

    def keep_outcome(
        self, user: str, correlation_id: str, at: datetime, outcomes: Sequence[Outcome]
    ) -> None:
        self._kept[user, correlation_id] = (to_microseconds(at), write_outcomes(outcomes))

    def forget_outcomes(self, before: datetime) -> int:
        return self._forget(to_microseconds(before))

    def _one(self, at: datetime, kind: str, **columns: Any) -> None:
        self._append([Line(self._state.commit, to_microseconds(at), kind, **columns)])


def write_outcomes(outcomes: Iterable[Outcome]) -> str:
    """The text that `write_json` would give: there is one for each request."""
    return f"[{','.join(map(_outcome, outcomes))}]"


def _outcome(told: Outcome) -> str:
    number, confirmed = told.allocation_id, told.confirmed
    return (
        f"[{_text(told.client_id)},{'true' if told.success else 'false'},{_text(told.message)},"
        f"{'null' if number is None else number},{'null' if confirmed is None else confirmed}]"
    )


W = TypeVar("W", bound=CapacityWork)


def worked(unit: W, work: Callable[[W], T]) -> T:
    """The result of a work, when everything that it noted is written too."""
    result = work(unit)
    unit.done()
    return result


def open_sessions(rows: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Of user, arguments and event, in the order they were written."""
    found: dict[str, str] = {}
    for user, arguments, event in rows:
        if event == ENDED:
            found.pop(user, None)
        else:
            found[user] = arguments
    return found


def to_allocation(row: Sequence[Any]) -> Allocation:
    (
        sequence, at, user, group, client_id, out_area, in_area, start, end, quantity, event,
        correlation_id,
    ) = row  # fmt: skip
    return Allocation(
        sequence, from_microseconds(at), user, group, client_id, out_area, in_area,
        Period(from_microseconds(start), from_microseconds(end)), quantity, Trigger(event),
        correlation_id,
    )  # fmt: skip


def to_entry(row: Sequence[Any]) -> Entry:
    sequence, commit, at, kind, out_area, in_area, start, end, *rest = row
    return Entry(
        sequence, commit, from_microseconds(at), kind, out_area, in_area,
        None if start is None else from_microseconds(start),
        None if end is None else from_microseconds(end), *rest,
    )  # fmt: skip


def replay(book: Book, booked: Iterable[Sequence[Any]], statuses: Iterable[Sequence[Any]]) -> None:
    """Put what the ledger says into an empty book, in the order it happened."""
    for kind, out_area, in_area, start, quantity in booked:
        placed = book.place(out_area, in_area)
        # An interconnector that left the reference data takes its history with it.
        if placed is None:
            continue
        pool, direction = placed
        if kind == "offer":
            pool.offer(direction, from_microseconds(start), quantity)
        else:
            pool.allocate(direction, from_microseconds(start), quantity)
    for text, status in statuses:
        border, interconnector = read_json(text)
        if border in book.market.borders:
            book.set_status(border, interconnector, Status(status))
