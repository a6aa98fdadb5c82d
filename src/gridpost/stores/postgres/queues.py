"""The queues of a broker in PostgreSQL, shared by several edges; the directory copy stays with each edge.

The row of a transfer is in the same commit as the transfer. Submissions, claims and give-backs go
through one line in their order, many to a commit. Refusals and what people do are written in the
edge's own journal, also while the database is away.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, TypeVar

import structlog
from psycopg import Notify

from gridpost.core.journal import TransferRow
from gridpost.core.ports import Clock, Journal
from gridpost.core.queues import (
    Capabilities,
    Done,
    Dropped,
    Hold,
    Octets,
    Operation,
    Put,
    Queued,
    QueueState,
    QueueStore,
    Record,
    Remove,
    Space,
    within,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres import queue_upkeep, queue_work
from gridpost.stores.postgres.edge import EdgeConnection
from gridpost.stores.postgres.queue_schema import BROKER_QUEUES
from gridpost.stores.postgres.queue_work import Answer, Claim, GiveBack, Step, Submission, Work
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.postgres.store import PostgresStore
from gridpost.stores.postgres.transaction import Transaction

T = TypeVar("T")
MIB = 1024 * 1024
log = structlog.get_logger(__name__)

_LOCK_OUT = "\nlock-out "
"""In front of a queue that is being removed; no code begins so."""
_VOID = frozenset({Rule.STORE_UNREACHABLE, Rule.LEASE_LOST, Rule.STORE_UNSAFE, Rule.STORE_ACCESS})
"""After these nothing is reported: the clients' connections are ended, and they send again."""
_WAITABLE = frozenset({Rule.STORE_UNREACHABLE})
_AT_ONCE = 2
"""Transactions on their way: one that commits, and one that is prepared meanwhile."""


@dataclass(frozen=True, slots=True)
class PostgresQueueSettings:
    """What an operator may tune."""

    prefetch: int = 100
    """Messages of one queue that an edge has at a time, at most."""
    window_octets: int = 4 * MIB
    """Of one queue: an edge takes fewer messages when they are large."""
    max_used: int = 0
    """Octets of all messages, from which on new ones are refused; 0: no limit but the disk."""
    batch: int = 500
    """Submissions in one transaction."""
    batch_octets: int = 16 * MIB
    look: timedelta = timedelta(seconds=1)
    """How often an edge looks whether another is dead."""
    retry: timedelta = timedelta(seconds=1)
    """Between attempts to reach the database."""
    removal: timedelta = timedelta(seconds=10)
    """How long a removal waits for other edges to let go of a queue."""


