"""The journal in PostgreSQL: one stream of numbered rows for each process that shares a component.

The row of a stream is locked from the first number that a transaction takes until it ends, so that
numbers have no gaps and follow the order of commits. Processes do not wait for each other, because
each has a stream of its own; a stream of a process that is gone is taken over by the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import LiteralString
from uuid import uuid4

from gridpost.core.journal import LISTED_KINDS, EnvelopeRow, JournalRow, Recorded
from gridpost.stores import journal_rows
from gridpost.stores.postgres.session import Connection
from gridpost.stores.values import to_microseconds

_APPEND = """
    WITH next AS (
        UPDATE journal_stream SET last = last + 1 WHERE number = %s RETURNING number, last
    )
    INSERT INTO journal (stream, sequence, at, kind, schema_version, payload)
    SELECT number, last, %s, %s, %s, %s FROM next RETURNING sequence
"""
_APPEND_ALL = """
    WITH next AS (
        UPDATE journal_stream SET last = last + %s WHERE number = %s RETURNING number, last
    )
    INSERT INTO journal (stream, sequence, at, kind, schema_version, payload)
    SELECT number, last - %s + place, added.at, added.kind, added.schema_version, added.payload
    FROM next, unnest(%s::bigint[], %s::text[], %s::integer[], %s::text[])
        WITH ORDINALITY AS added (at, kind, schema_version, payload, place)
"""
_READ = """
    SELECT sequence, at, kind, schema_version, payload FROM journal
    WHERE stream = %s AND sequence > %s ORDER BY sequence LIMIT %s
"""
_LISTED = """
    SELECT sequence, at, kind, schema_version, payload FROM journal
    WHERE stream = %s AND sequence > %s AND kind = ANY(%s) ORDER BY sequence LIMIT %s
"""
# Streams have no common numbers: their time puts their rows in an order, and within one moment the
# number in the stream.
_LATEST = """
    SELECT place, at, kind, schema_version, payload FROM journal_stream, LATERAL (
        SELECT at * 2048 + sequence %% 2048 AS place, at, kind, schema_version, payload
        FROM journal
        WHERE stream = number AND kind = %(kind)s
        AND at * 2048 + sequence %% 2048 < %(before)s
        ORDER BY sequence DESC LIMIT %(limit)s
    ) AS newest
    ORDER BY place DESC LIMIT %(limit)s
