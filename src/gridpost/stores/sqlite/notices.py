"""Notices to applications in SQLite, in the transaction of what they tell."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from gridpost.core.delivery import Side, TraceEntry
from gridpost.core.notices import Notice, Subscription
from gridpost.stores.box_rows import TraceRow
from gridpost.stores.sqlite.group import Group
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
_SUBSCRIBE = "INSERT INTO subscription (message, channel, reference, every)"
_APPEND = f"INSERT INTO notice (number, {', '.join(_COLUMNS)})"
_NO_LINE = (None,) * len(_LINE)
# Numbers of notices that are gone are not given again.
_LAST = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'notice'"
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

    __slots__ = ("_connection", "_group")

    def __init__(self, group: Group) -> None:
        self._group = group
        self._connection = group.connection

    def subscribe(self, subscription: Subscription) -> None:
        known = self._group.entries.find((subscription.message_id, Side.SENT.value))
        if known is None:
            raise ValueError(f"no sent message {subscription.message_id} is in the box")
        wanted = subscription.channel, subscription.reference, int(subscription.every)
        self._group.add(_SUBSCRIBE, (known.number, *wanted))
        known.subscription = wanted

    def tell(self, message_id: str, line: TraceEntry, *, status: bool) -> None:
        known = self._group.entries.find((message_id, Side.SENT.value))
        if known is None or known.subscription is None:
            return
        channel, reference, every = known.subscription
        if status or every:
            row = TraceRow.from_entry(line)
            self._add(channel, message_id, reference, row.at, row)

    def append(self, notice: Notice) -> int:
        line = _NO_LINE if notice.line is None else TraceRow.from_entry(notice.line)
        return self._add(
            notice.channel, notice.message_id, notice.reference, to_microseconds(notice.at), line
        )

    def _add(
        self, channel: str, message_id: str, reference: str, told_at: int, line: Sequence[object]
    ) -> int:
        number = self._group.next_number("notice", _LAST)
        self._group.add(_APPEND, (number, channel, message_id, reference, told_at, *line))
        return number

    def read(self, channel: str, after: int, limit: int) -> Sequence[Notice]:
        self._group.flush()
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
        if any(self._group.is_new("notice", number) for number in numbers):
            self._group.flush()
        for_each(self._connection, _REMOVE, list(numbers))

    def prune(self, channel: str, before: datetime, limit: int) -> int:
        self._group.flush()
        gone = self._connection.execute(_PRUNE, (channel, to_microseconds(before), limit))
        return gone.rowcount
