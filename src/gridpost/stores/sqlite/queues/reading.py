"""Questions to a broker's queues: which there are, what is in them, the body of one message."""

from __future__ import annotations

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
_COLUMNS = (
    "number, message_id, sender, message_type, stored_at, expires_at, size, priority, deliveries"
)
_MESSAGES = f"""
    SELECT {_COLUMNS}, body FROM message
    WHERE queue = (SELECT queue FROM queue WHERE code = ?) AND held IS NULL AND number > ?
    ORDER BY number LIMIT ?
"""


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
    octets = 0
    cursor = connection.execute(_MESSAGES, (queue, after, limit))
    try:
        for (
            number,
            key,
            sender,
            kind,
            stored_at,
            expires_at,
            size,
            priority,
            failed,
            body,
        ) in cursor:
            if body is not None:
                octets += size
                if octets > max_octets and found:
                    break
            found.append(
                Queued(
                    number,
                    uuid_text(key),
                    sender,
                    kind,
                    from_microseconds(stored_at),
                    from_microseconds(expires_at),
                    size,
                    priority,
                    failed,
                    body,
                )
            )
    finally:
        cursor.close()
    return found


def uuid_text(key: bytes) -> str:
    """What `str(UUID(bytes=key))` gives, in a fraction of the time."""
    text = key.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


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
