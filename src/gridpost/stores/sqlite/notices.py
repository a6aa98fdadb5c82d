"""Notices to applications in SQLite, in the transaction of what they tell."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime

from gridpost.core.delivery import TraceEntry
from gridpost.core.notices import Notice, Subscription
from gridpost.stores.box_rows import TraceRow
from gridpost.stores.sqlite.statements import for_each
from gridpost.stores.values import from_microseconds, to_microseconds

NOTICES = (
    """
    CREATE TABLE subscription (
        message INTEGER PRIMARY KEY REFERENCES message (number) ON DELETE CASCADE,
        channel TEXT NOT NULL,
        reference TEXT NOT NULL,
        every INTEGER NOT NULL
    ) STRICT
    """,
    # Outlives its message: what was not told yet is told all the same.
    """
    CREATE TABLE notice (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        channel TEXT NOT NULL,
        message_id TEXT NOT NULL,
        reference TEXT NOT NULL,
        told_at INTEGER NOT NULL,
        at INTEGER,
        event TEXT,
        state TEXT,
        moved INTEGER,
        detail TEXT,
        acknowledgement_id TEXT
    ) STRICT
    """,
    "CREATE INDEX notice_by_channel ON notice (channel, number)",
)

_LINE = TraceRow._fields
_COLUMNS = ("channel", "message_id", "reference", "told_at", *_LINE)
_SUBSCRIBE = """
    INSERT INTO subscription (message, channel, reference, every)
    SELECT number, ?, ?, ? FROM message WHERE message_id = ? AND side = 'sent'
"""
_TELL = f"""
    INSERT INTO notice ({", ".join(_COLUMNS)})
    SELECT s.channel, m.message_id, s.reference, ?, {", ".join("?" * len(_LINE))}
    FROM message m JOIN subscription s ON s.message = m.number
    WHERE m.message_id = ? AND m.side = 'sent' AND (s.every OR ?)
"""
_APPEND = f"""
    INSERT INTO notice ({", ".join(_COLUMNS)}) VALUES ({", ".join("?" * len(_COLUMNS))})
"""
_READ = f"""
    SELECT number, {", ".join(_COLUMNS)} FROM notice INDEXED BY notice_by_channel
    WHERE channel = ? AND number > ? ORDER BY number LIMIT ?
"""
_REMOVE = "DELETE FROM notice WHERE number"
_PRUNE = """
    DELETE FROM notice WHERE number IN (
        SELECT number FROM notice INDEXED BY notice_by_channel
        WHERE channel = ? AND told_at < ? ORDER BY number LIMIT ?
    )
"""


class SqliteNotices:
    """core.notices.Notices."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def subscribe(self, subscription: Subscription) -> None:
        done = self._connection.execute(
            _SUBSCRIBE,
            (
                subscription.channel,
                subscription.reference,
                int(subscription.every),
                subscription.message_id,
            ),
        )
        if not done.rowcount:
            raise ValueError(f"no sent message {subscription.message_id} is in the box")

    def tell(self, message_id: str, line: TraceEntry, *, status: bool) -> None:
        row = TraceRow.from_entry(line)
        self._connection.execute(_TELL, (row.at, *row, message_id, int(status)))

    def append(self, notice: Notice) -> int:
        line = (None,) * len(_LINE) if notice.line is None else TraceRow.from_entry(notice.line)
        added = self._connection.execute(
            _APPEND,
            (
                notice.channel,
                notice.message_id,
                notice.reference,
                to_microseconds(notice.at),
                *line,
            ),
        )
        return int(added.lastrowid or 0)

    def read(self, channel: str, after: int, limit: int) -> Sequence[Notice]:
        return [
            Notice(
                channel,
                message_id,
                reference,
                from_microseconds(told_at),
                None if line[0] is None else TraceRow._make(line).to_entry(),
                number,
            )
            for number, channel, message_id, reference, told_at, *line in (
                self._connection.execute(_READ, (channel, after, limit)).fetchall()
            )
        ]

    def hold(self, channel: str, after: int, limit: int) -> Sequence[Notice]:
        """There is one process."""
        return self.read(channel, after, limit)

    def let_go(self, channel: str) -> None:
        """There is nobody else."""

    def remove(self, numbers: Collection[int]) -> None:
        for_each(self._connection, _REMOVE, list(numbers))

    def prune(self, channel: str, before: datetime, limit: int) -> int:
        gone = self._connection.execute(_PRUNE, (channel, to_microseconds(before), limit))
        return gone.rowcount
