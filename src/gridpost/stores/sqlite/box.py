"""The message box in SQLite: what is put, found, moved and traced, inside a transaction.

Transfers, retention and searches have files of their own; `SqliteBox` joins them to the port.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import compress
from operator import ne
from typing import Any

from gridpost.core.delivery import Decision, Side, Status, TraceEntry
from gridpost.core.message import InternalMessage, Metadata
from gridpost.core.message_box import (
    BoxEntry,
    Brief,
    Content,
    Found,
    Outgoing,
    Purged,
    Retention,
    Search,
    Tally,
)
from gridpost.core.message_path import Route
from gridpost.core.ports import ANSWER_BYTES
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.box_rows import (
    BOX_COLUMNS,
    NEW_COLUMNS,
    BoxRow,
    BriefRow,
    MetadataRow,
    StateRow,
    TraceRow,
)
from gridpost.stores.sqlite import evidence
from gridpost.stores.sqlite import outgoing as transfers
from gridpost.stores.sqlite.bodies import Kept, WorkFiles
from gridpost.stores.sqlite.group import Group
from gridpost.stores.sqlite.retention import FINISHED, discard, purge
from gridpost.stores.sqlite.search import SqliteSearch
from gridpost.stores.sqlite.statements import insert_rows, select_each
from gridpost.stores.values import from_microseconds, to_microseconds

Parameters = Sequence[object] | Mapping[str, object]

_KNOWN = """
    SELECT message_id, side FROM (
        SELECT message_id, side FROM message UNION ALL SELECT message_id, side FROM remnant
    ) WHERE message_id
"""
_PUT = f"INSERT INTO message ({', '.join(NEW_COLUMNS)})"
_LAST_NUMBER = "SELECT last_insert_rowid()"
_PUT_CONTENT = "INSERT INTO content (number, body, file, size)"
_SIGN = "UPDATE message SET processors = ? WHERE message_id = ? AND side = 'sent'"
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
_TRACE = f"INSERT INTO trace (message, line, {', '.join(TraceRow._fields)})"
_TRACE_OF = f"""
    SELECT {", ".join(f"t.{column}" for column in TraceRow._fields)}
    FROM message m JOIN trace t ON t.message = m.number
    WHERE m.message_id = ? AND m.side = ? ORDER BY t.line
"""
_WAITING = f"""
    SELECT {BOX_COLUMNS} FROM message INDEXED BY message_waiting
    WHERE message_type = ? AND state = 'WAITING' AND number > ? AND expires_at > ?
    ORDER BY number LIMIT ?
"""
_COUNT_WAITING = """
    SELECT count(*) FROM message INDEXED BY message_waiting
    WHERE message_type = ? AND state = 'WAITING' AND expires_at > ?
"""
# Steps from type to type through the index, however many messages each has.
_WAITING_TYPES = """
    WITH RECURSIVE found (message_type) AS (
        SELECT min(message_type) FROM message INDEXED BY message_waiting WHERE state = 'WAITING'
        UNION ALL
        SELECT (
            SELECT min(message_type) FROM message INDEXED BY message_waiting
            WHERE state = 'WAITING' AND message_type > found.message_type
        )
        FROM found WHERE found.message_type IS NOT NULL
    )
    SELECT message_type FROM found WHERE message_type IS NOT NULL
"""
_EXPIRED = f"""
    SELECT {BOX_COLUMNS} FROM message INDEXED BY message_open
    WHERE open_until <= ? ORDER BY open_until, number LIMIT ?
"""
_RECENT = """
    SELECT arrived_at, side, state, changed_at, size FROM message INDEXED BY message_by_arrival
    WHERE arrived_at >= ? ORDER BY arrived_at DESC LIMIT ?
"""
_COUNT_STATUS = """
    SELECT count(*) FROM message INDEXED BY message_by_status
    WHERE status = ? AND status IS NOT NULL
"""
_COUNT_ALL_WAITING = """
    SELECT count(*) FROM message INDEXED BY message_waiting WHERE state = 'WAITING'
"""
_OLDEST_WAITING = """
    SELECT arrived_at FROM message WHERE number = (
        SELECT min(+number) FROM message INDEXED BY message_waiting WHERE state = 'WAITING'
    )
"""
_COUNT_QUEUED = "SELECT count(*) FROM outgoing"
_OLDEST_QUEUED = """
    SELECT m.arrived_at FROM outgoing o JOIN message m ON m.number = o.message
    ORDER BY o.number LIMIT 1
