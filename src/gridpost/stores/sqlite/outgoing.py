"""The queue of transfers: what is due, what waits for its next attempt, what needs no transfer now.

A transfer of a message in the box refers to it and stores neither its metadata nor its content a
second time; an acknowledgement brings its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from gridpost.core.message import InternalMessage
from gridpost.core.message_box import Outgoing
from gridpost.core.message_path import Route
from gridpost.stores.box_rows import MetadataRow
from gridpost.stores.sqlite.bodies import Kept, WorkFiles
from gridpost.stores.sqlite.lately import LatelyEnqueued
from gridpost.stores.sqlite.schema import AWAITING
from gridpost.stores.values import (
    from_microseconds,
    read_metadata,
    to_microseconds,
    write_json,
    write_metadata,
)

_IN_BOX = f"""
    SELECT number, {", ".join(MetadataRow._fields)} FROM message
    WHERE message_id = ? AND side = 'sent' AND has_content = 1
"""
_ENQUEUE = """
    INSERT INTO outgoing
        (message_id, message, metadata, body, file, size, route, expires_at, priority)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# Two halves: those never postponed, and those whose time has come. The second is read by time and
# then put in order; where many are due at once, as after a long silence of a peer, in order.
_DUE = """
    SELECT number, size FROM (
        SELECT number, size, priority FROM (
            SELECT number, size, priority FROM outgoing INDEXED BY outgoing_ready
            WHERE due_at IS NULL AND expires_at > :now
                AND number NOT IN (SELECT value FROM json_each(:under_way))
                AND route NOT IN (SELECT value FROM json_each(:closed))
            ORDER BY priority DESC, number LIMIT :limit
        )
        UNION ALL
        SELECT number, size, priority FROM (
            SELECT number, size, priority FROM outgoing INDEXED BY {index}
            WHERE due_at IS NOT NULL AND due_at <= :now AND expires_at > :now
                AND number NOT IN (SELECT value FROM json_each(:under_way))
                AND route NOT IN (SELECT value FROM json_each(:closed))
            ORDER BY priority DESC, number LIMIT :limit
        )
    )
    ORDER BY priority DESC, number LIMIT :limit
"""
_FEW_DUE = _DUE.format(index="outgoing_postponed")
_MANY_DUE = _DUE.format(index="outgoing_postponed_in_order")
_MANY = 1_000
_COUNT_DUE = f"""
    SELECT count(*) FROM (
        SELECT 1 FROM outgoing INDEXED BY outgoing_postponed WHERE due_at <= ? LIMIT {_MANY}
    )
"""
_READ = f"""
    SELECT o.number, o.route, o.expires_at, o.priority, o.attempts, o.due_at, o.metadata,
        coalesce(o.body, c.body), coalesce(o.file, c.file), o.size,
        {", ".join(f"m.{column}" for column in MetadataRow._fields)}
    FROM outgoing o
    LEFT JOIN message m ON m.number = o.message
    LEFT JOIN content c ON c.number = o.message
    WHERE o.number = ?
"""
_NEXT_DUE = """
    SELECT min(due_at) FROM outgoing INDEXED BY outgoing_postponed
    WHERE due_at > ? AND due_at < expires_at
"""
_POSTPONE = "UPDATE outgoing SET attempts = attempts + 1, due_at = ? WHERE number = ?"
_HASTEN = "UPDATE outgoing SET due_at = NULL WHERE route = ? AND due_at IS NOT NULL"
_AWAITED = f"""
    SELECT route, max(expires_at) FROM message INDEXED BY message_awaited
    WHERE side = 'sent' AND state IN ({AWAITING}) AND expires_at > ?
    GROUP BY route
"""
_SETTLE = "DELETE FROM outgoing WHERE number = ? RETURNING file"
_STOP = "DELETE FROM outgoing WHERE message_id = ? RETURNING file"
_DROP_EXPIRED = "DELETE FROM outgoing WHERE expires_at <= ? RETURNING file"


