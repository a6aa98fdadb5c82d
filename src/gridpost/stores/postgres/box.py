"""The message box in PostgreSQL: what is put, found, moved and traced, inside a transaction.

Transfers, retention and searches have files of their own; `PostgresBox` joins them to the port.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from gridpost.core.delivery import Decision, Side, State, Status, TraceEntry
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
    Staged,
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
from gridpost.stores.postgres import evidence
from gridpost.stores.postgres import outgoing as transfers
from gridpost.stores.postgres.news import News, Topic
from gridpost.stores.postgres.retention import FINISHED, discard, purge
from gridpost.stores.postgres.search import PostgresSearch
from gridpost.stores.postgres.text import storable, told
from gridpost.stores.postgres.transaction import Transaction
from gridpost.stores.values import from_microseconds, to_microseconds

Parameters = Sequence[object] | Mapping[str, object]

# Numbers of received messages follow the order of commits, so that a reader who has seen a number
# has seen all before it: processes take turns from the first number to the commit.
_TURN = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' arrival', 0))"
_PUT = f"""
    INSERT INTO message ({", ".join(NEW_COLUMNS)})
    VALUES ({", ".join(["%s"] * len(NEW_COLUMNS))})
    ON CONFLICT DO NOTHING RETURNING number
"""
_WAS_HERE = "SELECT 1 FROM remnant WHERE message_id = %s AND side = %s"
_IS_HERE = "SELECT 1 FROM message WHERE message_id = %s AND side = %s"
_UNDO_PUT = "DELETE FROM message WHERE number = %s"
_PUT_CONTENT = "INSERT INTO content (message, body) VALUES (%s, %s)"
_USE_STAGED = "UPDATE content SET message = %s, stager = NULL WHERE number = %s AND stager = %s"
_SIGN = "UPDATE message SET processors = %s WHERE message_id = %s AND side = 'sent'"
_FIND = f"SELECT {BOX_COLUMNS} FROM message WHERE message_id = %s AND side = %s"
# Two processes that get the same document at the same time: the second waits and finds the first.
_CONVERSE = """
    SELECT pg_advisory_xact_lock(
        hashtextextended(current_schema() || ' conversation ' || %s || ' ' || %s, 0))
"""
_FIND_CONVERSATION = f"""
    SELECT {BOX_COLUMNS} FROM message
    WHERE side = 'sent' AND conversation_id = %s AND conversation_id <> '' AND application = %s
"""
_CONTENT = """
    SELECT body FROM content WHERE message = (
        SELECT number FROM message WHERE message_id = %s AND side = %s
        UNION ALL
        SELECT number FROM remnant WHERE message_id = %s AND side = %s
    )
"""
_STATE = f"""
    SELECT number, message_type, {", ".join(StateRow._fields)} FROM message
    WHERE message_id = %s AND side = %s FOR UPDATE
"""
_MOVE = f"""
    UPDATE message SET {", ".join(f"{column} = %s" for column in StateRow._fields)}, holder = NULL
    WHERE number = %s
"""
_TRACE = """
    INSERT INTO trace (message, line, at, event, state, moved, detail, acknowledgement_id)
    SELECT %s, 1 + coalesce(max(line), 0), %s, %s, %s, %s, %s, %s FROM trace WHERE message = %s
"""
_TRACE_OF = f"""
    SELECT {", ".join(f"t.{column}" for column in TraceRow._fields)}
    FROM message m JOIN trace t ON t.message = m.number
    WHERE m.message_id = %s AND m.side = %s ORDER BY t.line
"""
_WAITING = f"""
    SELECT {BOX_COLUMNS} FROM message
    WHERE message_type = %s AND state = 'WAITING' AND number > %s AND expires_at > %s
    ORDER BY number LIMIT %s
"""
_NEWEST_WAITING = f"""
    SELECT {BOX_COLUMNS} FROM message
    WHERE message_type = %s AND state = 'WAITING' AND expires_at > %s
    ORDER BY number DESC LIMIT 1
