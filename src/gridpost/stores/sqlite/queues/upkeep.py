"""What is done to queues besides messages passing: creating, removing, expiring, forgetting."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from gridpost.core.queues import Dropped, Queued, Released, expired_row
from gridpost.stores.sqlite.journal import SqliteJournal
from gridpost.stores.sqlite.queues.reading import unnamed
from gridpost.stores.sqlite.statements import for_each
from gridpost.stores.values import from_microseconds, to_microseconds

_EXPIRED = """
    SELECT message.number, queue.code, message_id, sender, message_type, stored_at, expires_at,
           size, held IS NOT NULL, file
    FROM message JOIN queue USING (queue) WHERE expires_at <= ? ORDER BY expires_at LIMIT ?
"""


def create(connection: sqlite3.Connection, queue: str) -> None:
    connection.execute(
        "INSERT INTO queue (code, active) VALUES (?, 1) ON CONFLICT DO UPDATE SET active = 1",
        (queue,),
    )


def remove(connection: sqlite3.Connection, queue: str) -> bool:
    """The row stays: ids that arrived are known until they expire."""
    return bool(
        connection.execute(
            "UPDATE queue SET active = 0 WHERE code = ? AND active = 1 "
            "AND NOT EXISTS (SELECT 1 FROM message WHERE message.queue = queue.queue)",
            (queue,),
        ).rowcount
    )


def release(connection: sqlite3.Connection, queue: str) -> Released:
    on_hold = (
        "FROM message WHERE held IS NOT NULL AND queue = (SELECT queue FROM queue WHERE code = ?)"
    )
    found = connection.execute(f"SELECT count(*), total(size) {on_hold}", (queue,)).fetchone()
    connection.execute(
        f"UPDATE message SET held = NULL WHERE number IN (SELECT number {on_hold})", (queue,)
    )
    return Released(found[0], int(found[1]))


def drop_expired(
    connection: sqlite3.Connection, now: datetime, limit: int
) -> tuple[Sequence[Dropped], list[str]]:
    """Also those on hold and those that a consumer has not settled (503 cl. 5.8.1).

    Beside them the files that no row names any more.
    """
    rows = connection.execute(_EXPIRED, (to_microseconds(now), limit)).fetchall()
    by_queue: dict[str, dict[int, int]] = defaultdict(dict)
    for_each(connection, "DELETE FROM message WHERE number", [row[0] for row in rows])
    journal = SqliteJournal(connection)
    on_hold: dict[str, int] = defaultdict(int)
    for number, queue, key, sender, kind, stored_at, expires_at, size, held, _ in rows:
        by_queue[queue] |= {} if held else {number: size}
        on_hold[queue] += held
        message = Queued(
            number,
            str(UUID(bytes=key)),
            sender,
            kind,
            from_microseconds(stored_at),
            from_microseconds(expires_at),
            size,
        )
        journal.append(expired_row(queue, message, now))
    dropped = [Dropped(queue, sizes, on_hold[queue]) for queue, sizes in by_queue.items()]
    return dropped, unnamed(connection, {row[-1] for row in rows if row[-1] is not None})


def forget(connection: sqlite3.Connection, now: datetime, portion: int) -> int:
    """One of 256 portions of the ids, by their first octet: an index by time would cost more."""
    low, high = bytes([portion]), bytes([portion + 1]) if portion < 255 else None
    upper = "" if high is None else "AND message_id < ?"
    values = (low, to_microseconds(now)) if high is None else (low, to_microseconds(now), high)
    return connection.execute(
        f"DELETE FROM known WHERE message_id >= ? AND expires_at <= ? {upper}", values
    ).rowcount


def count_interrupted(connection: sqlite3.Connection) -> int:
    """After a crash: what was with consumers may have been delivered (AMQP 3.2.1); how many."""
    marks = connection.execute(
        "SELECT queue, handed_out FROM queue WHERE handed_out > 0"
    ).fetchall()
    if not marks:
        return 0
    connection.execute("BEGIN IMMEDIATE")
    counted = connection.executemany(
        "UPDATE message SET deliveries = deliveries + 1 "
        "WHERE queue = ? AND number <= ? AND held IS NULL",
        marks,
    ).rowcount
    forget_handed_out(connection)
    connection.execute("COMMIT")
    return counted


def forget_handed_out(connection: sqlite3.Connection) -> None:
    """Every delivery has its outcome: nothing is to be counted when the store is opened again."""
    connection.execute("UPDATE queue SET handed_out = 0 WHERE handed_out > 0")


def probe(connection: sqlite3.Connection) -> None:
    connection.execute(
        "INSERT INTO meta (name, value) VALUES ('probe', '1') "
        "ON CONFLICT DO UPDATE SET value = CAST(value AS INTEGER) % 1000000 + 1"
    )
