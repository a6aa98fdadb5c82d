"""Exporting an embedded journal: what was committed goes to the landing folder, in order, once.

The exporter is another process than the component. It reads beside it, and writes one number back:
how far it came. When it dies between a segment and that number, the segment in the landing folder
tells it; what comes twice all the same is dropped by the pipeline.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gridpost.core.journal import Identity
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.segment import Manifest, SegmentName
from gridpost.stores.process_time import cpu_seconds
from gridpost.stores.segments.columns import Numbered, to_table
from gridpost.stores.segments.landing import Landing
from gridpost.stores.sqlite import database
from gridpost.stores.sqlite.faults import refusing
from gridpost.stores.sqlite.journal import SqliteJournal
from gridpost.stores.values import to_microseconds

# Below the oldest row that may be pruned while we read: WAL gives each read one state.
_LAST = "SELECT coalesce(max(sequence), 0) FROM journal"
_READ = (
    "SELECT sequence, at, kind, schema_version, payload FROM journal"
    " WHERE sequence > ? ORDER BY sequence LIMIT ?"
)
LOCK = "export.lock"
_OCTETS = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Export:
    """What one run did."""

    identity: Identity
    segments: tuple[Manifest, ...]
    lost: tuple[tuple[int, int], ...]
    """Ranges that retention had removed before they were exported."""
    cpu_seconds: float

    @property
    def rows(self) -> int:
        return sum(manifest.rows for manifest in self.segments)


class Exporter:
    def __init__(
        self, store: Path, landing: Landing, now: Callable[[], datetime], rows: int = 250_000
    ) -> None:
        """`rows` is the most that one segment holds."""
        if not (store / database.DATABASE).is_file():
            raise Refusal(Rule.USAGE, f"{store} holds no store: has the component ever run?")
        self._store = store
        self._landing = landing
        self._now = now
        self._rows = rows

    def run(self) -> list[Export]:
        """Everything that is committed now."""
        return [self._run()]

    def _run(self) -> Export:
        started = time.process_time()
        segments: list[Manifest] = []
        lost: list[tuple[int, int]] = []
        with self._alone(), self._reading() as reader:
            identity = _identity(reader)
            after = SqliteJournal(reader).exported()
            # What comes while this runs waits for the next time: under load it would never end, and
            # each of its segments would hold next to nothing.
            (end,) = reader.execute(_LAST).fetchone()
            if after < end:
                after = max(after, self._landing.last(identity))
            while after < end and (rows := self._read(reader, after)):
                first, last = rows[0][0], rows[-1][0]
                if first != after + 1:
                    lost.append((after + 1, first - 1))
                name = SegmentName(identity.component, identity.instance, first, last)
                table = to_table(identity, rows)
                segments.append(self._landing.put(name, table, to_microseconds(self._now())))
                after = last
                self._mark(after)
        return Export(identity, tuple(segments), tuple(lost), time.process_time() - started)

    def _read(self, reader: sqlite3.Connection, after: int) -> list[Numbered]:
        found: list[Numbered] = []
        octets = 0
        with refusing(), closing(reader.execute(_READ, (after, self._rows))) as cursor:
            for row in cursor:
                found.append(row)
                octets += len(row[4])
                if octets > _OCTETS:
                    break
        return without_hole(found)

    def _mark(self, sequence: int) -> None:
        """The only write; the component waits for it no longer than for a commit of its own."""
        with refusing():
            connection = sqlite3.connect(
                self._store / database.DATABASE, timeout=30, isolation_level=None
            )
            with closing(connection):
                connection.execute("BEGIN IMMEDIATE")
                SqliteJournal(connection).mark_exported(sequence)
                connection.execute("COMMIT")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Two exporters of one store take turns: the second one begins where the first one ended."""
        handle = os.open(self._store / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with refusing():
            connection = database.connect_reader(self._store)
        with closing(connection):
            yield connection


def _identity(reader: sqlite3.Connection) -> Identity:
    with refusing():
        meta = dict(reader.execute("SELECT name, value FROM meta").fetchall())
    return Identity(meta["component"], meta["instance"])


def without_hole(rows: list[Numbered]) -> list[Numbered]:
    """Up to the first hole: inside of a segment it would make the range in the name a lie."""
    if not rows or rows[-1][0] - rows[0][0] + 1 == len(rows):
        return rows
    first = rows[0][0]
    return [row for at, row in enumerate(rows) if row[0] == first + at]


def component_cpu_seconds(store: Path) -> float | None:
    """What the process that has this store open has used so far; None: nobody has."""
    try:
        handle = os.open(store / database.LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(handle, 32, 0).decode("ascii").strip()
    else:
        return None
    finally:
        os.close(handle)
    return cpu_seconds(pid)


def lower_priority() -> None:
    """The component comes first, whatever there is to export."""
    os.nice(19)
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
