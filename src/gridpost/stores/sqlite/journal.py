"""The journal in SQLite: numbered rows without gaps, in the transaction of the facts they tell."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from gridpost.core.journal import LISTED_KINDS, EnvelopeRow, JournalRow, Recorded
from gridpost.stores import journal_rows
from gridpost.stores.sqlite.group import Group
from gridpost.stores.values import to_microseconds

# The same in the first version of every kind of store: what reads one journal reads them all. A
# released migration never changes.
JOURNAL = (
    """
    CREATE TABLE journal (
        sequence INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        schema_version INTEGER NOT NULL,
        payload TEXT NOT NULL
    ) STRICT
    """,
    # One row: the highest numbers that were pruned and exported.
    """
    CREATE TABLE journal_state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        pruned INTEGER NOT NULL,
        exported INTEGER NOT NULL
    ) STRICT
    """,
    "INSERT INTO journal_state (one, pruned, exported) VALUES (1, 0, 0)",
)

# The next number comes from the table itself: a work that is undone gives its numbers back.
_LAST = "coalesce((SELECT max(sequence) FROM journal), (SELECT pruned FROM journal_state))"
_INSERT = "INSERT INTO journal (sequence, at, kind, schema_version, payload)"
_APPEND = f"{_INSERT} VALUES ({_LAST} + 1, ?, ?, ?, ?)"
_LAST_NUMBER = f"SELECT {_LAST}"
_READ = """
    SELECT sequence, at, kind, schema_version, payload FROM journal
    WHERE sequence > ? ORDER BY sequence LIMIT ?
"""
# The kind stands in the text: SQLite uses a partial index only where it can see the condition.
_LATEST = {
    kind: f"""
    SELECT sequence, at, kind, schema_version, payload FROM journal INDEXED BY journal_{kind}
    WHERE kind = '{kind}' AND sequence < ? ORDER BY sequence DESC LIMIT ?
"""
    for kind in sorted(LISTED_KINDS)
}
# In the journal of a bus almost every row is one: the table itself is the index.
_LATEST[EnvelopeRow.KIND] = f"""
    SELECT sequence, at, kind, schema_version, payload FROM journal
    WHERE kind = '{EnvelopeRow.KIND}' AND sequence < ? ORDER BY sequence DESC LIMIT ?
"""
# Each kind by its own index, and no more rows of it than can be wanted.
_LISTED = (
    "SELECT * FROM ("
    + " UNION ALL ".join(
        f"""
        SELECT * FROM (
            SELECT sequence, at, kind, schema_version, payload
            FROM journal INDEXED BY journal_{kind}
            WHERE kind = '{kind}' AND sequence > :after ORDER BY sequence LIMIT :limit
        )
        """
        for kind in sorted(LISTED_KINDS)
    )
    + ") ORDER BY sequence LIMIT :limit"
)
_BEYOND = 2**63 - 1
_EXPORTED = f"SELECT exported, {_LAST} FROM journal_state"
_MARK_EXPORTED = "UPDATE journal_state SET exported = max(exported, ?)"
_OLDEST = "SELECT sequence, at FROM journal ORDER BY sequence LIMIT ?"
_DELETE = "DELETE FROM journal WHERE sequence <= ?"
_MARK_PRUNED = "UPDATE journal_state SET pruned = max(pruned, ?)"


class SqliteJournal:
    """core.ports.Journal."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def flush(self) -> None:
        """Everything that was appended is in the table: here at once."""

    def append(self, row: JournalRow) -> int:
        appended = self._connection.execute(_APPEND, journal_rows.write(row)).lastrowid
        if appended is None:
            raise ValueError("the journal row got no number")
        return appended

    def append_all(self, rows: Iterable[JournalRow]) -> None:
        """In their order, with one statement."""
        self._connection.executemany(_APPEND, map(journal_rows.write, rows))

    def read(self, after: int, limit: int) -> Sequence[Recorded]:
        self.flush()
        return _recorded(self._connection.execute(_READ, (after, limit)).fetchall())

    def listed(self, after: int, limit: int) -> Sequence[Recorded]:
        self.flush()
        values = {"after": after, "limit": limit}
        return _recorded(self._connection.execute(_LISTED, values).fetchall())

    def latest(self, kind: str, limit: int, before: int | None = None) -> Sequence[Recorded]:
        self.flush()
        bound = _BEYOND if before is None else before
        return _recorded(self._connection.execute(_LATEST[kind], (bound, limit)).fetchall())

    def exported(self) -> int:
        exported, _ = self._connection.execute(_EXPORTED).fetchone()
        return int(exported)

    def mark_exported(self, sequence: int) -> None:
        self.flush()
        _, last = self._connection.execute(_EXPORTED).fetchone()
        if sequence > last:
            raise ValueError(f"the journal ends at {last}: {sequence} cannot have been exported")
        self._connection.execute(_MARK_EXPORTED, (sequence,))

    def prune(
        self,
        now: datetime,
        retention: timedelta,
        *,
        keep_exported: timedelta | None = None,
        limit: int = 10_000,
    ) -> int:
        self.flush()
        exported = self.exported()
        ended = to_microseconds(now - retention)
        # What was exported may go earlier, never later.
        exported_ended = ended
        if keep_exported is not None:
            exported_ended = max(ended, to_microseconds(now - keep_exported))
        last = None
        for sequence, at in self._connection.execute(_OLDEST, (limit,)).fetchall():
            if at > (exported_ended if sequence <= exported else ended):
                break
            last = sequence
        if last is None:
            return 0
        self._connection.execute(_MARK_PRUNED, (last,))
        return self._connection.execute(_DELETE, (last,)).rowcount


class GroupJournal(SqliteJournal):
    """The journal of a transaction that many works share: their rows go into the table together.

    A row has its number at once, and whoever reads the journal finds everything that was appended.
    """

    __slots__ = ("_group",)

    def __init__(self, group: Group) -> None:
        super().__init__(group.connection)
        self._group = group

    def flush(self) -> None:
        self._group.flush()

    def append(self, row: JournalRow) -> int:
        stored = journal_rows.write(row)
        number = self._group.next_number("journal", _LAST_NUMBER)
        self._group.add(_INSERT, (number, *stored))
        return number

    def append_all(self, rows: Iterable[JournalRow]) -> None:
        for row in rows:
            self.append(row)


def _recorded(rows: Iterable[Sequence[Any]]) -> list[Recorded]:
    return [
        Recorded(sequence, journal_rows.read(journal_rows.Stored._make(columns)))
        for sequence, *columns in rows
    ]