class _Feed:
    """What this edge has of one queue."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.leases: dict[int, Queued] = {}
        self.octets = 0
        self.wanted = 0
        self.deliver: Callable[[Queued], None] | None = None
        self.more = True
        """There may be messages that no edge has."""
        self.claiming = False

    def take(self, message: Queued) -> None:
        self.leases[message.number] = message
        self.octets += message.size

    def drop(self, number: int) -> None:
        message = self.leases.pop(number, None)
        if message is not None:
            self.octets -= message.size


class PostgresQueueStore:
    """core.queues.SharedQueueStore."""

    capabilities = Capabilities(shared=True)

    def __init__(
        self,
        local: QueueStore,
        database: PostgresSettings,
        clock: Clock,
        settings: PostgresQueueSettings | None = None,
        committed: Callable[[float, int], None] | None = None,
    ) -> None:
        """`local` keeps what is of this edge alone; `committed` is told how long commits took."""
        self.identity = local.identity
        self.settings = settings or PostgresQueueSettings()
        self._local = local
        self._database = database
        self._clock = clock
        self._committed = committed
        self._channel = "gridpost_" + sha256(database.schema.encode()).hexdigest()[:16]
        self._store: PostgresStore[Transaction] | None = None
        self._edge: int | None = None
        self._why: Refusal | None = _not_connected()
        self._connection = EdgeConnection(
            database,
            self._channel,
            f"{socket.gethostname()} {os.getpid()} {local.identity.instance}",
            taken=self._stood_up,
            told=self._told,
            lost=self._was_lost,
            retry=self.settings.retry,
        )
        self._line: deque[Step] = deque()
        self._on_the_way = 0
        self._flushing = False
        self._empty = asyncio.Event()
        self._empty.set()
        self._pid = 0
        self._used: set[str] = set()
        self._locked: set[str] = set()
        self._open_puts: dict[str, int] = defaultdict(int)
        self._feeds: dict[str, _Feed] = {}
        self._octets = 0
        self._max_used = self.settings.max_used
        self._full: Refusal | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._first: asyncio.Event = asyncio.Event()
        self._closed = False
        self._lost: Callable[[Refusal], None] = _nobody
        self._lock_out: Callable[[str], None] = _nobody

    # ------------------------------------------------------------ connecting

    async def serve(self, lost: Callable[[Refusal], None], lock_out: Callable[[str], None]) -> None:
        """Refuses a database that does not keep what it commits; waits for one that is away."""
        self._lost, self._lock_out = lost, lock_out
        try:
            await self._open()
        except Refusal as refusal:
            if refusal.rule not in _WAITABLE:
                raise
            self._why = refusal
            self._start(self._keep())
        else:
            self._start(self._keep())
            await self._first.wait()

    async def _open(self) -> None:
        self._store = await asyncio.to_thread(
            PostgresStore.open,
            self._database,
            self.identity.component,
            BROKER_QUEUES,
            _transaction,
        )

    async def _keep(self) -> None:
        while self._store is None:
            await asyncio.sleep(self.settings.retry.total_seconds())
            try:
                await self._open()
            except Refusal as refusal:
                self._why = refusal
                log.warning("no database", why=refusal.message, detail=refusal.details)
        self._start(self._look())
        await self._connection.run()

    def _stood_up(self, edge: int) -> None:
        self._edge, self._why = edge, None
        log.info("edge", number=edge)
        self._first.set()

    def _was_lost(self, refusal: Refusal) -> None:
        had, self._edge, self._why = self._edge, None, refusal
        self._used.clear()
        self._feeds.clear()
        self._first.set()
        if had is None:
            log.warning("no database", why=refusal.message, detail=refusal.details)
            return
        if not self._closed:
            self._lost(refusal)
        # Behind `lost`: connections have ended, and nobody is told of an outcome any more.
        line, self._line = list(self._line), deque()
        for step in line:
            self._void(step, refusal)
        if not self._on_the_way:
            self._empty.set()

    def _void(self, step: Step, refusal: Refusal) -> None:
        if isinstance(step, Submission):
            self._count(step, -1)
            if len(step.operations) > 1:
                # A transaction waits for its end, whatever it is.
                step.done(refusal)

    def _told(self, notify: Notify) -> None:
        if notify.payload.startswith(_LOCK_OUT):
            queue = notify.payload.removeprefix(_LOCK_OUT)
            if queue in self._used and queue not in self._locked:
                self._lock_out(queue)
        elif notify.pid != self._pid:
            self._ready(notify.payload)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self.settings.look.total_seconds())
            try:
                await self._bury()
            except Refusal as refusal:
                log.info("other edges not looked at", why=refusal.message)

    async def _bury(self) -> None:
        store, edge = self._store, self._edge
        if store is None or edge is None:
            return
        if not await store.read(lambda t: queue_work.dead_edges(t.connection, edge)):
            return
        freed = await store.run(lambda t: queue_work.bury(t.connection, self._channel, edge))
        log.warning("took over from a dead edge", messages=freed)
        for queue in freed:
            self._ready(queue)

    @property
    def trouble(self) -> Refusal | None:
        return self._why

    @property
    def space(self) -> Space:
        local, most = self._local.space, self._max_used
        reason = ""
        if most and self._octets >= most:
            reason = f"messages have {self._octets} octets, and {most} are allowed"
        elif self._full is not None:
            reason = self._full.message
        elif local.refusing:
            return local
        return Space(local.free, self._octets, refusing=bool(reason), reason=reason)

    def set_marks(self, *, min_free: int, max_used: int) -> None:
        """The first is of the edge's own disk, the second of the messages in the database."""
        self._local.set_marks(min_free=min_free, max_used=0)
        self._max_used = max_used

    # ------------------------------------------------------------ writing

    def submit(self, operations: Sequence[Operation], done: Done) -> None:
        if self._closed:
            raise RuntimeError("the store is closed")
        if all(isinstance(o, Record) and not isinstance(o.row, TransferRow) for o in operations):
            self._local.submit(operations, done)
            return
        if self.space.refusing and any(isinstance(o, Put) for o in operations):
            refusal = Refusal(Rule.STORE_FULL, f"no room for new messages: {self.space.reason}")
            asyncio.get_running_loop().call_soon(done, refusal)
            return
        submission = Submission(tuple(operations), done)
        self._count(submission, 1)
        self._enqueue(submission)

    def _count(self, submission: Submission, by: int) -> None:
        for operation in submission.operations:
            if isinstance(operation, Put):
                self._open_puts[operation.queue] += by

    def _enqueue(self, step: Step) -> None:
        if self._edge is None:
            self._void(step, self._why or _not_connected())
            return
        self._line.append(step)
        self._empty.clear()
        if not self._flushing and self._on_the_way < _AT_ONCE:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Everything that came in this turn of the loop goes together."""
        self._flushing = False
        while self._line and self._on_the_way < _AT_ONCE and self._edge is not None:
            self._on_the_way += 1
            self._start(self._commit(self._portion(), self._edge))

    def _portion(self) -> list[Step]:
        steps: list[Step] = []
        octets = 0
        while self._line and len(steps) < self.settings.batch:
            octets += _octets(self._line[0])
            if steps and octets > self.settings.batch_octets:
                break
            steps.append(self._line.popleft())
        return steps

    async def _commit(self, steps: list[Step], edge: int) -> None:
        loop = asyncio.get_running_loop()
        now, used, started = self._clock.now(), frozenset(self._used), loop.time()
        try:
            answer = await self._reached().run(
                lambda t: Work(t, edge, self._channel, now).run(steps, used)
            )
        except Exception as error:
            if not isinstance(error, Refusal):
                log.exception("commit")
                error = Refusal(Rule.INTERNAL, "the database did not take it", repr(error))
            self._failed(steps, edge, error)
        else:
            if self._committed is not None:
                self._committed(loop.time() - started, len(steps))
            self._done(steps, edge, answer)
        finally:
            self._on_the_way -= 1
            if not self._line and not self._on_the_way:
                self._empty.set()
            self._flush()

    def _failed(self, steps: Sequence[Step], edge: int, refusal: Refusal) -> None:
        """None of the steps happened, or that is not known."""
        if refusal.rule in _VOID:
            if edge == self._edge:
                self._connection.drop(refusal)
                # At once: nothing may be told to a client after this.
                self._was_lost(refusal)
            for step in steps:
                self._void(step, refusal)
            return
        if refusal.rule is Rule.STORE_FULL:
            self._full = refusal
        for step in steps:
            if isinstance(step, Submission):
                self._count(step, -1)
                step.done(refusal)
            elif isinstance(step, Claim):
                self._start(self._claim_again(step))
            elif edge == self._edge:
                # What cannot be given back alone is given back with everything else.
                self._connection.drop(refusal)
                self._was_lost(refusal)

    async def _claim_again(self, claim: Claim) -> None:
        await asyncio.sleep(self.settings.retry.total_seconds())
        feed = self._feeds.get(claim.queue)
        if feed is not None and feed is claim.by:
            feed.claiming, feed.more = False, True
            self._claim(feed)

    def _done(self, steps: Sequence[Step], edge: int, answer: Answer) -> None:
        self._pid, self._full = answer.pid, None
        current = edge == self._edge
        if current:
            self._used |= answer.joined
        ready: set[str] = set()
        for step in steps:
            if isinstance(step, Submission):
                self._submitted(step, answer, ready)
            elif isinstance(step, Claim) and current:
                self._claimed(step, *answer.claimed[id(step)])
            elif isinstance(step, GiveBack):
                ready.add(step.queue)
        for queue in ready:
            self._ready(queue)

    def _submitted(self, submission: Submission, answer: Answer, ready: set[str]) -> None:
        self._count(submission, -1)
        refusal = answer.refused.get(id(submission))
        if refusal is None:
            for operation in submission.operations:
                self._took_effect(operation, answer, ready)
        submission.done(refusal)

    def _took_effect(self, operation: Operation, answer: Answer, ready: set[str]) -> None:
        if isinstance(operation, Put):
            number = answer.numbers.get(id(operation))
            if number is not None:
                operation.message.number = number
                self._octets += operation.message.size
                ready.add(operation.queue)
        elif not isinstance(operation, Record):
            feed = self._feeds.get(operation.queue)
            if feed is not None and isinstance(operation, (Remove, Hold)):
                feed.drop(operation.message.number)
                self._octets = max(0, self._octets - operation.message.size)
                self._claim(feed)

    # ------------------------------------------------------------ reading

    def subscribe(self, queue: str, credit: int, deliver: Callable[[Queued], None]) -> None:
        if self._edge is None:
            return
        feed = self._feeds.get(queue)
        if feed is None:
            feed = self._feeds[queue] = _Feed(queue)
        feed.wanted, feed.deliver = min(credit, self.settings.prefetch), deliver
        self._claim(feed)

    def _ready(self, queue: str) -> None:
        """Somebody put messages into the queue, or let go of some."""
        feed = self._feeds.get(queue)
        if feed is not None:
            feed.more = True
            self._claim(feed)

    def _claim(self, feed: _Feed) -> None:
        room = self.settings.window_octets - feed.octets
        wanted = feed.wanted - len(feed.leases)
        if feed.claiming or not feed.more or feed.deliver is None or wanted <= 0:
            return
        if room > 0 or not feed.leases:
            feed.claiming, feed.more = True, False
            self._enqueue(Claim(feed.queue, wanted, max(1, room), feed))

    def _claimed(self, claim: Claim, found: Sequence[Queued], more: bool) -> None:
        feed = self._feeds.get(claim.queue)
        if feed is None or feed is not claim.by:
            # Let go of meanwhile: the give-back came behind the claim.
            return
        feed.claiming = False
        feed.more |= more
        for message in found:
            feed.take(message)
        for message in found:
            if feed.deliver is not None:
                feed.deliver(message)
        self._claim(feed)

    def unsubscribe(self, queue: str) -> None:
        if self._feeds.pop(queue, None) is not None:
            self._enqueue(GiveBack(queue))

    async def waiting(self, queue: str) -> int:
        feed = self._feeds.get(queue)
        if feed is not None and feed.claiming:
            return 1
        found = await self._reached().read(lambda t: queue_upkeep.waiting(t.connection, queue))
        return max(found, int(feed is not None and feed.claiming))

    async def read(self, queue: str, after: int, limit: int, max_octets: int) -> Sequence[Queued]:
        """What is read is claimed, until it is removed or the queue is let go of."""
        feed = self._feeds.get(queue)
        if feed is None:
            feed = self._feeds[queue] = _Feed(queue)
        known = [m for number, m in sorted(feed.leases.items()) if number > after]
        room = max_octets - sum(message.size for message in known)
        if feed.deliver is None and len(known) < limit and (room > 0 or not known):
            edge, now = self._standing(), self._clock.now()
            claim = Claim(queue, limit - len(known), max(1, room))
            answer = await self._run(
                lambda t: Work(t, edge, self._channel, now).run((claim,), frozenset())
            )
            for message in answer.claimed[id(claim)][0]:
                feed.take(message)
        found = [m for number, m in sorted(feed.leases.items()) if number > after][:limit]
        return within(found, max_octets)

    async def load(self, queue: str, number: int) -> Octets | None:
        feed = self._feeds.get(queue)
        message = feed.leases.get(number) if feed is not None else None
        return None if message is None else message.content

    # ------------------------------------------------------------ queues

    def handed_out(self, queue: str, number: int) -> None:
        """What an edge has claimed counts as delivered in vain when the edge dies."""

    async def queues(self) -> Sequence[QueueState]:
        """All queues of the broker, whichever edge serves them."""
        if self._store is None or self._edge is None:
            return ()
        states, ready = await self._store.read(lambda t: queue_upkeep.states(t.connection))
        self._octets = sum(state.octets for state in states)
        for queue in ready:
            # Told of already; unless what another edge was about to take came back.
            self._ready(queue)
        return states

    async def create(self, queue: str) -> None:
        if queue in self._used:
            return
        edge = self._standing()
        if queue in self._locked:
            raise Refusal(Rule.QUEUE_IN_USE, f"the queue {queue} is being removed")

        def work(transaction: Transaction) -> None:
            queue_work.require_edge(transaction.connection, edge)
            queue_work.join(transaction.connection, queue, edge)

        await self._run(work)
        if edge == self._edge:
            self._used.add(queue)

    async def leave(self, queue: str) -> None:
        if queue in self._feeds or self._open_puts.get(queue) or queue not in self._used:
            return
        edge = self._standing()
        self._used.discard(queue)
        await self._run(lambda t: queue_work.leave(t.connection, queue, edge))

    async def remove(self, queue: str) -> bool:
        """Lock out consumers and producers of all edges, then remove the queue if it is empty."""
        if self._open_puts.get(queue):
            return False
        edge = self._standing()
        self.unsubscribe(queue)
        self._locked.add(queue)
        try:
            if not await self._run(lambda t: queue_work.lock_out(t.connection, queue, edge)):
                return False
            self._used.discard(queue)
            try:
                await self._lock_others_out(queue, edge)
                return await self._run(lambda t: queue_work.remove_queue(t.connection, queue, edge))
            finally:
                await self._run(lambda t: _let_in(t, queue, edge))
        finally:
            self._locked.discard(queue)

    async def _lock_others_out(self, queue: str, edge: int) -> None:
        deadline = asyncio.get_running_loop().time() + self.settings.removal.total_seconds()
        store = self._reached()
        while await store.read(lambda t: queue_work.linked_elsewhere(t.connection, queue, edge)):
            if asyncio.get_running_loop().time() >= deadline:
                raise Refusal(
                    Rule.QUEUE_IN_USE, f"links of another edge still lead to the queue {queue}"
                )
            await self._run(
                lambda t: queue_work.notify(t.connection, self._channel, (_LOCK_OUT + queue,))
            )
            await asyncio.sleep(0.1)

    async def remove_idle(self, queue: str) -> bool:
        if self._open_puts.get(queue) or queue in self._feeds:
            return False
        edge = self._standing()
        self._used.discard(queue)
        return await self._run(lambda t: queue_work.remove_queue(t.connection, queue, edge))

    async def release(self, queue: str) -> int:
        released = await self._run(
            lambda t: queue_upkeep.release(t.connection, self._channel, queue)
        )
        self._ready(queue)
        return released

    # ------------------------------------------------------------ upkeep

    async def drop_expired(self, now: datetime, limit: int) -> Sequence[Dropped]:
        if self._edge is None:
            return ()
        return await self._run(lambda t: queue_upkeep.drop_expired(t, now, limit))

    async def forget(self, now: datetime) -> int:
        if self._edge is None:
            return 0
        return await self._run(lambda t: queue_upkeep.forget(t.connection, now))

    async def journal(self, work: Callable[[Journal], T]) -> T:
        """The stream of transfers of this edge."""
        return await self._run(lambda t: work(t.journal))

    async def prune(self, now: datetime, retention: timedelta) -> int:
        gone = await self._local.prune(now, retention)
        if self._edge is None:
            return gone
        return gone + await self._run(lambda t: t.journal.prune(now, retention))

    async def probe(self) -> timedelta:
        """Both disks: that of the edge, and that of the database."""
        took = await self._local.probe()
        loop = asyncio.get_running_loop()
        edge, started = self._standing(), loop.time()
        # Every transaction writes its mark.
        await self._run(lambda t: queue_work.require_edge(t.connection, edge))
        self._full = None
        return took + timedelta(seconds=loop.time() - started)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self._database.doubt_timeout.total_seconds()):
                await self._empty.wait()
        edge, store = self._edge, self._store
        if edge is not None and store is not None:
            with suppress(Refusal):
                await store.run(
                    lambda t: queue_work.free(t.connection, self._channel, [edge], failed=0)
                )
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if store is not None:
            await store.close()
        await self._local.close()

    # ------------------------------------------------------------ within

    async def _run(self, work: Callable[[Transaction], T]) -> T:
        return await self._reached().run(work)

    def _reached(self) -> PostgresStore[Transaction]:
        if self._store is None:
            raise self._why or _not_connected()
        return self._store

    def _standing(self) -> int:
        if self._edge is None:
            raise self._why or _not_connected()
        return self._edge

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("queue store", exc_info=error)


def _transaction(transaction: Transaction) -> Transaction:
    return transaction


def _let_in(transaction: Transaction, queue: str, edge: int) -> None:
    queue_work.leave(transaction.connection, queue, edge)
    queue_work.unlock(transaction.connection, queue, edge)


def _octets(step: Step) -> int:
    if not isinstance(step, Submission):
        return 0
    return sum(o.message.size for o in step.operations if isinstance(o, Put))


def _nobody(what: object) -> None:
    """Nobody wants to know."""


def _not_connected() -> Refusal:
    return Refusal(Rule.STORE_UNREACHABLE, "not connected to the database yet")
