"""Exporting journals that are kept in PostgreSQL: one stream for each process that shares a component.

The row of a stream is locked until a transaction that took numbers of it ends: what can be read has
no gap and no row that commits later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from gridpost.core.journal import Identity
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.segment import Manifest, SegmentName
from gridpost.stores.postgres.faults import refusing
from gridpost.stores.postgres.journal import PostgresJournal, Stream, streams
from gridpost.stores.postgres.session import Connection, connect
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.segments.columns import Numbered, to_table
from gridpost.stores.segments.export import Export, without_hole
from gridpost.stores.segments.landing import Landing
from gridpost.stores.values import to_microseconds

_COMPONENT = "SELECT value FROM meta WHERE name = 'component'"
_ALONE = (
    "SELECT pg_advisory_lock(hashtextextended('gridpost journal export ' || current_schema(), 0))"
)
_LAST = "SELECT coalesce(max(sequence), 0) FROM journal WHERE stream = %s"
_READ = """
    SELECT sequence, at, kind, schema_version, payload FROM journal
    WHERE stream = %s AND sequence > %s ORDER BY sequence LIMIT %s
"""


class PostgresExporter:
    def __init__(
        self,
        settings: PostgresSettings,
        landing: Landing,
        now: Callable[[], datetime],
        rows: int = 50_000,
    ) -> None:
        """`rows` is the most that one segment holds."""
        self._settings = settings
        self._landing = landing
        self._now = now
        self._rows = rows

    def run(self) -> list[Export]:
        """Everything that is committed now, of every stream, also of processes that are gone."""
        with refusing(), connect(self._settings) as connection:
            # Held until the connection ends: exporters of one database take turns.
            connection.execute(_ALONE)
            found = connection.execute(_COMPONENT).fetchone()
            if found is None:
                raise Refusal(
                    Rule.USAGE, "the database holds no store: has the component ever run?"
                )
            return [self._stream(connection, str(found[0]), s) for s in streams(connection)]

    def _stream(self, connection: Connection, component: str, stream: Stream) -> Export:
        started = time.process_time()
        identity = Identity(component, stream.instance)
        journal = PostgresJournal(connection, stream)
        segments: list[Manifest] = []
        lost: list[tuple[int, int]] = []
        after = journal.exported()
        # What comes while this runs waits for the next time, as in `Exporter`.
        found = connection.execute(_LAST, (stream.number,)).fetchone()
        end = 0 if found is None else int(found[0])
        if after < end:
            after = max(after, self._landing.last(identity))
        while after < end and (rows := self._read(connection, stream, after)):
            first, last = rows[0][0], rows[-1][0]
            if first != after + 1:
                lost.append((after + 1, first - 1))
            name = SegmentName(component, stream.instance, first, last)
            table = to_table(identity, rows)
            segments.append(self._landing.put(name, table, to_microseconds(self._now())))
            after = last
            journal.mark_exported(after)
        return Export(identity, tuple(segments), tuple(lost), time.process_time() - started)

    def _read(self, connection: Connection, stream: Stream, after: int) -> list[Numbered]:
        found = connection.execute(_READ, (stream.number, after, self._rows)).fetchall()
        return without_hole(found)