class OutgoingRow(NamedTuple):
    """A transfer with the columns of its message, which are all None where it has none."""

    number: int
    route: str
    expires_at: int
    priority: int
    attempts: int
    due_at: int | None
    metadata: str | None
    content: Kept
    message: MetadataRow

    @classmethod
    def read(cls, columns: tuple[Any, ...]) -> OutgoingRow:
        """From a row of `_READ`."""
        content, message = Kept._make(columns[7:10]), MetadataRow._make(columns[10:])
        return cls._make((*columns[:7], content, message))

    def to_outgoing(self, files: WorkFiles) -> Outgoing:
        metadata = (
            self.message.to_metadata() if self.metadata is None else read_metadata(self.metadata)
        )
        return Outgoing(
            self.number,
            InternalMessage(metadata, files.load(self.content)),
            Route.stored(self.route),
            from_microseconds(self.expires_at),
            self.priority,
            self.attempts,
            None if self.due_at is None else from_microseconds(self.due_at),
        )


def enqueue(
    connection: sqlite3.Connection,
    files: WorkFiles,
    message: InternalMessage,
    route: Route,
    expires_at: datetime,
    priority: int,
    *,
    just_put: int | None = None,
) -> int:
    """`just_put` is the number of the message, where the caller knows that it is in the box."""
    message_id = message.metadata.message_id
    number, metadata = just_put, None
    # An acknowledgement is never in the box.
    if number is None and not message.metadata.internal_type.is_acknowledgement:
        in_box = connection.execute(_IN_BOX, (message_id,)).fetchone()
        number, *columns = in_box or (None,)
        if tuple(columns) != MetadataRow.from_metadata(message.metadata):
            metadata = write_metadata(message.metadata)
    if number is None:
        metadata = metadata or write_metadata(message.metadata)
        kept = files.keep(message.content)
    else:
        kept = Kept(None, None, len(message.content))
    cursor = connection.execute(
        _ENQUEUE,
        (message_id, number, metadata, *kept, str(route), to_microseconds(expires_at), priority),
    )
    if cursor.lastrowid is None:
        raise ValueError("the transfer got no number")
    return cursor.lastrowid


def due(
    connection: sqlite3.Connection,
    files: WorkFiles,
    lately: LatelyEnqueued,
    now: datetime,
    limit: int,
    under_way: Collection[int],
    closed: Collection[Route],
    max_bytes: int,
) -> list[Outgoing]:
    at = to_microseconds(now)
    (count,) = connection.execute(_COUNT_DUE, (at,)).fetchone()
    found = connection.execute(
        _FEW_DUE if count < _MANY else _MANY_DUE,
        {
            "now": at,
            "limit": limit,
            "under_way": write_json(list(under_way)),
            "closed": write_json([str(route) for route in closed]),
        },
    ).fetchall()
    answer: list[Outgoing] = []
    total = 0
    for number, size in found:
        total += size
        if answer and total > max_bytes:
            break
        known = lately.find(number)
        if known is None:
            row = connection.execute(_READ, (number,)).fetchone()
            known = OutgoingRow.read(row).to_outgoing(files)
        answer.append(known)
    return answer


def next_due(connection: sqlite3.Connection, now: datetime) -> datetime | None:
    (earliest,) = connection.execute(_NEXT_DUE, (to_microseconds(now),)).fetchone()
    return None if earliest is None else from_microseconds(earliest)


def postpone(connection: sqlite3.Connection, number: int, due_at: datetime) -> None:
    connection.execute(_POSTPONE, (to_microseconds(due_at), number))


def hasten(connection: sqlite3.Connection, route: Route) -> int:
    return connection.execute(_HASTEN, (str(route),)).rowcount


def awaited(connection: sqlite3.Connection, now: datetime) -> dict[Route, datetime]:
    found = connection.execute(_AWAITED, (to_microseconds(now),)).fetchall()
    return {Route.stored(route): from_microseconds(until) for route, until in found}


def settle(connection: sqlite3.Connection, files: WorkFiles, number: int) -> None:
    _gone(files, connection.execute(_SETTLE, (number,)))


def stop(connection: sqlite3.Connection, files: WorkFiles, message_id: str) -> None:
    _gone(files, connection.execute(_STOP, (message_id,)))


def drop_expired(connection: sqlite3.Connection, files: WorkFiles, now: datetime) -> int:
    return _gone(files, connection.execute(_DROP_EXPIRED, (to_microseconds(now),)))


def _gone(files: WorkFiles, deleted: Iterable[tuple[str | None]]) -> int:
    # All rows are fetched before anything else runs: SQLite deletes them step by step otherwise.
    gone = list(deleted)
    for (file,) in gone:
        files.doom(file)
    return len(gone)
