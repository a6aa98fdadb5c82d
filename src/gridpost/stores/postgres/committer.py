"""The one thread of a process that writes: it takes the work that is waiting and commits it together.

The law of this file: a caller hears of success only after the COMMIT that holds its work has
returned. When the connection breaks during a COMMIT, the mark that the transaction wrote first tells
what became of it; a caller is told of failure only when nothing was stored, or when that cannot be
found out in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.job import Job, deliverable, resolve
from gridpost.stores.postgres.faults import CONFLICTS, refusal_of
from gridpost.stores.postgres.journal import Stream, claim
from gridpost.stores.postgres.session import Connection, Session, connect
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.postgres.transaction import Transaction

Work = Callable[[Transaction], Any]

_TRIES = 3
"""How often a work is tried whose rows other processes want at the same time."""
_DOUBT_LOOK = 0.2


class _Job(Job):
    __slots__ = ("conflict",)

    def __init__(self, work: Work, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(work, loop)
        self.conflict = False


class _InDoubt(Exception):
    """The connection broke while a COMMIT was on its way."""


class Committer:
    """Owns the writing connection from `start` until the end of `stop`."""

    def __init__(
        self,
        settings: PostgresSettings,
        *,
        exclusive: bool,
        prepare: Callable[[Connection], None] | None = None,
    ) -> None:
        """`prepare` is called with every new writing connection, before it writes anything."""
        self._settings = settings
        self._more = prepare
        self._exclusive = exclusive
        self._me = str(uuid4())
        self._mark = 0
        self._stream: Stream | None = None
        self._session = Session(settings, prepare=self._prepare)
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        self._hurry = Event()
        self._lock = Lock()
        self._thread = Thread(target=self._serve, name="gridpost-pg-committer", daemon=True)

    def start(self) -> Stream:
        """Connect, claim what is ours, and serve. Blocks."""
        connection = self._begin()
        connection.execute("ROLLBACK")
        self._thread.start()
        return self.stream

    @property
    def stream(self) -> Stream:
        if self._stream is None:
            raise RuntimeError("the committer has not started")
        return self._stream

    def submit(self, work: Work) -> asyncio.Future[Any]:
        """Done when `work` is durable. Call it in the loop that waits."""
        job = _Job(work, asyncio.get_running_loop())
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
                self._hurry.set()
                self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        with suppress(psycopg.Error):
            connection, _ = self._session.begin("BEGIN")
            connection.execute("DELETE FROM commit_mark WHERE owner = %s", (self._me,))
            connection.execute("COMMIT")
        self._session.drop()

    # ------------------------------------------------------------ the thread

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            waiting = self._waiting(job)
            group = self._commit(waiting)
            for loser in (j for j in group if j.conflict):
                self._again(loser)
            resolve(group)
            if waiting.stopping:
                return

    def _waiting(self, first: _Job) -> _Waiting:
        return _Waiting(self._queue, first, self._settings.max_group)

    def _again(self, job: _Job) -> None:
        """By itself: then a deadlock with this process's other works is impossible."""
        for _ in range(_TRIES):
            job.conflict, job.error, job.result = False, None, None
            self._commit(iter((job,)))
            if not job.conflict:
                return

    def _commit(self, jobs: Iterator[_Job]) -> list[_Job]:
        """One transaction."""
        group: list[_Job] = []
        try:
            connection = self._begin()
            for job in jobs:
                # A caller that has gone away already needs nothing.
                if job.future.cancelled():
                    continue
                if group:
                    connection.execute("RELEASE SAVEPOINT work; SAVEPOINT work")
                group.append(job)
                self._execute(connection, job)
            self._end(connection)
        except _InDoubt as doubt:
            refusal = self._outcome(doubt.__cause__ or doubt)
            if refusal is not None:
                self._abandon(group, refusal)
        except Exception as error:
            # What still waits is answered too: it would have been part of this transaction.
            group.extend(job for job in jobs if not job.future.cancelled())
            self._session.drop()
            self._abandon(group, error)
        return group

    def _execute(self, connection: Connection, job: _Job) -> None:
        """One work in its own savepoint: what it raises undoes it alone."""
        try:
            job.result = job.work(Transaction(connection, self.stream, writing=True))
        except BaseException as error:
            connection.execute("ROLLBACK TO SAVEPOINT work")
            job.conflict = isinstance(error, CONFLICTS)
            job.error = refusal_of(error) or deliverable(error)

    def _begin(self) -> Connection:
        mark = self._mark + 1
        connection, marked = self._session.begin(
            f"BEGIN; UPDATE commit_mark SET mark = {mark}, at = now() "
            f"WHERE owner = '{self._me}' RETURNING mark; SAVEPOINT work"
        )
        if marked != (mark,):
            # Another process has cleaned up after us, who seemed to be dead.
            self._session.drop()
            raise Refusal(Rule.STORE_UNREACHABLE, "the connection to the database was too old")
        self._mark = mark
        return connection

    def _end(self, connection: Connection) -> None:
        try:
            answer = connection.execute("COMMIT").statusmessage
        except psycopg.OperationalError as error:
            self._session.drop()
            raise _InDoubt from error
        # A transaction that failed answers a COMMIT with ROLLBACK and no error.
        if answer != "COMMIT":
            raise Refusal(
                Rule.INTERNAL, "the database did not commit; nothing was stored", str(answer)
            )

    def _outcome(self, error: BaseException) -> Refusal | None:
        """Ask until the answer is certain: the mark is locked as long as the transaction lives."""
        until = monotonic() + self._settings.doubt_timeout.total_seconds()
        while True:
            try:
                with connect(self._settings) as connection:
                    found = connection.execute(
                        "SELECT mark FROM commit_mark WHERE owner = %s FOR UPDATE", (self._me,)
                    ).fetchone()
                return None if found == (self._mark,) else refusal_of(error)
            except (psycopg.OperationalError, Refusal) as failure:
                if monotonic() > until:
                    return Refusal(
                        Rule.STORE_UNREACHABLE,
                        "the database went away during a commit; "
                        "it is not known whether it was stored",
                        str(failure),
                    )
                self._hurry.wait(_DOUBT_LOOK)

    def _abandon(self, group: Iterable[_Job], error: BaseException) -> None:
        """The transaction failed as a whole: none of it happened, and everybody is told so."""
        for job in group:
            if job.error is None:
                job.result = None
                job.error = (
                    error
                    if isinstance(error, Refusal)
                    else refusal_of(error)
                    or Refusal(
                        Rule.INTERNAL, "the store could not commit; nothing was stored", repr(error)
                    )
                )

    def _prepare(self, connection: Connection) -> None:
        """Every new writing connection: the lock of an exclusive store, the stream, the mark."""
        if self._exclusive:
            _take_exclusively(connection, self._settings)
        if self._more is not None:
            self._more(connection)
        self._stream = claim(connection, self._stream)
        connection.execute(
            "INSERT INTO commit_mark (owner, mark, at) VALUES (%s, %s, now()) ON CONFLICT DO NOTHING",
            (self._me, self._mark),
        )


