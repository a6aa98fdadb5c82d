"""The message box in SQLite: what is put, found, moved and traced, inside a transaction.

Transfers, retention and searches have files of their own; `SqliteBox` joins them to the port.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from gridpost.core.delivery import Decision, Side, TraceEntry
from gridpost.core.message import InternalMessage, Metadata
from gridpost.core.message_box import BoxEntry, Content, Outgoing, Purged, Retention, Search
from gridpost.core.message_path import Route
from gridpost.core.ports import ANSWER_BYTES
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.sqlite import evidence
from gridpost.stores.sqlite import outgoing as transfers
from gridpost.stores.sqlite.bodies import Kept, WorkFiles
from gridpost.stores.sqlite.retention import purge
from gridpost.stores.sqlite.rows import BOX_COLUMNS, NEW_COLUMNS, BoxRow, StateRow, TraceRow
from gridpost.stores.sqlite.search import query
from gridpost.stores.values import to_microseconds

Parameters = Sequence[object] | Mapping[str, object]

_KNOWN = """
    SELECT 1 FROM message WHERE message_id = ? AND side = ?
    UNION ALL
    SELECT 1 FROM remnant WHERE message_id = ? AND side = ?
"""
_PUT = f"""
    INSERT INTO message ({", ".join(NEW_COLUMNS)}) VALUES ({", ".join("?" * len(NEW_COLUMNS))})
"""
_PUT_CONTENT = "INSERT INTO content (number, body, file, size) VALUES (?, ?, ?, ?)"
_FIND = f"SELECT {BOX_COLUMNS} FROM message WHERE message_id = ? AND side = ?"
_FIND_CONVERSATION = f"""
    SELECT {BOX_COLUMNS} FROM message
    WHERE side = 'sent' AND conversation_id = ? AND conversation_id <> '' AND application = ?
"""
_CONTENT = """
    SELECT body, file, size FROM content
    WHERE number = (
        SELECT number FROM message WHERE message_id = ? AND side = ?
        UNION ALL
        SELECT number FROM remnant WHERE message_id = ? AND side = ?
    )
"""
_STATE = f"""
    SELECT number, {", ".join(StateRow._fields)} FROM message WHERE message_id = ? AND side = ?
"""
_MOVE = f"""
    UPDATE message SET {", ".join(f"{column} = ?" for column in StateRow._fields)}
    WHERE number = ?
"""
_TRACE = """
    INSERT INTO trace (message, line, at, event, state, moved, detail, acknowledgement_id)
    SELECT ?, 1 + coalesce(max(line), 0), ?, ?, ?, ?, ?, ? FROM trace WHERE message = ?
"""
_TRACE_OF = f"""
    SELECT {", ".join(f"t.{column}" for column in TraceRow._fields)}
    FROM message m JOIN trace t ON t.message = m.number
    WHERE m.message_id = ? AND m.side = ? ORDER BY t.line
"""
_WAITING = f"""
    SELECT {BOX_COLUMNS} FROM message INDEXED BY message_waiting
    WHERE message_type = ? AND state = 'WAITING' AND expires_at > ? ORDER BY number LIMIT ?
"""
_COUNT_WAITING = """
    SELECT count(*) FROM message INDEXED BY message_waiting
    WHERE message_type = ? AND state = 'WAITING' AND expires_at > ?
"""
_EXPIRED = f"""
    SELECT {BOX_COLUMNS} FROM message INDEXED BY message_open
    WHERE open_until <= ? ORDER BY open_until, number LIMIT ?
