"""The queue of transfers: who makes them, what is due, what waits for its next attempt.

Every transfer has an owner, the process that makes it; when that is gone, another takes over. Of a
message-type that keeps its order, one process owns all transfers to a recipient (503 cl. 5.11).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, NamedTuple

from gridpost.core.message import InternalMessage, InternalType
from gridpost.core.message_box import Outgoing
from gridpost.core.message_path import Route
from gridpost.stores.box_rows import MetadataRow
from gridpost.stores.postgres.endpoint_schema import AWAITING
from gridpost.stores.postgres.session import Connection
from gridpost.stores.values import (
    from_microseconds,
    read_metadata,
    to_microseconds,
    write_metadata,
)

# Locked to the end of the transaction: the order of numbers is the order of commits. What was
# queued before its type kept an order joins its pair.
_PAIR = """
    INSERT INTO ordered_pair (message_type, receiver_code, owner) VALUES (%s, %s, %s)
    ON CONFLICT (message_type, receiver_code) DO UPDATE SET owner = ordered_pair.owner
    RETURNING owner, xmax = 0
"""
_JOIN_PAIR = """
    UPDATE outgoing SET owner = %s FROM message m
    WHERE m.number = outgoing.message AND outgoing.owner <> %s
        AND m.side = 'sent' AND m.message_type = %s AND m.receiver_code = %s
"""
_IN_BOX = f"""
    SELECT number, {", ".join(MetadataRow._fields)} FROM message
    WHERE message_id = %s AND side = 'sent' AND has_content = 1
"""
_ENQUEUE = """
    INSERT INTO outgoing
        (owner, message_id, message, metadata, body, size, route, expires_at, priority)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING number
"""
# Two halves with an index each: those never postponed, and those whose time has come.
_DUE = """
    SELECT number, size FROM (
        (
            SELECT number, size, priority FROM outgoing
            WHERE owner = %(me)s AND due_at IS NULL AND expires_at > %(now)s
                AND number <> ALL(%(under_way)s) AND route <> ALL(%(closed)s)
            ORDER BY priority DESC, number LIMIT %(limit)s
        )
        UNION ALL
        (
            SELECT number, size, priority FROM outgoing
            WHERE owner = %(me)s AND due_at <= %(now)s AND expires_at > %(now)s
                AND number <> ALL(%(under_way)s) AND route <> ALL(%(closed)s)
            ORDER BY priority DESC, number LIMIT %(limit)s
        )
    ) due
    ORDER BY priority DESC, number LIMIT %(limit)s
"""
_READ = f"""
    SELECT o.number, o.route, o.expires_at, o.priority, o.attempts, o.due_at, o.metadata,
        coalesce(o.body, c.body),
        {", ".join(f"m.{column}" for column in MetadataRow._fields)}
    FROM outgoing o
    LEFT JOIN message m ON m.number = o.message
    LEFT JOIN content c ON c.message = o.message
    WHERE o.number = ANY(%s) ORDER BY o.priority DESC, o.number
"""
_NEXT_DUE = """
    SELECT min(due_at) FROM outgoing WHERE owner = %s AND due_at > %s AND due_at < expires_at
"""
_POSTPONE = "UPDATE outgoing SET attempts = attempts + 1, due_at = %s WHERE number = %s"
_HASTEN = """
    UPDATE outgoing SET due_at = NULL WHERE owner = %s AND route = %s AND due_at IS NOT NULL
"""
_AWAITED = f"""
    SELECT route, max(expires_at) FROM message
    WHERE side = 'sent' AND state IN ({AWAITING}) AND expires_at > %s
    GROUP BY route