"""


@cache
def _move(changed: tuple[bool, ...]) -> str:
    columns = ", ".join(f"{column} = ?" for column in compress(StateRow._fields, changed))
    return f"UPDATE message SET {columns} WHERE number = ?"


class SqliteBox:
    """core.ports.MessageBox."""

    __slots__ = ("_connection", "_entries", "_files", "_free", "_group", "_put")

    def __init__(self, group: Group, files: WorkFiles) -> None:
        self._group = group
        self._connection = group.connection
        self._entries = group.entries
        self._files = files
        # What was sent in this work, so that its transfer need not ask the database for it again.
        self._put: dict[str, tuple[int, Metadata]] = {}
        # Conversations that were looked for in this work, and have no message yet.
        self._free: set[tuple[str, str]] = set()

    def put(self, entry: BoxEntry, content: Content) -> bool:
        (new,) = self.put_many([(entry, content)])
        return new

    def put_many(self, messages: Sequence[tuple[BoxEntry, Content]]) -> Sequence[bool]:
        rows = [BoxRow.from_entry(entry) for entry, _ in messages]
        ids = [row.metadata.message_id for row in rows]
        known = set(select_each(self._connection, _KNOWN, ids))
        new = []
        for row in rows:
            key = (row.metadata.message_id, row.side)
            new.append(key not in known)
            known.add(key)
        fresh = list(compress(zip(rows, messages, strict=True), new))
        if not fresh:
            return new
        self._refuse_used_conversations([row for row, _ in fresh])
        insert_rows(self._connection, _PUT, [row.new_columns for row, _ in fresh])
        (last,) = self._connection.execute(_LAST_NUMBER).fetchone()
        # One writer, one statement after the other: the numbers follow each other.
        numbered = zip(range(last - len(fresh) + 1, last + 1), fresh, strict=True)
        for number, (row, (entry, content)) in numbered:
            self._group.add(_PUT_CONTENT, (number, *self._files.keep(content)))
            self._entries.put(entry, row.state, number)
            if row.side == Side.SENT:
                self._put[entry.message_id] = (number, entry.metadata)
        return new

    def find(self, side: Side, message_id: str) -> BoxEntry | None:
        known = self._entries.find((message_id, side.value))
        return None if known is None else known.entry

    def sign(self, metadata: Metadata) -> None:
        processors = MetadataRow.from_metadata(metadata).processors
        self._connection.execute(_SIGN, (processors, metadata.message_id))
        self._put.pop(metadata.message_id, None)
        self._group.lately.clear()
        self._entries.forget((metadata.message_id, Side.SENT.value))

    def find_conversation(self, application: str, conversation_id: str) -> BoxEntry | None:
        found = self._entry(_FIND_CONVERSATION, (conversation_id, application))
        if found is None:
            self._free.add((application, conversation_id))
        return found

    def content(self, side: Side, message_id: str) -> bytes | None:
        self._group.flush()
        found = self._connection.execute(_CONTENT, (message_id, side.value) * 2).fetchone()
        return None if found is None else self._files.load(Kept._make(found))

    def move(self, side: Side, decision: Decision) -> None:
        delivery = decision.delivery
        known = self._entries.find((delivery.message_id, side.value))
        if known is None:
            raise ValueError(f"no {side} message {delivery.message_id} is in the box")
        before, after = known.state, StateRow.from_delivery(delivery)
        if after != before:
            # SQLite writes every index anew that has one of the columns, changed or not.
            changed = tuple(map(ne, after, before))
            self._connection.execute(_move(changed), (*compress(after, changed), known.number))
            known.moved(delivery, after)
        line = known.next_line()
        self._group.add(_TRACE, (known.number, line, *TraceRow.from_entry(decision.entry)))

    def trace(self, side: Side, message_id: str) -> Sequence[TraceEntry]:
        self._group.flush()
        rows = self._connection.execute(_TRACE_OF, (message_id, side.value)).fetchall()
        return [TraceRow._make(row).to_entry() for row in rows]

    def keep_acknowledgement(self, acknowledgement: InternalMessage) -> None:
        evidence.keep(self._group, acknowledgement)

    def acknowledgements(self, message_id: str) -> Sequence[InternalMessage]:
        return evidence.of(self._group, message_id)

    def waiting(
        self, message_type: str, now: datetime, limit: int, after: int = 0
    ) -> Sequence[BoxEntry]:
        return self._read(_WAITING, (message_type, after, to_microseconds(now), limit))

    def hold(
        self, message_type: str, now: datetime, limit: int, after: int = 0
    ) -> Sequence[BoxEntry]:
        """There is one process."""
        return self.waiting(message_type, now, limit, after)

    def let_go(self) -> None:
        """There is nobody else."""

    def count_waiting(self, message_type: str, now: datetime) -> int:
        counted = self._connection.execute(_COUNT_WAITING, (message_type, to_microseconds(now)))
        return int(counted.fetchone()[0])

    def waiting_types(self) -> Sequence[str]:
        return [found for (found,) in self._connection.execute(_WAITING_TYPES).fetchall()]

    def expired(self, now: datetime, limit: int) -> Sequence[BoxEntry]:
        return self._read(_EXPIRED, (to_microseconds(now), limit))

    def search(self, search: Search, limit: int, before: int | None = None) -> Found:
        self._group.flush()
        return SqliteSearch(self._connection, search, limit).page(before)

    def recent(self, since: datetime, limit: int) -> Sequence[Brief]:
        rows = self._connection.execute(_RECENT, (to_microseconds(since), limit)).fetchall()
        return [BriefRow._make(row).to_brief() for row in rows]

    def tally(self) -> Tally:
        def one(query: str, *parameters: object) -> Any:
            found = self._connection.execute(query, parameters).fetchone()
            return None if found is None else found[0]

        def moment(query: str) -> datetime | None:
            at = one(query)
            return None if at is None else from_microseconds(at)

        return Tally(
            {status: int(one(_COUNT_STATUS, status.value)) for status in Status},
            int(one(_COUNT_ALL_WAITING)),
            moment(_OLDEST_WAITING),
            int(one(_COUNT_QUEUED)),
            moment(_OLDEST_QUEUED),
        )

    def enqueue(
        self, message: InternalMessage, route: Route, expires_at: datetime, priority: int = 0
    ) -> int:
        number, metadata = self._put.get(message.metadata.message_id, (None, None))
        transfer = transfers.enqueue(
            self._connection,
            self._files,
            message,
            route,
            expires_at,
            priority,
            just_put=number if metadata is message.metadata else None,
        )
        self._group.lately.add(Outgoing(transfer, message, route, expires_at, priority))
        return transfer

    def outgoing(
        self,
        now: datetime,
        limit: int,
        *,
        under_way: Collection[int] = (),
        closed: Collection[Route] = (),
        max_bytes: int = ANSWER_BYTES,
    ) -> Sequence[Outgoing]:
        self._group.flush()
        return transfers.due(
            self._connection,
            self._files,
            self._group.lately,
            now,
            limit,
            under_way,
            closed,
            max_bytes,
        )

    def next_due(self, now: datetime) -> datetime | None:
        return transfers.next_due(self._connection, now)

    def postpone(self, number: int, due_at: datetime) -> None:
        self._group.lately.forget(number)
        transfers.postpone(self._connection, number, due_at)

    def hasten(self, route: Route) -> int:
        return transfers.hasten(self._connection, route)

    def awaited(self, now: datetime) -> Mapping[Route, datetime]:
        return transfers.awaited(self._connection, now)

    def settle(self, number: int) -> None:
        self._group.lately.forget(number)
        transfers.settle(self._connection, self._files, number)

    def stop_transfer(self, message_id: str) -> None:
        transfers.stop(self._connection, self._files, message_id)

    def drop_expired_transfers(self, now: datetime) -> int:
        return transfers.drop_expired(self._connection, self._files, now)

    def purge(self, retention: Retention, now: datetime, limit: int) -> Purged:
        self._forget()
        return purge(self._connection, self._files, retention, now, limit)

    def finished(self, before: datetime, limit: int) -> Sequence[BoxEntry]:
        found: list[BoxEntry] = []
        for side in Side:
            values = (side.value, to_microseconds(before), limit - len(found))
            for (message_id,) in self._connection.execute(FINISHED, values).fetchall():
                entry = self.find(side, message_id)
                found += [] if entry is None else [entry]
        return found

    def discard(self, side: Side, message_ids: Sequence[str]) -> int:
        self._forget()
        return discard(self._connection, self._files, side, message_ids)

    def _forget(self) -> None:
        """Messages are about to go, and with them what hangs on them."""
        self._group.flush()
        self._group.forget()
        self._put.clear()

    def _refuse_used_conversations(self, rows: Iterable[BoxRow]) -> None:
        """Before anything is written: a caller may go on after the refusal."""
        used: set[tuple[str, str]] = set()
        for row in rows:
            if row.conversation_id and row.side == Side.SENT:
                key = (row.application, row.conversation_id)
                if key in used or not (key in self._free or self.find_conversation(*key) is None):
                    raise Refusal(
                        Rule.CONVERSATION_REUSED,
                        f"conversation '{row.conversation_id}' has a message already",
                    )
                used.add(key)
        self._free -= used

    def _entry(self, query: str, parameters: Parameters) -> BoxEntry | None:
        found = self._connection.execute(query, parameters).fetchone()
        return None if found is None else BoxRow.read(found).to_entry()

    def _read(self, query: str, parameters: Parameters) -> list[BoxEntry]:
        rows = self._connection.execute(query, parameters).fetchall()
        return [BoxRow.read(row).to_entry() for row in rows]
