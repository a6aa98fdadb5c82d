"""The queues of a broker in an embedded store: opening, ordering submissions, reading, closing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from threading import local
from typing import TypeVar

from gridpost.core.journal import Identity
from gridpost.core.ports import Clock, Journal
from gridpost.core.queues import (
    Capabilities,
    Done,
    Dropped,
    Octets,
    Operation,
    Put,
    Queued,
    QueueState,
    Released,
    Remove,
    Space,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.sqlite import database
from gridpost.stores.sqlite.faults import refusal_of
from gridpost.stores.sqlite.journal import SqliteJournal
from gridpost.stores.sqlite.queues import reading, upkeep
from gridpost.stores.sqlite.queues.committer import Committer, Observer, Submission
from gridpost.stores.sqlite.queues.files import Files, Staged
from gridpost.stores.sqlite.queues.schema import MIGRATIONS
from gridpost.stores.sqlite.queues.space import SpaceWatch
from gridpost.stores.sqlite.queues.staging import Staging
from gridpost.stores.sqlite.queues.writer import HandedOut

T = TypeVar("T")
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What an operator may tune."""

    file_threshold: int = 256 * 1024
    """Bodies above this many octets are kept in files."""
    max_group: int = 512
    """How many submissions may share one commit."""
    max_group_octets: int = 8 * MIB
    """Bodies that may share one commit, and one file."""
    company: timedelta = timedelta(milliseconds=6)
    """How long a large body waits for those that its producer is sending already."""
    min_free: int = 256 * MIB
    """Below this much free space on the disk no new message is taken."""
    max_used: int = 0
    """Above this much in the store no new message is taken; 0: only the disk counts."""
    hard_limit: int = 0
    """The database never grows beyond this, whatever happens; 0: as far as the disk goes."""


def _unobserved(seconds: float, operations: int) -> None:
    """Nobody asked."""