class _Waiting:
    """The jobs of one group as they come: nothing waits for a group to fill."""

    def __init__(self, queue: SimpleQueue[_Job | None], first: _Job, most: int) -> None:
        self._queue = queue
        self._next: _Job | None = first
        self._left = most
        self.stopping = False

    def __iter__(self) -> Iterator[_Job]:
        return self

    def __next__(self) -> _Job:
        job, self._next = self._next, None
        if job is None:
            if self._left <= 0 or self.stopping:
                raise StopIteration
            try:
                job = self._queue.get_nowait()
            except Empty:
                raise StopIteration from None
            if job is None:
                self.stopping = True
                raise StopIteration
        self._left -= 1
        return job


def _take_exclusively(connection: Connection, settings: PostgresSettings) -> None:
    """Locked until the connection ends, however it ends; what we write goes over this connection."""
    try:
        with connection.transaction():
            connection.execute(
                sql.SQL("SET LOCAL lock_timeout = {}").format(
                    sql.Literal(round(settings.take_over.total_seconds() * 1000))
                )
            )
            connection.execute(
                "SELECT pg_advisory_lock(hashtextextended(%s, 0))", (f"{settings.schema} owner",)
            )
    except psycopg.errors.LockNotAvailable:
        raise Refusal(
            Rule.STORE_IN_USE,
            f"another process has the store open: {settings.place()}",
            "stop that process first, or give this component a schema of its own",
        ) from None