"""
_HOLD = f"""
    WITH free AS (
        SELECT number FROM message
        WHERE message_type = %s AND state = 'WAITING' AND number > %s AND expires_at > %s
            AND (holder IS NULL OR holder = %s)
        ORDER BY number LIMIT %s FOR UPDATE SKIP LOCKED
    ), held AS (
        UPDATE message SET holder = %s FROM free
        WHERE message.number = free.number AND holder IS NULL
    )
    SELECT {", ".join(f"message.{column}" for column in BOX_COLUMNS.split(", "))}
    FROM message JOIN free ON message.number = free.number ORDER BY message.number
"""
_LET_GO = """
    UPDATE message SET holder = NULL WHERE holder = %s AND number IN (
        SELECT number FROM message WHERE holder = %s ORDER BY number FOR UPDATE
    ) RETURNING message_type
"""
_COUNT_WAITING = """
    SELECT count(*) FROM message WHERE message_type = %s AND state = 'WAITING' AND expires_at > %s
"""
# Steps from type to type through the index, however many messages each has.
_WAITING_TYPES = """
    WITH RECURSIVE found (message_type) AS (
        SELECT min(message_type) FROM message WHERE state = 'WAITING'
        UNION ALL
        SELECT (
            SELECT min(message_type) FROM message
            WHERE state = 'WAITING' AND message_type > found.message_type
        )
        FROM found WHERE found.message_type IS NOT NULL
    )
    SELECT message_type FROM found WHERE message_type IS NOT NULL
"""
_EXPIRED = f"""
    SELECT {BOX_COLUMNS} FROM message WHERE open_until <= %s ORDER BY open_until, number LIMIT %s
"""
_RECENT = """
    SELECT arrived_at, side, state, changed_at, size FROM message
    WHERE arrived_at >= %s ORDER BY arrived_at DESC LIMIT %s
"""
_COUNT_STATUS = "SELECT status, count(*) FROM message WHERE status IS NOT NULL GROUP BY status"
_ALL_WAITING = "SELECT count(*), min(arrived_at) FROM message WHERE state = 'WAITING'"
_QUEUED = """
    SELECT (SELECT count(*) FROM outgoing), (
        SELECT m.arrived_at FROM outgoing o JOIN message m ON m.number = o.message
        ORDER BY o.number LIMIT 1
    )