"""
_BEYOND = 2**63 - 1
_PAGED = LISTED_KINDS | {EnvelopeRow.KIND}
_STATE = "SELECT exported, last FROM journal_stream WHERE number = %s"
_MARK_EXPORTED = "UPDATE journal_stream SET exported = greatest(exported, %s) WHERE number = %s"
_STREAMS = "SELECT number, instance FROM journal_stream ORDER BY number"
_OLDEST = "SELECT sequence, at FROM journal WHERE stream = %s ORDER BY sequence LIMIT %s"
_DELETE = "DELETE FROM journal WHERE stream = %s AND sequence <= %s"
_MARK_PRUNED = "UPDATE journal_stream SET pruned = greatest(pruned, %s) WHERE number = %s"
_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(current_schema() || ' journal', %s))"


@dataclass(frozen=True, slots=True)
class Stream:
    number: int
    instance: str


def streams(connection: Connection) -> Sequence[Stream]:
    """All streams of this component, also of processes that are gone."""
    return [Stream(*row) for row in connection.execute(_STREAMS).fetchall()]


def claim(connection: Connection, wanted: Stream | None = None) -> Stream:
    """A stream that no other process writes, locked until this connection ends.

    With `wanted`, that stream in any case: two writers of one stream only wait for each other.
    """
    if wanted is not None:
        connection.execute(_LOCK, (wanted.number,))
        return wanted
    for stream in streams(connection):
        if connection.execute(_LOCK, (stream.number,)).fetchone() == (True,):
            return stream
    added = connection.execute(
        "INSERT INTO journal_stream (instance) VALUES (%s) RETURNING number, instance",
        (str(uuid4()),),
    ).fetchone()
    if added is None:
        raise ValueError("the journal stream got no number")
    return claim(connection, Stream(*added))


class PostgresJournal:
    """core.ports.Journal."""

    __slots__ = ("_connection", "_stream")

    def __init__(self, connection: Connection, stream: Stream) -> None:
        self._connection = connection
        self._stream = stream.number

    def append(self, row: JournalRow) -> int:
        added = self._connection.execute(
            _APPEND, (self._stream, *journal_rows.write(row))
        ).fetchone()
        if added is None:
            raise ValueError(f"there is no journal stream {self._stream}")
        return int(added[0])

    def append_all(self, rows: Sequence[JournalRow]) -> None:
        """In their order, with one statement."""
        if not rows:
            return
        at, kinds, versions, payloads = zip(*map(journal_rows.write, rows), strict=True)
        count, columns = len(rows), (list(at), list(kinds), list(versions), list(payloads))
        added = self._connection.execute(_APPEND_ALL, (count, self._stream, count, *columns))
        if added.rowcount != count:
            raise ValueError(f"there is no journal stream {self._stream}")

    def read(self, after: int, limit: int) -> Sequence[Recorded]:
        return self._recorded(_READ, (self._stream, after, limit))

    def listed(self, after: int, limit: int) -> Sequence[Recorded]:
        return self._recorded(_LISTED, (self._stream, after, sorted(LISTED_KINDS), limit))

    def latest(self, kind: str, limit: int, before: int | None = None) -> Sequence[Recorded]:
        """Of all streams: whoever looks wants to see what any process did."""
        if kind not in _PAGED:
            raise KeyError(kind)
        bound = _BEYOND if before is None else before
        return self._recorded(_LATEST, {"kind": kind, "before": bound, "limit": limit})

    def _recorded(
        self, query: LiteralString, values: Sequence[object] | Mapping[str, object]
    ) -> Sequence[Recorded]:
        rows = self._connection.execute(query, values).fetchall()
        return [
            Recorded(sequence, journal_rows.read(journal_rows.Stored._make(columns)))
            for sequence, *columns in rows
        ]

    def exported(self) -> int:
        return self._state()[0]

    def mark_exported(self, sequence: int) -> None:
        last = self._state()[1]
        if sequence > last:
            raise ValueError(f"the journal ends at {last}: {sequence} cannot have been exported")
        self._connection.execute(_MARK_EXPORTED, (sequence, self._stream))

    def prune(
        self,
        now: datetime,
        retention: timedelta,
        *,
        keep_exported: timedelta | None = None,
        limit: int = 10_000,
    ) -> int:
        """Of all streams: those of processes that are gone have nobody else."""
        ended = to_microseconds(now - retention)
        exported_ended = ended
        if keep_exported is not None:
            exported_ended = max(ended, to_microseconds(now - keep_exported))
        gone = 0
        for stream in streams(self._connection):
            if gone < limit:
                gone += self._prune(stream.number, ended, exported_ended, limit - gone)
        return gone

    def _prune(self, stream: int, ended: int, exported_ended: int, limit: int) -> int:
        exported = self._state(stream)[0]
        last = None
        for sequence, at in self._connection.execute(_OLDEST, (stream, limit)).fetchall():
            if at > (exported_ended if sequence <= exported else ended):
                break
            last = sequence
        if last is None:
            return 0
        self._connection.execute(_MARK_PRUNED, (last, stream))
        return self._connection.execute(_DELETE, (stream, last)).rowcount

    def _state(self, stream: int | None = None) -> tuple[int, int]:
        found = self._connection.execute(
            _STATE, (self._stream if stream is None else stream,)
        ).fetchone()
        if found is None:
            raise ValueError(f"there is no journal stream {stream or self._stream}")
        return found[0], found[1]