"""


class SqliteBox:
    """core.ports.MessageBox."""

    __slots__ = ("_connection", "_files", "_put")

    def __init__(self, connection: sqlite3.Connection, files: WorkFiles) -> None:
        self._connection = connection
        self._files = files
        # What was sent in this work, so that its transfer need not ask the database for it again.
        self._put: dict[str, tuple[int, Metadata]] = {}

    def put(self, entry: BoxEntry, content: Content) -> bool:
        key = (entry.message_id, entry.delivery.side.value)
        if self._connection.execute(_KNOWN, key * 2).fetchone() is not None:
            return False
        try:
            inserted = self._connection.execute(_PUT, BoxRow.from_entry(entry).new_columns)
        except sqlite3.IntegrityError:
            if self.find_conversation(entry.application, entry.conversation_id) is None:
                raise
            raise Refusal(
                Rule.CONVERSATION_REUSED,
                f"conversation '{entry.conversation_id}' has a message already",
            ) from None
        number = inserted.lastrowid
        if number is None:
            raise ValueError("the message got no number")
        self._connection.execute(_PUT_CONTENT, (number, *self._files.keep(content)))
        if entry.delivery.side is Side.SENT:
            self._put[entry.message_id] = (number, entry.metadata)
        return True

    def find(self, side: Side, message_id: str) -> BoxEntry | None:
        return self._entry(_FIND, (message_id, side.value))

    def find_conversation(self, application: str, conversation_id: str) -> BoxEntry | None:
        return self._entry(_FIND_CONVERSATION, (conversation_id, application))

    def content(self, side: Side, message_id: str) -> bytes | None:
        found = self._connection.execute(_CONTENT, (message_id, side.value) * 2).fetchone()
        return None if found is None else self._files.load(Kept._make(found))

    def move(self, side: Side, decision: Decision) -> None:
        delivery = decision.delivery
        found = self._connection.execute(_STATE, (delivery.message_id, side.value)).fetchone()
        if found is None:
            raise ValueError(f"no {side} message {delivery.message_id} is in the box")
        number, *before = found
        after = StateRow.from_delivery(delivery)
        if after != tuple(before):
            self._connection.execute(_MOVE, (*after, number))
        self._connection.execute(_TRACE, (number, *TraceRow.from_entry(decision.entry), number))

    def trace(self, side: Side, message_id: str) -> Sequence[TraceEntry]:
        rows = self._connection.execute(_TRACE_OF, (message_id, side.value)).fetchall()
        return [TraceRow._make(row).to_entry() for row in rows]

    def keep_acknowledgement(self, acknowledgement: InternalMessage) -> None:
        evidence.keep(self._connection, acknowledgement)

    def acknowledgements(self, message_id: str) -> Sequence[InternalMessage]:
        return evidence.of(self._connection, message_id)

    def waiting(self, message_type: str, now: datetime, limit: int) -> Sequence[BoxEntry]:
        return self._entries(_WAITING, (message_type, to_microseconds(now), limit))

    def count_waiting(self, message_type: str, now: datetime) -> int:
        counted = self._connection.execute(_COUNT_WAITING, (message_type, to_microseconds(now)))
        return int(counted.fetchone()[0])

    def expired(self, now: datetime, limit: int) -> Sequence[BoxEntry]:
        return self._entries(_EXPIRED, (to_microseconds(now), limit))

    def search(self, search: Search, limit: int, before: int | None = None) -> Sequence[BoxEntry]:
        return self._entries(*query(search, limit, before))

    def enqueue(
        self, message: InternalMessage, route: Route, expires_at: datetime, priority: int = 0
    ) -> int:
        number, metadata = self._put.get(message.metadata.message_id, (None, None))
        return transfers.enqueue(
            self._connection,
            self._files,
            message,
            route,
            expires_at,
            priority,
            just_put=number if metadata is message.metadata else None,
        )

    def outgoing(
        self,
        now: datetime,
        limit: int,
        *,
        under_way: Collection[int] = (),
        closed: Collection[Route] = (),
        max_bytes: int = ANSWER_BYTES,
    ) -> Sequence[Outgoing]:
        return transfers.due(
            self._connection, self._files, now, limit, under_way, closed, max_bytes
        )

    def next_due(self, now: datetime) -> datetime | None:
        return transfers.next_due(self._connection, now)

    def postpone(self, number: int, due_at: datetime) -> None:
        transfers.postpone(self._connection, number, due_at)

    def hasten(self, route: Route) -> int:
        return transfers.hasten(self._connection, route)

    def awaited(self, now: datetime) -> Mapping[Route, datetime]:
        return transfers.awaited(self._connection, now)

    def settle(self, number: int) -> None:
        transfers.settle(self._connection, self._files, number)

    def stop_transfer(self, message_id: str) -> None:
        transfers.stop(self._connection, self._files, message_id)

    def drop_expired_transfers(self, now: datetime) -> int:
        return transfers.drop_expired(self._connection, self._files, now)

    def purge(self, retention: Retention, now: datetime, limit: int) -> Purged:
        self._put.clear()
        return purge(self._connection, self._files, retention, now, limit)

    def _entry(self, query: str, parameters: Parameters) -> BoxEntry | None:
        found = self._connection.execute(query, parameters).fetchone()
        return None if found is None else BoxRow.read(found).to_entry()

    def _entries(self, query: str, parameters: Parameters) -> list[BoxEntry]:
        rows = self._connection.execute(query, parameters).fetchall()
        return [BoxRow.read(row).to_entry() for row in rows]
