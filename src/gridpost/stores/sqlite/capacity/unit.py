"""One work on the capacity ledger in SQLite, and the questions it answers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from gridpost.core.broadcast import Allocation
from gridpost.core.capacity import Book
from gridpost.core.capacity_ledger import Entry, RequestKey
from gridpost.core.journal import JournalRow
from gridpost.stores import capacity_work
from gridpost.stores.capacity_work import (
    CapacityWork,
    Line,
    State,
    open_sessions,
    to_allocation,
    to_entry,
)
from gridpost.stores.sqlite.journal import SqliteJournal
from gridpost.stores.sqlite.statements import insert_rows, select_pairs
from gridpost.stores.values import to_microseconds

_APPEND = """
    INSERT INTO entry (sequence, commit_number, at, kind, out_area, in_area, period_start,
        period_end, quantity, event, actor, balancing_group, client_id, correlation_id, text)
"""
_LAST_ENTRY = "SELECT coalesce(max(sequence), 0) FROM entry"
_LAST_COMMIT = """
    SELECT coalesce(max(commit_number), 0) FROM entry
    WHERE sequence = (SELECT max(sequence) FROM entry)
"""
_ENTRIES = "SELECT * FROM entry WHERE sequence > ? ORDER BY sequence LIMIT ?"
_LATEST = "SELECT * FROM entry WHERE sequence < ? ORDER BY sequence DESC LIMIT ?"
_BOOKED = """
    SELECT kind, out_area, in_area, period_start, quantity FROM entry
    WHERE period_start >= ? ORDER BY sequence
"""
_STATUSES = "SELECT text, event FROM entry WHERE kind = 'status' ORDER BY sequence"
_LOGINS = "SELECT actor, text, event FROM entry WHERE kind = 'login' ORDER BY sequence"
_ALLOCATIONS = """
    SELECT sequence, at, actor, balancing_group, client_id, out_area, in_area, period_start,
        period_end, quantity, event, correlation_id
    FROM entry
    WHERE kind = 'allocation' AND balancing_group = ? AND period_start >= ? AND period_start < ?
        AND ((out_area = ? AND in_area = ?) OR (out_area = ? AND in_area = ?))
    ORDER BY sequence LIMIT ?
"""
# In this order: the primary key is asked for each.
_FIRST_OUTCOMES = """
    CROSS JOIN outcome ON user = asked.column1 AND correlation_id = asked.column2
"""
_KEEP = "INSERT INTO outcome (user, correlation_id, at, outcomes)"
_KEEP_LATER = """
    ON CONFLICT (user, correlation_id) DO UPDATE SET at = excluded.at, outcomes = excluded.outcomes
"""
_FORGET_OUTCOMES = "DELETE FROM outcome WHERE at < ?"
_BEYOND = 2**63 - 1


class SqliteCapacityUnit(CapacityWork):
    """core.capacity_ledger.CapacityUnit."""

    __slots__ = ("_connection", "_last", "_lines", "journal")

    def __init__(
        self, connection: sqlite3.Connection, journal: SqliteJournal, state: State
    ) -> None:
        """`journal` is that of the transaction."""
        super().__init__(state)
        self._connection = connection
        self._last = state.last_entry
        self._lines: list[tuple[Any, ...]] = []
        self.journal = journal

    def done(self) -> None:
        insert_rows(self._connection, _APPEND, self._lines)
        super().done()
        self._state.last_entry = self._last

    def _journal_all(self, rows: Sequence[JournalRow]) -> None:
        self.journal.append_all(rows)

    def _append(self, lines: Sequence[Line]) -> list[int]:
        if self._last is None:
            # Nobody else writes, and nothing ever leaves this table.
            (self._last,) = self._connection.execute(_LAST_ENTRY).fetchone()
        numbers = list(range(self._last + 1, self._last + 1 + len(lines)))
        self._lines += [
            (number, *line.columns()) for number, line in zip(numbers, lines, strict=True)
        ]
        self._last += len(lines)
        return numbers

    def _outcomes(self, asked: Sequence[RequestKey], since: int) -> Iterable[tuple[str, str, str]]:
        return [
            (user, correlation_id, outcomes)
            for user, correlation_id, at, outcomes in select_pairs(
                self._connection, "SELECT outcome.*", asked, _FIRST_OUTCOMES
            )
            if at >= since
        ]

    def _keep_all(self, rows: Sequence[tuple[str, str, int, str]]) -> None:
        insert_rows(self._connection, _KEEP, rows, _KEEP_LATER)

    def _forget(self, before: int) -> int:
        return self._connection.execute(_FORGET_OUTCOMES, (before,)).rowcount


class SqliteCapacityReader:
    """core.capacity_ledger.CapacityReader."""

    __slots__ = ("_connection", "journal")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.journal = SqliteJournal(connection)

    def allocations(
        self, group: str, areas: tuple[str, str], start: datetime, end: datetime, limit: int
    ) -> list[Allocation]:
        one, other = areas
        rows = self._connection.execute(
            _ALLOCATIONS,
            (group, to_microseconds(start), to_microseconds(end), one, other, other, one, limit),
        ).fetchall()
        return [to_allocation(row) for row in rows]

    def logins(self) -> dict[str, str]:
        return open_sessions(self._connection.execute(_LOGINS))

    def entries(self, after: int, limit: int) -> list[Entry]:
        return [to_entry(row) for row in self._connection.execute(_ENTRIES, (after, limit))]

    def latest(self, limit: int, before: int | None = None) -> list[Entry]:
        bound = _BEYOND if before is None else before
        return [to_entry(row) for row in self._connection.execute(_LATEST, (bound, limit))]


def replay(connection: sqlite3.Connection, book: Book, since: datetime) -> int:
    """Everything the ledger says of units from `since` on, into an empty book; the last commit."""
    booked = connection.execute(_BOOKED, (to_microseconds(since),))
    capacity_work.replay(book, booked, connection.execute(_STATUSES))
    return int(connection.execute(_LAST_COMMIT).fetchone()[0])
