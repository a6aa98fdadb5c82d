"""What is asked of, and done to, queues in PostgreSQL besides messages passing: counts, holds, expiry."""

from __future__ import annotations

from datetime import datetime

from gridpost.core.journal import JournalRow
from gridpost.core.queues import Dropped, Queued, QueueState, Released, expired_row
from gridpost.stores.postgres.queue_work import notify
from gridpost.stores.postgres.session import Connection
from gridpost.stores.postgres.transaction import Transaction
from gridpost.stores.values import from_microseconds, to_microseconds

_STATES = """
    SELECT queue.code, coalesce(depth, 0), coalesce(octets, 0), coalesce(held, 0),
           coalesce(last, 0), oldest, coalesce(ready, 0)
    FROM queue LEFT JOIN (
        SELECT message.queue AS code, count(*) FILTER (WHERE message.held IS NULL) AS depth,
               sum(size) FILTER (WHERE message.held IS NULL) AS octets,
               count(message.held) AS held, max(number) AS last,
               min(stored_at) FILTER (WHERE message.held IS NULL) AS oldest,
               count(*) FILTER (WHERE message.held IS NULL AND edge IS NULL) AS ready
        FROM message GROUP BY message.queue
    ) AS counted USING (code) ORDER BY code
"""
_WAITING = """
    SELECT count(*) FROM message WHERE queue = %s AND edge IS NULL AND held IS NULL
"""
_RELEASE = "UPDATE message SET held = NULL WHERE queue = %s AND held IS NOT NULL RETURNING size"
_DROP = """
    DELETE FROM message WHERE number IN (
        SELECT number FROM message WHERE expires_at <= %s AND edge IS NULL
        LIMIT %s FOR UPDATE SKIP LOCKED
    )
    RETURNING queue, number, message_id, sender, message_type, stored_at, expires_at, size,
              held IS NOT NULL
"""
_FORGET = """
    DELETE FROM known_message WHERE (queue, message_id) IN (
        SELECT queue, message_id FROM known_message WHERE expires_at <= %s
        LIMIT %s FOR UPDATE SKIP LOCKED
    )
"""
_FORGET_AT_ONCE = 10_000


def states(connection: Connection) -> tuple[list[QueueState], set[str]]:
    """All queues, and those with messages that no edge has."""
    found, ready = [], set()
    for code, depth, octets, held, last, oldest, waiting in connection.execute(_STATES).fetchall():
        at = None if oldest is None else from_microseconds(oldest)
        found.append(QueueState(code, depth, int(octets), held, last, at))
        if waiting:
            ready.add(code)
    return found, ready


def waiting(connection: Connection, queue: str) -> int:
    found = connection.execute(_WAITING, (queue,)).fetchone()
    return 0 if found is None else int(found[0])


def release(connection: Connection, channel: str, queue: str) -> Released:
    sizes = [int(size) for (size,) in connection.execute(_RELEASE, (queue,)).fetchall()]
    if sizes:
        notify(connection, channel, (queue,))
    return Released(len(sizes), sum(sizes))


def drop_expired(transaction: Transaction, now: datetime, limit: int) -> list[Dropped]:
    """Those that an edge has are its business."""
    rows = transaction.connection.execute(_DROP, (to_microseconds(now), limit)).fetchall()
    gone: dict[str, tuple[dict[int, int], list[bool]]] = {}
    journal: list[JournalRow] = []
    for queue, number, name, sender, type_, stored_at, expires_at, size, held in rows:
        message = Queued(
            number,
            name,
            sender,
            type_,
            from_microseconds(stored_at),
            from_microseconds(expires_at),
            size,
        )
        journal.append(expired_row(queue, message, now))
        sizes, on_hold = gone.setdefault(queue, ({}, []))
        if held:
            on_hold.append(True)
        else:
            sizes[number] = size
    transaction.journal.append_all(journal)
    return [Dropped(queue, sizes, len(held)) for queue, (sizes, held) in gone.items()]


def forget(connection: Connection, now: datetime) -> int:
    return connection.execute(_FORGET, (to_microseconds(now), _FORGET_AT_ONCE)).rowcount
