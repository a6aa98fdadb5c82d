"""One work on the capacity ledger: what it appends, and the book that follows at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from gridpost.core.allocation import Grant, Outcome, apply
from gridpost.core.broadcast import Allocation
from gridpost.core.capacity import Book, Offer, Status, Trigger
from gridpost.core.capacity_ledger import Entry, Request
from gridpost.core.market_time import Period
from gridpost.stores.sqlite.journal import SqliteJournal
from gridpost.stores.values import from_microseconds, read_json, to_microseconds, write_json

_APPEND = """
    INSERT INTO entry (commit_number, at, kind, out_area, in_area, period_start, period_end,
        quantity, event, actor, balancing_group, client_id, correlation_id, text)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_LAST_COMMIT = """
    SELECT coalesce(max(commit_number), 0) FROM entry
    WHERE sequence = (SELECT max(sequence) FROM entry)
"""
_ENTRIES = "SELECT * FROM entry WHERE sequence > ? ORDER BY sequence LIMIT ?"
_BOOKED = """
    SELECT kind, out_area, in_area, period_start, quantity FROM entry
    WHERE period_start >= ? ORDER BY sequence
"""
_STATUSES = "SELECT text, event FROM entry WHERE kind = 'status' ORDER BY sequence"
_LOGINS = "SELECT actor, text FROM entry WHERE kind = 'login' ORDER BY sequence"
_ALLOCATIONS = """
    SELECT sequence, at, actor, balancing_group, client_id, out_area, in_area, period_start,
        period_end, quantity, event, correlation_id
    FROM entry
    WHERE kind = 'allocation' AND balancing_group = ? AND period_start >= ? AND period_start < ?
        AND ((out_area = ? AND in_area = ?) OR (out_area = ? AND in_area = ?))
    ORDER BY sequence LIMIT ?
"""
_FIRST_OUTCOME = "SELECT outcomes FROM outcome WHERE user = ? AND correlation_id = ? AND at >= ?"
_KEEP_OUTCOME = """
    INSERT INTO outcome (user, correlation_id, at, outcomes) VALUES (?, ?, ?, ?)
    ON CONFLICT (user, correlation_id) DO UPDATE SET at = excluded.at, outcomes = excluded.outcomes
"""
_FORGET_OUTCOMES = "DELETE FROM outcome WHERE at < ?"


class State:
    """What is in memory: the book, and sequence ids of this run."""

    def __init__(self, book: Book, run: int) -> None:
        self.book = book
        self.run = run
        self.commit = 0
        self.sequence_ids: dict[str, int] = {}
        self.broadcasts = 0
        self.dirty = False


