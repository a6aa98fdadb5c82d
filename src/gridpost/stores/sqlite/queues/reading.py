"""Questions to a broker's queues: which there are, what is in them, the body of one message."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

from gridpost.core.queues import Queued, QueueState
from gridpost.stores.sqlite.queues.files import Staged
from gridpost.stores.values import from_microseconds

_QUEUES = """
    SELECT queue.code, count(message.number), coalesce(sum(message.size), 0),
           coalesce(max(message.number), 0),
           (SELECT stored_at FROM message AS first
            WHERE first.queue = queue.queue AND first.held IS NULL
            ORDER BY first.number LIMIT 1),
           (SELECT count(*) FROM message AS held
            WHERE held.queue = queue.queue AND held.held IS NOT NULL)
    FROM queue LEFT JOIN message ON message.queue = queue.queue AND message.held IS NULL
    WHERE queue.active = 1 GROUP BY queue.queue ORDER BY queue.code
"""
# Python hands its lock to another thread at every row that SQLite gives: a page of messages comes as
# two values. SQLite keeps the order of a sorted subquery in an aggregate without promising it, so each
# body has its number before it, and one that is not where it should be is read by itself.
_READY = "queue = (SELECT queue FROM queue WHERE code = ?) AND held IS NULL"
_MESSAGES = f"""
    SELECT json_group_array(json_array(
        number, lower(hex(message_id)), sender, message_type, stored_at, expires_at, size, priority,
        deliveries, length(body)
    )) FROM (SELECT * FROM message WHERE {_READY} AND number > ? ORDER BY number LIMIT ?)
"""
_BODIES = f"""
    SELECT CAST(group_concat(printf('%016x', number) || body, '') AS BLOB) FROM (
        SELECT number, body FROM message WHERE {_READY} AND number > ? AND number <= ?
        AND body IS NOT NULL ORDER BY number
    )
"""
_NUMBER_OCTETS = 16


def queues(connection: sqlite3.Connection) -> Sequence[QueueState]:
    return [
        QueueState(
            code, depth, octets, held, last, None if oldest is None else from_microseconds(oldest)
        )
        for code, depth, octets, last, oldest, held in connection.execute(_QUEUES).fetchall()
    ]


def messages(
    connection: sqlite3.Connection, queue: str, after: int, limit: int, max_octets: int
) -> Sequence[Queued]:
    found: list[Queued] = []
    lengths: list[int | None] = []
    octets = 0
    connection.execute("BEGIN")
    try:
        (rows,) = connection.execute(_MESSAGES, (queue, after, limit)).fetchone()
        for (
            number,
            key,
            sender,
            kind,
            stored,
            expires,
            size,
            priority,
            failed,
            length,
        ) in json.loads(rows):
            octets += length or 0
            if octets > max_octets and found and length is not None:
                break
            lengths.append(length)
            found.append(
                Queued(
                    number,
                    uuid_text(key),
                    sender,
                    kind,
                    from_microseconds(stored),
                    from_microseconds(expires),
                    size,
                    priority,
                    failed,
                )
            )
        last = found[-1].number if found else after
        (bodies,) = connection.execute(_BODIES, (queue, after, last)).fetchone()
        end = 0
        for message, length in zip(found, lengths, strict=True):
            if length is None:
                continue
            start = end + _NUMBER_OCTETS
            if bodies[end:start] == b"%016x" % message.number:
                message.content = bodies[start : start + length]
            else:
                message.content = _body_alone(connection, message.number)
            end = start + length
    finally:
        connection.execute("ROLLBACK")
    return found


def _body_alone(connection: sqlite3.Connection, number: int) -> bytes:
    (content,) = connection.execute(
        "SELECT body FROM message WHERE number = ?", (number,)
    ).fetchone()
    return bytes(content)


def uuid_text(digits: str) -> str:
    """What `str(UUID(hex=digits))` gives, in a fraction of the time."""
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def body(connection: sqlite3.Connection, number: int) -> bytes | Staged | None:
    found = connection.execute(
        "SELECT body, file, start, size FROM message WHERE number = ?", (number,)
    ).fetchone()
    if found is None:
        return None
    content, file, start, size = found
    return Staged(file, start, size) if content is None else bytes(content)


def unnamed(connection: sqlite3.Connection, names: Iterable[str]) -> list[str]:
    """Those of the files that no row names (any more)."""
    return [
        name
        for name in names
        if not connection.execute(
            "SELECT EXISTS (SELECT 1 FROM message WHERE file = ?)", (name,)
        ).fetchone()[0]
    ]


def named_files(connection: sqlite3.Connection) -> set[str]:
    """Every body file that a row names."""
    return {
        name for (name,) in connection.execute("SELECT file FROM message WHERE file IS NOT NULL")
    }
