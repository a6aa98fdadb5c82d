"""One transaction of a bus: objects, readings, the memory of requests, the outbox and the journal."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from gridpost.core.bus import (
    Handled,
    ObjectName,
    ObjectState,
    Outgoing,
    Posted,
    Reading,
    StoredObject,
    named,
)
from gridpost.core.envelope import Identifier, IdKind
from gridpost.core.journal import JournalRow
from gridpost.stores.sqlite.journal import SqliteJournal
from gridpost.stores.values import from_microseconds, to_microseconds

POSTED = "sequence, address, body, message_id, correlation_id, reply"
_OBJECT = (
    "SELECT mrid, content, state FROM object WHERE noun = ? AND mrid = ? AND state <> 'deleted'"
)
_BY_NAME = "SELECT DISTINCT mrid FROM object_name WHERE noun = ? AND name = ? ORDER BY mrid"


def posted(row: tuple[Any, ...]) -> Posted:
    sequence, address, body, message_id, correlation_id, reply = row
    return Posted(sequence, Outgoing(address, body, message_id, correlation_id, bool(reply)))


class SqliteBusUnit:
    """core.bus.BusUnit."""

    __slots__ = ("_connection", "_journal", "_mark")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._journal = SqliteJournal(connection)
        self._mark = 0

    def mark(self) -> int:
        self._mark += 1
        self._connection.execute(f"SAVEPOINT mark_{self._mark}")
        return self._mark

    def back(self, mark: int) -> None:
        self._connection.execute(f"ROLLBACK TO mark_{mark}")

    def find(self, noun: str, identifier: Identifier) -> StoredObject | None:
        mrids = [identifier.value]
        if identifier.effective_kind is IdKind.NAME:
            rows = self._connection.execute(_BY_NAME, (noun, identifier.value))
            mrids = [mrid for (mrid,) in rows]
        for mrid in mrids:
            row = self._connection.execute(_OBJECT, (noun, mrid)).fetchone()
            if row is not None:
                stored = self._object(noun, row)
                if named(stored, identifier):
                    return stored
        return None

    def all(self, noun: str) -> Iterator[StoredObject]:
        rows = self._connection.execute(
            "SELECT mrid, content, state FROM object WHERE noun = ? AND state <> 'deleted' "
            "ORDER BY mrid",
            (noun,),
        )
        for row in rows:
            yield self._object(noun, row)

    def put(self, stored: StoredObject, at: datetime) -> None:
        key = (stored.noun, stored.mrid)
        execute = self._connection.execute
        execute(
            "INSERT INTO object (noun, mrid, state, content) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (noun, mrid) DO UPDATE SET state = excluded.state, "
            "content = excluded.content",
            (*key, stored.state, stored.content),
        )
        execute("DELETE FROM object_name WHERE noun = ? AND mrid = ?", key)
        self._connection.executemany(
            "INSERT OR IGNORE INTO object_name VALUES (?, ?, ?, ?, ?)",
            [(*key, n.name, n.id_type, n.id_authority) for n in stored.names],
        )
        execute(
            "INSERT INTO object_history (noun, mrid, state, content, at) VALUES (?, ?, ?, ?, ?)",
            (*key, stored.state, stored.content, to_microseconds(at)),
        )

    def history(self, noun: str, mrid: str) -> Sequence[StoredObject]:
        rows = self._connection.execute(
            "SELECT mrid, content, state FROM object_history WHERE noun = ? AND mrid = ? "
            "ORDER BY number",
            (noun, mrid),
        )
        return [StoredObject(noun, m, content, ObjectState(state)) for m, content, state in rows]

    def add_readings(self, readings: Iterable[Reading]) -> None:
        self._connection.executemany(
            "INSERT INTO reading (meter, reading_type, at, value) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (meter, reading_type, at) DO UPDATE SET value = excluded.value",
            [(r.meter, r.reading_type, to_microseconds(r.at), r.value) for r in readings],
        )

    def readings(
        self, meters: Sequence[str], start: datetime | None, end: datetime | None
    ) -> Iterator[Reading]:
        lowest = -(1 << 62) if start is None else to_microseconds(start)
        highest = 1 << 62 if end is None else to_microseconds(end)
        query = "SELECT meter, reading_type, at, value FROM reading WHERE at >= ? AND at < ?"
        order = " ORDER BY meter, reading_type, at"
        if not meters:
            rows = self._connection.execute(query + order, (lowest, highest))
        else:
            places = ", ".join("?" * len(meters))
            rows = self._connection.execute(
                f"{query} AND meter IN ({places}){order}", (lowest, highest, *meters)
            )
        for meter, reading_type, at, value in rows:
            yield Reading(meter, reading_type, from_microseconds(at), value)

    def handled(self, source: str, keys: Sequence[str]) -> Handled | None:
        for key in keys:
            row = self._connection.execute(
                "SELECT number, digest FROM request_key JOIN request ON number = request "
                "WHERE source = ? AND key = ?",
                (source, key),
            ).fetchone()
            if row is not None:
                number, digest = row
                rows = self._connection.execute(
                    f"SELECT {POSTED} FROM outbox WHERE request = ? AND (reply = 1 OR sent = 0) "
                    "ORDER BY sequence",
                    (number,),
                )
                return Handled(digest, tuple(map(posted, rows)))
        return None

    def remember(
        self,
        source: str,
        keys: Sequence[str],
        digest: bytes,
        posts: Sequence[Outgoing],
        at: datetime,
    ) -> tuple[Posted, ...]:
        request = None
        if keys:
            request = self._connection.execute(
                "INSERT INTO request (digest, at) VALUES (?, ?)", (digest, to_microseconds(at))
            ).lastrowid
            self._connection.executemany(
                "INSERT INTO request_key (source, key, request) VALUES (?, ?, ?)",
                [(source, key, request) for key in keys],
            )
        done = []
        for post in posts:
            sequence = self._connection.execute(
                "INSERT INTO outbox "
                "(request, address, body, message_id, correlation_id, reply, sent) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    request,
                    post.address,
                    post.body,
                    post.message_id,
                    post.correlation_id,
                    post.reply,
                    # Given in the exchange itself: there is nothing left to send.
                    not post.address,
                ),
            ).lastrowid
            done.append(Posted(sequence or 0, post))
        return tuple(done)

    def record(self, row: JournalRow) -> None:
        self._journal.append(row)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        return self._connection.execute(statement, tuple(parameters)).fetchall()

    def _object(self, noun: str, row: tuple[Any, ...]) -> StoredObject:
        mrid, content, state = row
        names = self._connection.execute(
            "SELECT name, id_type, id_authority FROM object_name WHERE noun = ? AND mrid = ?",
            (noun, mrid),
        ).fetchall()
        return StoredObject(
            noun, mrid, content, ObjectState(state), tuple(ObjectName(*name) for name in names)
        )
