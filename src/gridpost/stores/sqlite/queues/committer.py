"""The one thread that writes queues: what waits is committed together, then reported.

The law of this file: `done` is called only after the COMMIT that holds the operations has returned.
Nothing that somebody waits for waits here for a group to fill: while one commit is on its way to the
disk, the next gathers. (Large bodies whose producer sends on wait a moment before they come here, see
`staging`.) What comes in one turn of the event loop comes here together, to wake a thread costs more than
an operation; and what nobody waits for goes with the next that somebody does.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, NamedTuple

from gridpost.core.queues import Done, Put
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.sqlite.faults import refusal_of
from gridpost.stores.sqlite.queues.files import Files, Staged
from gridpost.stores.sqlite.queues.reading import unnamed
from gridpost.stores.sqlite.queues.space import shrink_log
from gridpost.stores.sqlite.queues.writer import Step, Writer


class Submission:
    """Operations that are committed together; `staged` runs beside `operations`."""

    __slots__ = ("awaited", "done", "followed", "octets", "operations", "refusal", "staged")

    def __init__(self, operations: Sequence[Step], done: Done, *, awaited: bool = True) -> None:
        self.operations = operations
        self.done = done
        self.awaited = awaited
        self.followed = False
        self.staged: list[Staged | None] = [None] * len(operations)
        self.refusal: Refusal | None = None
        self.octets = 0

    @property
    def puts(self) -> bool:
        return any(type(operation) is Put for operation in self.operations)


class Work:
    """Something else that writes, in a transaction of its own."""

    __slots__ = ("future", "work")

    def __init__(self, work: Callable[[sqlite3.Connection], Any], future: Any) -> None:
        self.work = work
        self.future = future


class _Committed(NamedTuple):
    """A transaction that is safe, and the files that a message of it has left."""

    left: set[str]
    seconds: float
    operations: int


_STOP: Final = object()
_PATIENCE: Final = 0.005
"""Seconds that something nobody waits for waits for company."""
Observer = Callable[[float, int], None]
"""Told after each commit how long it took and how many operations it held."""


class Committer:
    """Owns the writing connection from `start` until the end of `stop`."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        files: Files,
        now: Callable[[], datetime],
        *,
        max_group: int,
        max_octets: int,
        committed: Callable[[sqlite3.Connection, int, int], None],
        reported: Callable[[int], None],
        remove_files: Callable[[list[str]], object],
        observe: Observer,
    ) -> None:
        self.writer = Writer(connection)
        self._connection = connection
        self._files = files
        self._now = now
        self._max_group = max_group
        self._max_octets = max_octets
        self._committed = committed
        self._reported = reported
        self._remove_files = remove_files
        self._observe = observe
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._turn: list[Submission] = []
        self._pending: asyncio.Handle | None = None
        self._patient: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._serve, name="gridpost-queues", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, submission: Submission) -> None:
        """In the order of the calls."""
        self._turn.append(submission)
        if submission.awaited or len(self._turn) >= self._max_group:
            if self._pending is None:
                self._pending = self._loop.call_soon(self._hand_over)
        elif self._patient is None:
            self._patient = self._loop.call_later(_PATIENCE, self._hand_over)

    def _hand_over(self) -> None:
        for handle in (self._pending, self._patient):
            if handle is not None:
                handle.cancel()
        self._pending = self._patient = None
        if self._turn:
            turn, self._turn = self._turn, []
            self._queue.put(turn)

    def run(self, work: Callable[[sqlite3.Connection], Any]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._hand_over()
        self._queue.put(Work(work, future))
        return future

    def stop(self) -> None:
        """Return when everything that was submitted is done. Blocks."""
        self._queue.put(_STOP)
        self._thread.join()

    # ------------------------------------------------------------ in the thread

    def _serve(self) -> None:
        waiting: deque[Submission] = deque()
        while True:
            item = self._gather(waiting)
            while waiting:
                self._commit_group(self._next_group(waiting))
                if item is None:
                    break
            if item is _STOP:
                return
            if item is not None:
                self._execute(item)

    def _gather(self, waiting: deque[Submission]) -> Any:
        """All submissions that have come, up to something else, which is returned."""
        while True:
            try:
                item = self._queue.get(block=not waiting)
            except Empty:
                return None
            if type(item) is not list:
                return item
            waiting.extend(item)

    def _next_group(self, waiting: deque[Submission]) -> list[Submission]:
        group: list[Submission] = []
        octets = 0
        while waiting and len(group) < self._max_group and octets < self._max_octets:
            group.append(waiting.popleft())
            octets += group[-1].octets
        return group

    def _commit_group(self, group: list[Submission]) -> None:
        committed = _Committed(set(), 0.0, 0)
        failed = False
        try:
            committed = self._transaction(group)
        except Exception as error:
            failed = True
            refusal = self._abandon(error)
            rest = [submission for submission in group if not submission.puts]
            full = refusal.rule is Rule.STORE_FULL
            for submission in group:
                submission.refusal = refusal
            if full and rest and len(rest) < len(group):
                # What makes room must not fail together with what needs it.
                try:
                    committed = self._transaction(rest)
                except Exception as second:
                    self._abandon(second)
                else:
                    for submission in rest:
                        submission.refusal = None
        self._drop_files(group, committed.left, failed=failed)
        self._tell(self._report, group, committed)

    def _drop_files(self, group: list[Submission], left: set[str], *, failed: bool) -> None:
        """Let go of the files of which no body is named by a row, or may come to be."""
        decided = [one for submission in group for one in submission.staged if one is not None]
        if decided:
            self._files.decide(decided)
            left |= {one.name for one in decided}
        gone = [name for name in left if not self._files.undecided(name)]
        if not gone:
            return
        doomed = unnamed(self._connection, gone)
        # A disk that failed may yet keep what was taken back: such a file is not written over.
        rest = doomed if failed else self._files.spare(doomed)
        if rest:
            self._remove_files(rest)

    def _transaction(self, group: list[Submission]) -> _Committed:
        started = time.perf_counter()
        self._begin()
        pairs = [
            pair
            for submission in group
            for pair in zip(submission.operations, submission.staged, strict=True)
        ]
        left = self.writer.apply(pairs, self._now())
        if any(staged is not None for _, staged in pairs):
            self._files.sync_names()
        self._commit()
        octets = sum(submission.octets for submission in group)
        self._committed(self._connection, len(pairs), octets)
        return _Committed(left, time.perf_counter() - started, len(pairs))

    def _report(self, group: list[Submission], committed: _Committed) -> None:
        """In the loop, and in one call: to wake it costs more than the news."""
        if committed.operations:
            self._observe(committed.seconds, committed.operations)
        self._reported(sum(submission.octets for submission in group))
        for submission in group:
            submission.done(submission.refusal)

    def _abandon(self, error: Exception) -> Refusal:
        """The transaction failed as a whole: none of it happened."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        refusal = refusal_of(error) or Refusal(
            Rule.INTERNAL, "the store could not commit; nothing was stored", repr(error)
        )
        if refusal.rule is Rule.STORE_FULL:
            # A log that begins anew may be all the room that what comes next needs.
            shrink_log(self._connection)
        self.writer.reset()
        return refusal

    def _execute(self, item: Work) -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            self._begin()
            result = item.work(self._connection)
            self._commit()
            self._committed(self._connection, 1, 0)
        except Exception as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            failure = refusal_of(error) or error
        self.writer.reset()
        self._tell(_resolve, item.future, result, failure)

    def _tell(self, what: Callable[..., object], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *arguments)
        except RuntimeError:
            # The loop was closed: nobody waits any more, and the work is safe.
            return

    # -- the steps of a group, each of which may be the last before a crash

    def _begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def _commit(self) -> None:
        self._connection.execute("COMMIT")


def _resolve(future: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