"""
_SETTLE = "DELETE FROM outgoing WHERE number = %s"
_STOP = "DELETE FROM outgoing WHERE message_id = %s"
_DROP_EXPIRED = "DELETE FROM outgoing WHERE expires_at <= %s"


class OutgoingRow(NamedTuple):
    """A transfer with the columns of its message, which are all None where it has none."""

    number: int
    route: str
    expires_at: int
    priority: int
    attempts: int
    due_at: int | None
    metadata: str | None
    content: bytes
    message: MetadataRow

    @classmethod
    def read(cls, columns: tuple[Any, ...]) -> OutgoingRow:
        """From a row of `_READ`."""
        return cls._make((*columns[:8], MetadataRow._make(columns[8:])))

    def to_outgoing(self) -> Outgoing:
        metadata = (
            self.message.to_metadata() if self.metadata is None else read_metadata(self.metadata)
        )
        return Outgoing(
            self.number,
            InternalMessage(metadata, bytes(self.content)),
            Route.stored(self.route),
            from_microseconds(self.expires_at),
            self.priority,
            self.attempts,
            None if self.due_at is None else from_microseconds(self.due_at),
        )


def owner_of(
    connection: Connection,
    me: int,
    message: InternalMessage,
    route: Route,
    keeps_order: Callable[[str], bool],
) -> int:
    """Who makes the transfer: we, unless the message has to keep its place behind others."""
    metadata = message.metadata
    if metadata.internal_type is not InternalType.STANDARD_MESSAGE:
        return me
    if not route.old and not keeps_order(metadata.message_type):
        return me
    pair = (metadata.message_type, metadata.receiver_code)
    found = connection.execute(_PAIR, (*pair, me)).fetchone()
    if found is None:
        raise ValueError("an ordered pair without an owner")
    owner, new = found
    if new:
        connection.execute(_JOIN_PAIR, (owner, owner, *pair))
    return int(owner)


def enqueue(
    connection: Connection,
    owner: int,
    message: InternalMessage,
    route: Route,
    expires_at: datetime,
    priority: int,
) -> int:
    message_id = message.metadata.message_id
    in_box = connection.execute(_IN_BOX, (message_id,)).fetchone()
    number, *columns = in_box or (None,)
    metadata = None
    if tuple(columns) != MetadataRow.from_metadata(message.metadata):
        metadata = write_metadata(message.metadata)
    added = connection.execute(
        _ENQUEUE,
        (
            owner,
            message_id,
            number,
            metadata,
            message.content if number is None else None,
            len(message.content),
            str(route),
            to_microseconds(expires_at),
            priority,
        ),
    ).fetchone()
    if added is None:
        raise ValueError("the transfer got no number")
    return int(added[0])


def due(
    connection: Connection,
    me: int,
    now: datetime,
    limit: int,
    under_way: Collection[int],
    closed: Collection[Route],
    max_bytes: int,
) -> list[Outgoing]:
    found = connection.execute(
        _DUE,
        {
            "me": me,
            "now": to_microseconds(now),
            "limit": limit,
            "under_way": list(under_way),
            "closed": [str(route) for route in closed],
        },
    ).fetchall()
    chosen: list[int] = []
    total = 0
    for number, size in found:
        total += size
        if chosen and total > max_bytes:
            break
        chosen.append(number)
    if not chosen:
        return []
    rows = connection.execute(_READ, (chosen,)).fetchall()
    return [OutgoingRow.read(row).to_outgoing() for row in rows]


def next_due(connection: Connection, me: int, now: datetime) -> datetime | None:
    found = connection.execute(_NEXT_DUE, (me, to_microseconds(now))).fetchone()
    return None if found is None or found[0] is None else from_microseconds(found[0])


def postpone(connection: Connection, number: int, due_at: datetime) -> None:
    connection.execute(_POSTPONE, (to_microseconds(due_at), number))


def hasten(connection: Connection, me: int, route: Route) -> int:
    return connection.execute(_HASTEN, (me, str(route))).rowcount


def awaited(connection: Connection, now: datetime) -> dict[Route, datetime]:
    found = connection.execute(_AWAITED, (to_microseconds(now),)).fetchall()
    return {Route.stored(route): from_microseconds(until) for route, until in found}


def settle(connection: Connection, number: int) -> None:
    connection.execute(_SETTLE, (number,))


def stop(connection: Connection, message_id: str) -> None:
    connection.execute(_STOP, (message_id,))


def drop_expired(connection: Connection, now: datetime) -> int:
    return connection.execute(_DROP_EXPIRED, (to_microseconds(now),)).rowcount
