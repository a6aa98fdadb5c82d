"""Notices to applications in PostgreSQL, in the transaction of what they tell."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from gridpost.core.delivery import TraceEntry
from gridpost.core.notices import Notice, Subscription
from gridpost.stores.box_rows import TraceRow
from gridpost.stores.postgres.news import News, Topic
from gridpost.stores.postgres.session import Connection
from gridpost.stores.postgres.text import told
from gridpost.stores.values import from_microseconds, to_microseconds

_LINE = TraceRow._fields
_COLUMNS = ("channel", "message_id", "reference", "told_at", *_LINE)
# Numbers of one channel follow the order of commits: who has seen one has seen all before it.
_TURN = """
    SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' notice ' || %s, 0))
"""
_SUBSCRIBE = """
    INSERT INTO subscription (message, channel, reference, every)
    SELECT number, %s, %s, %s FROM message WHERE message_id = %s AND side = 'sent'
"""
_SUBSCRIBED = """
    SELECT s.channel, s.reference, s.every FROM message m JOIN subscription s ON s.message = m.number
    WHERE m.message_id = %s AND m.side = 'sent'
"""
_APPEND = f"""
    INSERT INTO notice ({", ".join(_COLUMNS)}) VALUES ({", ".join(["%s"] * len(_COLUMNS))})
    RETURNING number
"""
_READ = f"""
    SELECT number, {", ".join(_COLUMNS)} FROM notice
    WHERE channel = %s AND number > %s ORDER BY number LIMIT %s
"""
_HOLD = f"""
    WITH free AS (
        SELECT number FROM notice
        WHERE channel = %s AND number > %s AND (holder IS NULL OR holder = %s)
        ORDER BY number LIMIT %s FOR UPDATE SKIP LOCKED
    ), held AS (
        UPDATE notice SET holder = %s FROM free
        WHERE notice.number = free.number AND holder IS NULL
    )
    SELECT notice.number, {", ".join(_COLUMNS)} FROM notice JOIN free
    ON notice.number = free.number ORDER BY notice.number
"""
_LET_GO = "UPDATE notice SET holder = NULL WHERE channel = %s AND holder = %s"
_REMOVE = "DELETE FROM notice WHERE number = ANY(%s)"
_PRUNE = """
    DELETE FROM notice WHERE number IN (
        SELECT number FROM notice WHERE channel = %s AND told_at < %s ORDER BY number LIMIT %s
    )
"""


class PostgresNotices:
    """core.notices.Notices."""

    __slots__ = ("_connection", "_me", "_news")

    def __init__(self, connection: Connection, me: int, news: News) -> None:
        self._connection = connection
        self._me = me
        self._news = news

    def subscribe(self, subscription: Subscription) -> None:
        done = self._connection.execute(
            _SUBSCRIBE,
            (
                subscription.channel,
                subscription.reference,
                subscription.every,
                subscription.message_id,
            ),
        )
        if not done.rowcount:
            raise ValueError(f"no sent message {subscription.message_id} is in the box")

    def tell(self, message_id: str, line: TraceEntry, *, status: bool) -> None:
        found = self._connection.execute(_SUBSCRIBED, (message_id,)).fetchone()
        if found is not None and (found[2] or status):
            self.append(Notice(found[0], message_id, found[1], line.at, line))

    def append(self, notice: Notice) -> int:
        line: tuple[Any, ...] = (None,) * len(_LINE)
        if notice.line is not None:
            row = TraceRow.from_entry(notice.line)
            line = row._replace(detail=told(row.detail))
        self._connection.execute(_TURN, (notice.channel,))
        added = self._connection.execute(
            _APPEND,
            (
                notice.channel,
                notice.message_id,
                notice.reference,
                to_microseconds(notice.at),
                *line,
            ),
        ).fetchone()
        if added is None:
            raise ValueError("the notice got no number")
        self._news.tell(Topic.NOTICE, notice.channel)
        return int(added[0])

    def read(self, channel: str, after: int, limit: int) -> Sequence[Notice]:
        return _notices(self._connection.execute(_READ, (channel, after, limit)).fetchall())

    def hold(self, channel: str, after: int, limit: int) -> Sequence[Notice]:
        return _notices(
            self._connection.execute(_HOLD, (channel, after, self._me, limit, self._me)).fetchall()
        )

    def let_go(self, channel: str) -> None:
        if self._connection.execute(_LET_GO, (channel, self._me)).rowcount:
            self._news.tell(Topic.LET_GO, channel)

    def remove(self, numbers: Collection[int]) -> None:
        self._connection.execute(_REMOVE, (list(numbers),))

    def prune(self, channel: str, before: datetime, limit: int) -> int:
        gone = self._connection.execute(_PRUNE, (channel, to_microseconds(before), limit))
        return gone.rowcount


def _notices(rows: Iterable[Sequence[Any]]) -> list[Notice]:
    return [
        Notice(
            channel,
            message_id,
            reference,
            from_microseconds(told_at),
            None if line[0] is None else TraceRow._make(line).to_entry(),
            number,
        )
        for number, channel, message_id, reference, told_at, *line in rows
    ]
