"""One work on the capacity ledger in PostgreSQL, and the questions it answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

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
from gridpost.stores.postgres.session import Connection
from gridpost.stores.postgres.text import storable, told
from gridpost.stores.postgres.transaction import Transaction
from gridpost.stores.values import to_microseconds

_APPEND = """
    INSERT INTO entry (commit_number, at, kind, out_area, in_area, period_start, period_end,
        quantity, event, actor, balancing_group, client_id, correlation_id, text)
    SELECT commit_number, at, kind, out_area, in_area, period_start, period_end, quantity, event,
        actor, balancing_group, client_id, correlation_id, text
    FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::bigint[],
        %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
        %s::text[])
        WITH ORDINALITY AS line (commit_number, at, kind, out_area, in_area, period_start,
            period_end, quantity, event, actor, balancing_group, client_id, correlation_id, text,
            place)
    ORDER BY place RETURNING sequence
"""
_LAST_COMMIT = "SELECT commit_number FROM entry ORDER BY sequence DESC LIMIT 1"
_ENTRIES = "SELECT * FROM entry WHERE sequence > %s ORDER BY sequence LIMIT %s"
_LATEST = "SELECT * FROM entry WHERE sequence < %s ORDER BY sequence DESC LIMIT %s"
_BOOKED = """
    SELECT kind, out_area, in_area, period_start, quantity FROM entry
    WHERE period_start >= %s ORDER BY sequence
"""
_STATUSES = "SELECT text, event FROM entry WHERE kind = 'status' ORDER BY sequence"
_LOGINS = "SELECT actor, text, event FROM entry WHERE kind = 'login' ORDER BY sequence"
_RUNS = "SELECT count(*) FROM entry WHERE kind = 'active'"
_ALLOCATIONS = """
    SELECT sequence, at, actor, balancing_group, client_id, out_area, in_area, period_start,
        period_end, quantity, event, correlation_id
    FROM entry
    WHERE kind = 'allocation' AND balancing_group = %s AND period_start >= %s
        AND period_start < %s
        AND ((out_area = %s AND in_area = %s) OR (out_area = %s AND in_area = %s))
    ORDER BY sequence LIMIT %s
"""
_FIRST_OUTCOMES = """
    SELECT who, correlation_id, outcomes
    FROM unnest(%s::text[], %s::text[]) AS asked (who, correlation_id)
    JOIN outcome USING (who, correlation_id) WHERE at >= %s
"""
_KEEP_OUTCOMES = """
    INSERT INTO outcome (who, correlation_id, at, outcomes)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[])
    ON CONFLICT (who, correlation_id) DO UPDATE SET at = excluded.at, outcomes = excluded.outcomes
"""
_FORGET_OUTCOMES = "DELETE FROM outcome WHERE at < %s"
_BEYOND = 2**63 - 1


class PostgresCapacityUnit(CapacityWork):
    """core.capacity_ledger.CapacityUnit."""

    __slots__ = ("connection", "journal")

    def __init__(self, transaction: Transaction, state: State) -> None:
        super().__init__(state)
        self.connection = transaction.connection
        self.journal = transaction.journal

    def _journal_all(self, rows: Sequence[JournalRow]) -> None:
        self.journal.append_all(rows)

    def _append(self, lines: Sequence[Line]) -> list[int]:
        if not lines:
            return []
        columns = [list(column) for column in zip(*(line.columns() for line in lines), strict=True)]
        added = self.connection.execute(_APPEND, columns).fetchall()
        # One statement of the only writer: numbers rise in the order of the lines.
        return sorted(number for (number,) in added)

    def _outcomes(self, asked: Sequence[RequestKey], since: int) -> Iterable[tuple[str, str, str]]:
        keys = [key for key in asked if storable(key[1])]
        if not keys:
            return []
        users, ids = [list(column) for column in zip(*keys, strict=True)]
        return self.connection.execute(_FIRST_OUTCOMES, (users, ids, since)).fetchall()

    def _keep_all(self, rows: Sequence[tuple[str, str, int, str]]) -> None:
        users, ids, times, texts = [list(column) for column in zip(*rows, strict=True)]
        self.connection.execute(_KEEP_OUTCOMES, (users, ids, times, list(map(told, texts))))

    def _forget(self, before: int) -> int:
        return self.connection.execute(_FORGET_OUTCOMES, (before,)).rowcount


class PostgresCapacityReader:
    """core.capacity_ledger.CapacityReader."""

    __slots__ = ("_connection", "journal")

    def __init__(self, transaction: Transaction) -> None:
        self._connection = transaction.connection
        self.journal = transaction.journal

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


def runs(connection: Connection) -> int:
    """How often a service has become the active one so far."""
    found = connection.execute(_RUNS).fetchone()
    return 0 if found is None else int(found[0])


def replay(connection: Connection, book: Book, since: datetime) -> int:
    """Everything the ledger says of units from `since` on, into an empty book; the last commit."""
    booked = connection.execute(_BOOKED, (to_microseconds(since),))
    capacity_work.replay(book, booked.fetchall(), connection.execute(_STATUSES).fetchall())
    found = connection.execute(_LAST_COMMIT).fetchone()
    return 0 if found is None else int(found[0])