class SqliteQueueStore:
    """core.queues.QueueStore."""

    capabilities = Capabilities()
    trouble: Refusal | None = None

    def __init__(
        self,
        folder: Path,
        opened: database.Opened,
        files: Files,
        clock: Clock,
        settings: QueueSettings,
        resources: ExitStack,
        observe: Observer | None = None,
    ) -> None:
        """Use `open`."""
        self.identity: Identity = opened.identity
        self._folder = folder
        self._files = files
        self._clock = clock
        self._threshold = settings.file_threshold
        self._resources = resources
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="gridpost-files")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="gridpost-queue-reader")
        self._reading = local()
        self._sweep = 0
        self._handed_out: dict[str, int] = {}
        self._marking = False
        self._closed = False
        self._watch = SpaceWatch(
            folder, files, min_free=settings.min_free, max_used=settings.max_used
        )
        self._watch.measure(opened.connection, 0, 0)
        self._measuring: asyncio.Future[None] | None = None
        self._committer = Committer(
            opened.connection,
            files,
            clock.now,
            max_group=settings.max_group,
            max_octets=settings.max_group_octets,
            committed=self._watch.measure,
            reported=self._watch.taken,
            remove_files=lambda names: self._pool.submit(files.remove, names),
            observe=observe or _unobserved,
        )
        self._staging = Staging(
            files,
            threshold=settings.file_threshold,
            max_octets=settings.max_group_octets,
            company=settings.company.total_seconds(),
            forward=self._forward,
        )
        self._committer.start()

    @classmethod
    def open(
        cls,
        folder: Path,
        component: str,
        clock: Clock,
        settings: QueueSettings | None = None,
        observe: Observer | None = None,
    ) -> SqliteQueueStore:
        """Open the queues of a broker, or make them. Call it in the loop that will use them."""
        settings = settings or QueueSettings()
        resources = ExitStack()
        try:
            opened = database.open_folder(folder, component, resources, MIGRATIONS)
            # Random ids touch many pages: copying them back less often saves most of that.
            opened.connection.execute("PRAGMA wal_autocheckpoint = 16000")
            if settings.hard_limit:
                (page,) = opened.connection.execute("PRAGMA page_size").fetchone()
                limit = settings.hard_limit // page
                opened.connection.execute(f"PRAGMA max_page_count = {limit}")
            files = Files(opened.contents)
            resources.callback(files.close)
            files.sweep(reading.named_files(opened.connection))
            upkeep.count_interrupted(opened.connection)
        except BaseException:
            resources.close()
            raise
        return cls(folder, opened, files, clock, settings, resources, observe)

    def set_marks(self, *, min_free: int, max_used: int) -> None:
        """New marks count from the next look on."""
        self._watch.min_free = min_free
        self._watch.max_used = max_used

    @property
    def space(self) -> Space:
        return self._watch.look()

    # ------------------------------------------------------------ writing

    def submit(self, operations: Sequence[Operation], done: Done) -> None:
        if self._closed:
            raise RuntimeError("the store is closed")
        submission = Submission(operations, done, awaited=False)
        large = False
        puts = False
        for operation in operations:
            if type(operation) is not Remove or operation.awaited:
                submission.awaited = True
            if type(operation) is Put:
                puts = True
                submission.octets += operation.message.size
                submission.followed = operation.followed
                large = large or operation.message.size > self._threshold
        if puts:
            space = self._watch.look()
            if space.refusing:
                refusal = Refusal(Rule.STORE_FULL, f"no room for new messages: {space.reason}")
                self._loop.call_soon(done, refusal)
                self._measure_again()
                return
            self._watch.taking(submission.octets)
            if large or self._staging:
                self._staging.park(submission, large=large)
                return
        self._committer.submit(submission)

    def _measure_again(self) -> None:
        """Nothing else may be committed while we refuse, and room is counted after a commit."""
        if self._measuring is None or self._measuring.done():
            self._measuring = self._committer.run(lambda connection: None)
            # What the disk does not allow now is tried with the next refusal.
            self._measuring.add_done_callback(
                lambda future: future.cancelled() or future.exception()
            )

    def _forward(self, submission: Submission) -> None:
        if submission.refusal is None:
            self._committer.submit(submission)
        else:
            self._watch.taken(submission.octets)
            submission.done(submission.refusal)

    def handed_out(self, queue: str, number: int) -> None:
        if number > self._handed_out.get(queue, 0):
            self._handed_out[queue] = number
            if not self._marking and not self._closed:
                self._mark()

    def _mark(self) -> None:
        """One submission at a time: what is handed out meanwhile goes with the next."""
        self._marking = True
        marks, self._handed_out = self._handed_out, {}
        self._committer.submit(Submission((HandedOut(marks),), self._marked, awaited=False))

    def _marked(self, refusal: Refusal | None) -> None:
        # Where the disk is full a mark is lost; the next one is higher.
        self._marking = False
        if self._handed_out and not self._closed:
            self._mark()

    # ------------------------------------------------------------ queues

    async def queues(self) -> Sequence[QueueState]:
        return await self._read(reading.queues)

    async def create(self, queue: str) -> None:
        await self._committer.run(lambda connection: upkeep.create(connection, queue))

    async def remove(self, queue: str) -> bool:
        if self._staging.holds(queue):
            return False
        removed: bool = await self._committer.run(
            lambda connection: upkeep.remove(connection, queue)
        )
        return removed

    async def read(self, queue: str, after: int, limit: int, max_octets: int) -> Sequence[Queued]:
        return await self._read(
            lambda connection: reading.messages(connection, queue, after, limit, max_octets)
        )

    async def load(self, queue: str, number: int) -> Octets | None:
        work = partial(self._load, number)
        return await self._loop.run_in_executor(self._pool, self._read_now, work)

    def _load(self, number: int, connection: sqlite3.Connection) -> Octets | None:
        found = reading.body(connection, number)
        if not isinstance(found, Staged):
            return found
        content, damage = b"", None
        try:
            content = self._files.read(found)
        except Refusal as refusal:
            damage = refusal
        # A file becomes another's only after its row has gone: the row is looked at once more.
        if reading.body(connection, number) != found:
            return None
        if damage is not None:
            raise damage
        return content

    async def release(self, queue: str) -> Released:
        released: Released = await self._committer.run(
            lambda connection: upkeep.release(connection, queue)
        )
        return released

    # ------------------------------------------------------------ upkeep

    async def drop_expired(self, now: datetime, limit: int) -> Sequence[Dropped]:
        def drop(connection: sqlite3.Connection) -> tuple[Sequence[Dropped], list[str]]:
            dropped, unnamed = upkeep.drop_expired(connection, now, limit)
            return dropped, [name for name in unnamed if not self._files.undecided(name)]

        dropped, doomed = await self._committer.run(drop)
        if rest := self._files.spare(doomed):
            self._pool.submit(self._files.remove, rest)
        return list(dropped)

    async def forget(self, now: datetime) -> int:
        portion, self._sweep = self._sweep, (self._sweep + 1) % 256
        forgotten: int = await self._committer.run(
            lambda connection: upkeep.forget(connection, now, portion)
        )
        return forgotten

    async def journal(self, work: Callable[[Journal], T]) -> T:
        result: T = await self._committer.run(lambda connection: work(SqliteJournal(connection)))
        return result

    async def execute(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Something else of the component that is kept in the same database, durable on return."""
        result: T = await self._committer.run(work)
        return result

    async def ask(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._read(work)

    async def prune(self, now: datetime, retention: timedelta) -> int:
        return await self.journal(lambda journal: journal.prune(now, retention))

    async def probe(self) -> timedelta:
        started = self._loop.time()
        await self._committer.run(upkeep.probe)
        return timedelta(seconds=self._loop.time() - started)

    async def close(self) -> None:
        was_open, self._closed = not self._closed, True
        await self._staging.done()
        if was_open:
            with suppress(Refusal):
                await self._committer.run(upkeep.forget_handed_out)
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._committer.stop()
        self._reader.shutdown()
        self._staging.shutdown()
        self._pool.shutdown()
        self._resources.close()

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._loop.run_in_executor(self._reader, self._read_now, work)

    def _read_now(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._reading, "connection", None)
        if connection is None:
            connection = self._reading.connection = database.connect_reader(self._folder)
            self._resources.callback(connection.close)
        try:
            return work(connection)
        except (OSError, sqlite3.Error) as error:
            raise refusal_of(error) or error from error
