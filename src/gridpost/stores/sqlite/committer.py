"""The one thread that writes: it takes the work that is waiting and commits it together.

The law of this file: a caller hears of success only after the COMMIT that holds its work has
returned. Nothing ever waits for a group to fill; while one commit is on its way to the disk, the
next group gathers by itself.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.job import Job, deliverable, resolve
from gridpost.stores.sqlite.bodies import Bodies, WorkFiles
from gridpost.stores.sqlite.faults import refusal_of
from gridpost.stores.sqlite.group import Group
from gridpost.stores.sqlite.lately import LatelyEnqueued
from gridpost.stores.sqlite.unit import SqliteUnit

Work = Callable[[SqliteUnit], Any]


class _Job(Job):
    __slots__ = ("files",)

    def __init__(self, work: Work, loop: asyncio.AbstractEventLoop, files: WorkFiles) -> None:
        super().__init__(work, loop)
        self.files = files


class _TransactionLost(Exception):
    """SQLite has rolled the whole transaction back in the middle of a work."""


class _Spoilt(Exception):
    """A work raised after it had changed something, and there is no savepoint to go back to."""


class Committer:
    """Owns the writing connection from `start` until the end of `stop`."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        bodies: Bodies,
        *,
        max_group: int,
        max_bytes: int,
        remove_files: Callable[[list[str]], object],
        savepoints: bool = False,
    ) -> None:
        """`savepoints`: one for each work, because works must not run again when one of them fails.

        The first of a transaction needs none: when it fails, nothing else goes with the transaction.
        """
        self._connection = connection
        self._bodies = bodies
        self._max_group = max_group
        self._max_bytes = max_bytes
        self._remove_files = remove_files
        self._savepoints = savepoints
        self._is_first = False
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        self._lock = Lock()
        self.lately = LatelyEnqueued()
        self._group = Group(connection, self.lately)
        self._thread = Thread(target=self._serve, name="gridpost-committer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, work: Work) -> asyncio.Future[Any]:
        """Done when `work` is durable. Call it in the loop that waits."""
        job = _Job(work, asyncio.get_running_loop(), WorkFiles(self._bodies))
        with self._lock:
            if self._closed:
                raise RuntimeError("the store is closed")
            self._queue.put(job)
        return job.future

    def stop(self) -> None:
        """Return when everything that was submitted is done. Blocks: not for an event loop."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            stopping = self._commit_group(job)
            if stopping:
                return

    def _commit_group(self, first: _Job) -> bool:
        """One transaction, from the first job that waits. Was the stop seen behind its last job?"""
        group: list[_Job] = []
        stopping = False
        try:
            self._begin()
            self._group.begin()
            self._is_first = True
            try:
                stopping = self._gather(first, group)
            except _Spoilt:
                self._start_over(group)
            self._group.flush()
            self._commit()
        except Exception as error:
            self._abandon(group or [first], error)
        else:
            self.lately.committed()
            doomed = [name for job in group for name in job.files.finished() if job.error is None]
            if doomed:
                self._remove_files(doomed)
        self._resolve(group or [first])
        return stopping

    def _gather(self, first: _Job, group: list[_Job]) -> bool:
        """Whatever waits, while there is room. Was the stop among it?"""
        job: _Job | None = first
        size = 0
        while job is not None:
            # A caller that has gone away already needs nothing.
            if not job.future.cancelled():
                group.append(job)
                self._execute(job)
                size += job.files.bytes
            if len(group) >= self._max_group or size >= self._max_bytes:
                return False
            try:
                job = self._queue.get_nowait()
            except Empty:
                return False
        return True

    def _execute(self, job: _Job) -> None:
        if not self._savepoints:
            self._execute_plainly(job)
        elif self._is_first:
            self._is_first = False
            self._execute_first(job)
        else:
            self._execute_apart(job)

    def _execute_first(self, job: _Job) -> None:
        """Whatever it raises undoes the transaction, which holds nothing else; another one follows."""
        self._group.begin_work()
        try:
            job.result = job.work(SqliteUnit(self._group, job.files))
        except BaseException as error:
            if not self._connection.in_transaction:
                raise _TransactionLost from error
            self._connection.execute("ROLLBACK")
            self._group.forget()
            job.files.undo()
            job.error = refusal_of(error) or deliverable(error)
            self._connection.execute("BEGIN IMMEDIATE")
            self._group.begin()

    def _execute_plainly(self, job: _Job) -> None:
        """One work without a savepoint, for which SQLite would keep every page that it changes.

        Works that raise do so before they change anything, as a rule.
        """
        group, connection = self._group, self._connection
        group.begin_work()
        changes = connection.total_changes
        try:
            job.result = job.work(SqliteUnit(group, job.files))
        except BaseException as error:
            if not connection.in_transaction:
                raise _TransactionLost from error
            if connection.total_changes != changes or group.has_rows_of_work:
                raise _Spoilt from error
            job.files.undo()
            job.error = refusal_of(error) or deliverable(error)

    def _start_over(self, group: Iterable[_Job]) -> None:
        """The same works in a new transaction, each in a savepoint of its own."""
        self._connection.execute("ROLLBACK")
        self._group.forget()
        for job in group:
            job.files.undo()
            job.files = WorkFiles(self._bodies)
            job.result = job.error = None
        self._begin()
        self._group.begin()
        for job in group:
            self._execute_apart(job)

    def _execute_apart(self, job: _Job) -> None:
        """One work in its own savepoint: what it raises undoes it alone."""
        execute = self._connection.execute
        execute("SAVEPOINT work")
        self._group.begin_work()
        try:
            job.result = job.work(SqliteUnit(self._group, job.files))
        except BaseException as error:
            if not self._connection.in_transaction:
                raise _TransactionLost from error
            execute("ROLLBACK TO work")
            self._group.undo_work()
            job.files.undo()
            job.error = refusal_of(error) or deliverable(error)
        execute("RELEASE work")

    def _abandon(self, group: Iterable[_Job], error: Exception) -> None:
        """The transaction failed as a whole: none of it happened, and everybody is told so."""
        self._group.forget()
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        cause = (
            error.__cause__ if isinstance(error, _TransactionLost) and error.__cause__ else error
        )
        for job in group:
            if job.error is None:
                job.files.undo()
                job.result = None
                job.error = refusal_of(cause) or Refusal(
                    Rule.INTERNAL, "the store could not commit; nothing was stored", repr(cause)
                )

    # -- the steps of a group, each of which may be the last before a crash

    def _begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def _commit(self) -> None:
        self._connection.execute("COMMIT")

    def _resolve(self, group: Iterable[_Job]) -> None:
        resolve(group)