"""


class PostgresBox:
    """core.ports.MessageBox."""

    __slots__ = ("_connection", "_keeps_order", "_me", "_news", "_put", "_writing")

    def __init__(
        self,
        transaction: Transaction,
        me: int,
        news: News,
        keeps_order: Callable[[str], bool],
    ) -> None:
        """`keeps_order` says of which message-types the transfers go one after the other."""
        self._connection = transaction.connection
        self._writing = transaction.writing
        self._me = me
        self._news = news
        self._keeps_order = keeps_order
        self._put: set[int] = set()
        """What this work has put."""

    def put(self, entry: BoxEntry, content: Content) -> bool:
        row = BoxRow.from_entry(entry)
        if not all(storable(value) for value in row.new_columns if isinstance(value, str)):
            raise Refusal(Rule.BAD_VALUE, "a field of the message holds NUL or half a character")
        if row.side == Side.RECEIVED:
            self._connection.execute(_TURN)
        key = (row.metadata.message_id, row.side)
        put = self._connection.execute(_PUT, row.new_columns).fetchone()
        if put is None:
            if self._connection.execute(_IS_HERE, key).fetchone() is None:
                raise Refusal(
                    Rule.CONVERSATION_REUSED,
                    f"conversation '{row.conversation_id}' has a message already",
                )
            return False
        (number,) = put
        # Looked for after the insert: retention makes a remnant in the moment a message goes.
        if self._connection.execute(_WAS_HERE, key).fetchone() is not None:
            self._connection.execute(_UNDO_PUT, (number,))
            return False
        self._keep(number, content)
        self._put.add(number)
        return True

    def put_many(self, messages: Sequence[tuple[BoxEntry, Content]]) -> Sequence[bool]:
        with self._connection.transaction():
            return [self.put(entry, content) for entry, content in messages]

    def find(self, side: Side, message_id: str) -> BoxEntry | None:
        if not storable(message_id):
            return None
        lock = " FOR UPDATE" if self._writing else ""
        return self._entry(_FIND + lock, (message_id, side.value))

    def sign(self, metadata: Metadata) -> None:
        processors = MetadataRow.from_metadata(metadata).processors
        self._connection.execute(_SIGN, (processors, metadata.message_id))

    def find_conversation(self, application: str, conversation_id: str) -> BoxEntry | None:
        if not storable(conversation_id) or not storable(application):
            return None
        if self._writing:
            self._connection.execute(_CONVERSE, (application, conversation_id))
        return self._entry(_FIND_CONVERSATION, (conversation_id, application))

    def content(self, side: Side, message_id: str) -> bytes | None:
        if not storable(message_id):
            return None
        found = self._connection.execute(_CONTENT, (message_id, side.value) * 2).fetchone()
        return None if found is None else bytes(found[0])

    def move(self, side: Side, decision: Decision) -> None:
        delivery = decision.delivery
        found = self._connection.execute(_STATE, (delivery.message_id, side.value)).fetchone()
        if found is None:
            raise ValueError(f"no {side} message {delivery.message_id} is in the box")
        number, message_type, *before = found
        after = StateRow.from_delivery(delivery)
        changed = after != tuple(before)
        if changed:
            self._connection.execute(_MOVE, (*after, number))
        # A new message is often put as its first event leaves it: that is news as well.
        if changed or number in self._put:
            if side is Side.SENT:
                self._news.tell(Topic.STATUS, delivery.message_id)
            elif delivery.state is State.WAITING:
                # What was kept back for a while stands behind numbers that others have seen.
                topic = Topic.OFFERED if number in self._put else Topic.LET_GO
                self._news.tell(topic, message_type)
        line = TraceRow.from_entry(decision.entry)
        line = line._replace(detail=told(line.detail))
        self._connection.execute(_TRACE, (number, *line, number))

    def trace(self, side: Side, message_id: str) -> Sequence[TraceEntry]:
        if not storable(message_id):
            return []
        rows = self._connection.execute(_TRACE_OF, (message_id, side.value)).fetchall()
        return [TraceRow._make(row).to_entry() for row in rows]

    def keep_acknowledgement(self, acknowledgement: InternalMessage) -> None:
        evidence.keep(self._connection, acknowledgement)

    def acknowledgements(self, message_id: str) -> Sequence[InternalMessage]:
        return evidence.of(self._connection, message_id) if storable(message_id) else []

    def waiting(
        self, message_type: str, now: datetime, limit: int, after: int = 0
    ) -> Sequence[BoxEntry]:
        return self._entries(_WAITING, (message_type, after, to_microseconds(now), limit))

    def newest_waiting(self, message_type: str, now: datetime) -> BoxEntry | None:
        """For whoever wants to tell that something came."""
        return self._entry(_NEWEST_WAITING, (message_type, to_microseconds(now)))

    def hold(
        self, message_type: str, now: datetime, limit: int, after: int = 0
    ) -> Sequence[BoxEntry]:
        at = to_microseconds(now)
        return self._entries(_HOLD, (message_type, after, at, self._me, limit, self._me))

    def let_go(self) -> None:
        rows = self._connection.execute(_LET_GO, (self._me, self._me)).fetchall()
        for message_type in {found for (found,) in rows}:
            self._news.tell(Topic.LET_GO, message_type)

    def count_waiting(self, message_type: str, now: datetime) -> int:
        return int(self._one(_COUNT_WAITING, (message_type, to_microseconds(now)))[0])

    def waiting_types(self) -> Sequence[str]:
        return [found for (found,) in self._connection.execute(_WAITING_TYPES).fetchall()]

    def expired(self, now: datetime, limit: int) -> Sequence[BoxEntry]:
        lock = " FOR UPDATE SKIP LOCKED" if self._writing else ""
        return self._entries(_EXPIRED + lock, (to_microseconds(now), limit))

    def search(self, search: Search, limit: int, before: int | None = None) -> Found:
        return PostgresSearch(self._connection, search, limit).page(before)

    def recent(self, since: datetime, limit: int) -> Sequence[Brief]:
        rows = self._connection.execute(_RECENT, (to_microseconds(since), limit)).fetchall()
        return [BriefRow._make(row).to_brief() for row in rows]

    def tally(self) -> Tally:
        statuses: dict[str, int] = dict(self._connection.execute(_COUNT_STATUS).fetchall())
        waiting, oldest_waiting = self._one(_ALL_WAITING)
        queued, oldest_queued = self._one(_QUEUED)
        return Tally(
            {status: statuses.get(status.value, 0) for status in Status},
            waiting,
            _moment(oldest_waiting),
            queued,
            _moment(oldest_queued),
        )

    def enqueue(
        self, message: InternalMessage, route: Route, expires_at: datetime, priority: int = 0
    ) -> int:
        owner = transfers.owner_of(self._connection, self._me, message, route, self._keeps_order)
        if owner != self._me:
            self._news.tell(Topic.TRANSFER, str(owner))
        return transfers.enqueue(self._connection, owner, message, route, expires_at, priority)

    def outgoing(
        self,
        now: datetime,
        limit: int,
        *,
        under_way: Collection[int] = (),
        closed: Collection[Route] = (),
        max_bytes: int = ANSWER_BYTES,
    ) -> Sequence[Outgoing]:
        """Those of this process: others make theirs."""
        return transfers.due(self._connection, self._me, now, limit, under_way, closed, max_bytes)

    def next_due(self, now: datetime) -> datetime | None:
        return transfers.next_due(self._connection, self._me, now)

    def postpone(self, number: int, due_at: datetime) -> None:
        transfers.postpone(self._connection, number, due_at)

    def hasten(self, route: Route) -> int:
        return transfers.hasten(self._connection, self._me, route)

    def awaited(self, now: datetime) -> Mapping[Route, datetime]:
        return transfers.awaited(self._connection, now)

    def settle(self, number: int) -> None:
        transfers.settle(self._connection, number)

    def stop_transfer(self, message_id: str) -> None:
        transfers.stop(self._connection, message_id)

    def drop_expired_transfers(self, now: datetime) -> int:
        return transfers.drop_expired(self._connection, now)

    def purge(self, retention: Retention, now: datetime, limit: int) -> Purged:
        return purge(self._connection, retention, now, limit)

    def finished(self, before: datetime, limit: int) -> Sequence[BoxEntry]:
        found: list[BoxEntry] = []
        for side in Side:
            values = (side.value, to_microseconds(before), limit - len(found))
            for (message_id,) in self._connection.execute(FINISHED, values).fetchall():
                entry = self._entry(_FIND, (message_id, side.value))
                found += [] if entry is None else [entry]
        return found

    def discard(self, side: Side, message_ids: Sequence[str]) -> int:
        return discard(self._connection, side, message_ids)

    def _keep(self, number: int, content: Content) -> None:
        if not isinstance(content, Staged):
            self._connection.execute(_PUT_CONTENT, (number, content))
            return
        staged, _, stager = content.name.partition(" of ")
        used = self._connection.execute(_USE_STAGED, (number, int(staged), int(stager)))
        if used.rowcount != 1:
            # Its process seemed to be dead: what it had staged was swept away.
            raise Refusal(Rule.BUSY, "the staged content is gone; try again")

    def _entry(self, query: str, parameters: Parameters) -> BoxEntry | None:
        found = self._connection.execute(query, parameters).fetchone()
        return None if found is None else BoxRow.read(found).to_entry()

    def _entries(self, query: str, parameters: Parameters) -> list[BoxEntry]:
        rows = self._connection.execute(query, parameters).fetchall()
        return [BoxRow.read(row).to_entry() for row in rows]

    def _one(self, query: str, parameters: Parameters = ()) -> tuple[Any, ...]:
        found = self._connection.execute(query, parameters).fetchone()
        if found is None:
            raise ValueError("a count without a row")
        return found


def _moment(at: int | None) -> datetime | None:
    return None if at is None else from_microseconds(at)
