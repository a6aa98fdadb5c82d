"""One transaction of a bus in any SQL database: objects, readings, requests, outbox and journal.

Statements are written with `?` for parameters, and with what SQLite and PostgreSQL both understand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from gridpost.core.bus import (
    Handled,
    Instance,
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
from gridpost.stores.values import from_microseconds, to_microseconds

POSTED = "sequence, address, body, message_id, correlation_id, reply"
_OBJECT = (
    "SELECT mrid, content, state FROM object WHERE noun = ? AND mrid = ? AND state <> 'deleted'"
)
_BY_NAME = "SELECT DISTINCT mrid FROM object_name WHERE noun = ? AND name = ? ORDER BY mrid"


def posted(row: tuple[Any, ...]) -> Posted:
    sequence, address, body, message_id, correlation_id, reply = row
    return Posted(sequence, Outgoing(address, body, message_id, correlation_id, bool(reply)))


class Cursor(Protocol):
    def __iter__(self) -> Iterator[Any]: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class SqlBusUnit(ABC):
    """core.bus.BusUnit."""

    __slots__ = ("_mark",)

    def __init__(self) -> None:
        self._mark = 0

    @abstractmethod
    def _run(self, statement: str, parameters: Sequence[Any] = ()) -> Cursor: ...

    @abstractmethod
    def _run_all(self, statement: str, rows: Sequence[Sequence[Any]]) -> None: ...

    @abstractmethod
    def record(self, row: JournalRow) -> None: ...

    @abstractmethod
    def prune(self, now: datetime, retention: timedelta, keep_exported: timedelta) -> int: ...

    def mark(self) -> int:
        self._mark += 1
        self._run(f"SAVEPOINT mark_{self._mark}")
        return self._mark

    def back(self, mark: int) -> None:
        self._run(f"ROLLBACK TO mark_{mark}")

    def find(self, noun: str, identifier: Identifier) -> StoredObject | None:
        mrids = [identifier.value]
        if identifier.effective_kind is IdKind.NAME:
            rows = self._run(_BY_NAME, (noun, identifier.value))
            mrids = [mrid for (mrid,) in rows]
        for mrid in mrids:
            row = self._run(_OBJECT, (noun, mrid)).fetchone()
            if row is not None:
                stored = self._object(noun, row)
                if named(stored, identifier):
                    return stored
        return None

    def all(self, noun: str) -> Iterator[StoredObject]:
        rows = self._run(
            "SELECT mrid, content, state FROM object WHERE noun = ? AND state <> 'deleted' "
            "ORDER BY mrid",
            (noun,),
        )
        for row in rows:
            yield self._object(noun, row)

    def put(self, stored: StoredObject, at: datetime) -> None:
        key = (stored.noun, stored.mrid)
        execute = self._run
        execute(
            "INSERT INTO object (noun, mrid, state, content) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (noun, mrid) DO UPDATE SET state = excluded.state, "
            "content = excluded.content",
            (*key, stored.state, stored.content),
        )
        execute("DELETE FROM object_name WHERE noun = ? AND mrid = ?", key)
        self._run_all(
            "INSERT INTO object_name VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            [(*key, n.name, n.id_type, n.id_authority) for n in stored.names],
        )
        execute(
            "INSERT INTO object_history (noun, mrid, state, content, at) VALUES (?, ?, ?, ?, ?)",
            (*key, stored.state, stored.content, to_microseconds(at)),
        )

    def history(self, noun: str, mrid: str) -> Sequence[StoredObject]:
        rows = self._run(
            "SELECT mrid, content, state FROM object_history WHERE noun = ? AND mrid = ? "
            "ORDER BY number",
            (noun, mrid),
        )
        return [StoredObject(noun, m, content, ObjectState(state)) for m, content, state in rows]

    def add_readings(self, readings: Iterable[Reading]) -> None:
        self._run_all(
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
            rows = self._run(query + order, (lowest, highest))
        else:
            places = ", ".join("?" * len(meters))
            rows = self._run(f"{query} AND meter IN ({places}){order}", (lowest, highest, *meters))
        for meter, reading_type, at, value in rows:
            yield Reading(meter, reading_type, from_microseconds(at), value)

    def handled(self, source: str, keys: Sequence[str]) -> Handled | None:
        for key in keys:
            row = self._run(
                "SELECT number, digest FROM request_key JOIN request ON number = request "
                "WHERE source = ? AND key = ?",
                (source, key),
            ).fetchone()
            if row is not None:
                number, digest = row
                rows = self._run(
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
            (request,) = self._run(
                "INSERT INTO request (digest, at) VALUES (?, ?) RETURNING number",
                (digest, to_microseconds(at)),
            ).fetchone()
            self._run_all(
                "INSERT INTO request_key (source, key, request) VALUES (?, ?, ?)",
                [(source, key, request) for key in keys],
            )
        done = []
        for post in posts:
            (sequence,) = self._run(
                "INSERT INTO outbox "
                "(request, address, body, message_id, correlation_id, reply, sent) "
                "VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING sequence",
                (
                    request,
                    post.address,
                    post.body,
                    post.message_id,
                    post.correlation_id,
                    int(post.reply),
                    # Given in the exchange itself: there is nothing left to send.
                    int(not post.address),
                ),
            ).fetchone()
            done.append(Posted(sequence, post))
        return tuple(done)

    def expect(self, correlation: str, address: str, transport: str, at: datetime) -> None:
        self._run(
            "INSERT INTO expected (correlation, address, transport, at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (correlation) DO UPDATE SET address = excluded.address, "
            "transport = excluded.transport, at = excluded.at",
            (correlation, address, transport, to_microseconds(at)),
        )

    def expected(self, correlation: str) -> tuple[str, str] | None:
        row = self._run(
            "SELECT address, transport FROM expected WHERE correlation = ?", (correlation,)
        ).fetchone()
        return None if row is None else (row[0], row[1])

    # -- what the ledger does beside requests

    def unsent(self, limit: int) -> list[Posted]:
        query = f"SELECT {POSTED} FROM outbox WHERE sent = 0 ORDER BY sequence LIMIT ?"
        return [posted(row) for row in self._run(query, (limit,))]

    def waiting(self) -> int:
        (count,) = self._run("SELECT count(*) FROM outbox WHERE sent = 0").fetchone()
        return int(count)

    def sent(self, sequences: Sequence[int]) -> None:
        keys = [(sequence,) for sequence in sequences]
        # What belongs to no remembered request is of no use any more.
        self._run_all("DELETE FROM outbox WHERE sequence = ? AND request IS NULL", keys)
        self._run_all("UPDATE outbox SET sent = 1 WHERE sequence = ?", keys)

    def forget(self, before: datetime) -> int:
        gone = self._run(
            "DELETE FROM request WHERE at < ? AND NOT EXISTS (SELECT 1 FROM outbox "
            "WHERE request = number AND sent = 0) RETURNING number",
            (to_microseconds(before),),
        ).fetchall()
        self._run("DELETE FROM expected WHERE at < ?", (to_microseconds(before),))
        return len(gone)

    def alive(self, instance: str, at: datetime, load: int) -> None:
        self._run(
            "INSERT INTO instance (name, seen, load) VALUES (?, ?, ?) ON CONFLICT (name) "
            "DO UPDATE SET seen = excluded.seen, load = excluded.load",
            (instance, to_microseconds(at), load),
        )

    def instances(self, since: datetime) -> list[Instance]:
        query = "SELECT name, seen, load FROM instance WHERE seen >= ? ORDER BY name"
        rows = self._run(query, (to_microseconds(since),))
        return [Instance(name, from_microseconds(seen), load) for name, seen, load in rows]

    def settled(self, correlation: str) -> None:
        self._run("DELETE FROM expected WHERE correlation = ?", (correlation,))

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        return self._run(statement, tuple(parameters)).fetchall()

    def _object(self, noun: str, row: tuple[Any, ...]) -> StoredObject:
        mrid, content, state = row
        names = self._run(
            "SELECT name, id_type, id_authority FROM object_name WHERE noun = ? AND mrid = ?",
            (noun, mrid),
        ).fetchall()
        return StoredObject(
            noun, mrid, content, ObjectState(state), tuple(ObjectName(*name) for name in names)
        )