class SqliteCapacityUnit:
    """core.capacity_ledger.CapacityUnit. Rows are written first; the book follows when they are."""

    __slots__ = ("_connection", "_state", "journal")

    def __init__(self, connection: sqlite3.Connection, state: State) -> None:
        self._connection = connection
        self._state = state
        self.journal = SqliteJournal(connection)
        state.commit += 1

    @property
    def book(self) -> Book:
        return self._state.book

    @property
    def run(self) -> int:
        return self._state.run

    def offer(self, offers: Sequence[Offer], event: Trigger, actor: str, at: datetime) -> None:
        when = to_microseconds(at)
        for offer in offers:
            place = self.book.market.place(offer.out_area, offer.in_area)
            if place is None:
                raise ValueError("an offer for an unknown interconnector")
            end = offer.start + place.border.unit
            self._append(
                when, "offer", offer.out_area, offer.in_area, offer.start, end,
                offer.quantity, event.value, actor,
            )  # fmt: skip
        self._state.dirty = True
        for offer in offers:
            placed = self.book.place(offer.out_area, offer.in_area)
            if placed is not None:
                pool, direction = placed
                pool.offer(direction, offer.start, offer.quantity)

    def allocate(self, grants: Sequence[Grant], request: Request, at: datetime) -> list[Allocation]:
        when = to_microseconds(at)
        allocations = []
        for grant in grants:
            order = grant.order
            sequence = self._append(
                when, "allocation", order.out_area, order.in_area, order.period.start,
                order.period.end, grant.quantity, request.event.value, request.user, grant.group,
                order.client_id, request.correlation_id, request.allocation_type,
            )  # fmt: skip
            allocations.append(
                Allocation(
                    sequence, at, request.user, grant.group, order.client_id, order.out_area,
                    order.in_area, order.period, grant.quantity, request.event,
                    request.correlation_id,
                )
            )  # fmt: skip
        self._state.dirty = True
        apply(self.book, grants)
        return allocations

    def set_status(
        self, border: str, interconnector: str, status: Status, actor: str, at: datetime
    ) -> None:
        self.book.pools_of(border, interconnector)
        text = write_json([border, interconnector])
        self._append(to_microseconds(at), "status", event=status.value, actor=actor, text=text)
        self._state.dirty = True
        self.book.set_status(border, interconnector, status)

    def login(self, user: str, arguments: str, at: datetime) -> None:
        self._append(to_microseconds(at), "login", actor=user, text=arguments)

    def active(self, holder: str, at: datetime) -> None:
        self._append(to_microseconds(at), "active", actor=holder, quantity=self.run)

    def next_sequence_id(self, group: str) -> int:
        self._state.dirty = True
        number = self._state.sequence_ids.get(group, 0)
        self._state.sequence_ids[group] = number + 1
        return number

    def next_broadcast_id(self) -> str:
        self._state.broadcasts += 1
        return f"{self._state.run}-{self._state.broadcasts}"

    def first_outcome(
        self, user: str, correlation_id: str, since: datetime
    ) -> tuple[Outcome, ...] | None:
        found = self._connection.execute(
            _FIRST_OUTCOME, (user, correlation_id, to_microseconds(since))
        ).fetchone()
        return None if found is None else tuple(Outcome(*values) for values in read_json(found[0]))

    def keep_outcome(
        self, user: str, correlation_id: str, at: datetime, outcomes: Sequence[Outcome]
    ) -> None:
        text = write_json(
            [(o.client_id, o.success, o.message, o.allocation_id, o.confirmed) for o in outcomes]
        )
        self._connection.execute(_KEEP_OUTCOME, (user, correlation_id, to_microseconds(at), text))

    def forget_outcomes(self, before: datetime) -> int:
        return self._connection.execute(_FORGET_OUTCOMES, (to_microseconds(before),)).rowcount

    def _append(
        self,
        at: int,
        kind: str,
        out_area: str = "",
        in_area: str = "",
        start: datetime | None = None,
        end: datetime | None = None,
        quantity: int = 0,
        event: str = "",
        actor: str = "",
        group: str = "",
        client_id: str = "",
        correlation_id: str = "",
        text: str = "",
    ) -> int:
        written = self._connection.execute(
            _APPEND,
            (
                self._state.commit, at, kind, out_area, in_area, _time(start), _time(end),
                quantity, event, actor, group, client_id, correlation_id, text,
            ),
        ).lastrowid  # fmt: skip
        if written is None:
            raise ValueError("the entry got no number")
        return written


class SqliteCapacityReader:
    """core.capacity_ledger.CapacityReader."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def allocations(
        self, group: str, areas: tuple[str, str], start: datetime, end: datetime, limit: int
    ) -> list[Allocation]:
        one, other = areas
        rows = self._connection.execute(
            _ALLOCATIONS,
            (group, to_microseconds(start), to_microseconds(end), one, other, other, one, limit),
        ).fetchall()
        return [
            Allocation(
                sequence, from_microseconds(at), user, balancing_group, client_id, out_area,
                in_area, Period(from_microseconds(begin), from_microseconds(finish)), quantity,
                Trigger(event), correlation_id,
            )
            for (
                sequence, at, user, balancing_group, client_id, out_area, in_area, begin, finish,
                quantity, event, correlation_id,
            ) in rows
        ]  # fmt: skip

    def logins(self) -> dict[str, str]:
        return dict(self._connection.execute(_LOGINS).fetchall())

    def entries(self, after: int, limit: int) -> list[Entry]:
        return [
            Entry(
                sequence, commit, from_microseconds(at), kind, out_area, in_area,
                None if start is None else from_microseconds(start),
                None if end is None else from_microseconds(end), *rest,
            )
            for sequence, commit, at, kind, out_area, in_area, start, end, *rest in
            self._connection.execute(_ENTRIES, (after, limit)).fetchall()
        ]  # fmt: skip


def replay(connection: sqlite3.Connection, book: Book, since: datetime) -> int:
    """Put everything the ledger says of units from `since` on into an empty book; the last commit."""
    for kind, out_area, in_area, start, quantity in connection.execute(
        _BOOKED, (to_microseconds(since),)
    ):
        placed = book.place(out_area, in_area)
        # An interconnector that left the reference data takes its history with it.
        if placed is None:
            continue
        pool, direction = placed
        if kind == "offer":
            pool.offer(direction, from_microseconds(start), quantity)
        else:
            pool.allocate(direction, from_microseconds(start), quantity)
    for text, status in connection.execute(_STATUSES):
        border, interconnector = read_json(text)
        if border in book.market.borders:
            book.set_status(border, interconnector, Status(status))
    return int(connection.execute(_LAST_COMMIT).fetchone()[0])


def _time(at: datetime | None) -> int | None:
    return None if at is None else to_microseconds(at)
