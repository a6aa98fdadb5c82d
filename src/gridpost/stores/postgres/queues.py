"""The queues of a broker in PostgreSQL, shared by edges: what comes of a step, what is read, what is full.

The row of a transfer is in the same commit as the transfer. Refusals and what people do are written in
the edge's own journal, also while the database is away; the directory copy stays with each edge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

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
    Released,
    Remove,
    Space,
    within,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres import queue_upkeep, queue_work
from gridpost.stores.postgres.queue_feeds import Feeds
from gridpost.stores.postgres.queue_line import Line
from gridpost.stores.postgres.queue_links import Links
from gridpost.stores.postgres.queue_standing import Standing
from gridpost.stores.postgres.queue_work import Answer, Claim, GiveBack, Step, Submission, Work
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.tasks import Tasks

T = TypeVar("T")
MIB = 1024 * 1024

_VOID = frozenset({Rule.STORE_UNREACHABLE, Rule.LEASE_LOST, Rule.STORE_UNSAFE, Rule.STORE_ACCESS})
"""After these nothing is reported: the clients' connections are ended, and they send again."""


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
        self._tasks = Tasks("queue store")
        self._standing = Standing(
            local.identity,
            database,
            self._tasks,
            look=self.settings.look,
            retry=self.settings.retry,
            told=self._told,
            freed=self._ready,
            lost=self._was_lost,
        )
        self._line = Line(
            self._standing,
            clock,
            self._tasks,
            most=self.settings.batch,
            most_octets=self.settings.batch_octets,
            done=self._done,
            failed=self._failed,
            committed=committed,
        )
        self._feeds = Feeds(
            self._line.add,
            self._tasks,
            prefetch=self.settings.prefetch,
            window_octets=self.settings.window_octets,
            retry=self.settings.retry,
        )
        self._links = Links(self._standing, self._line, self._feeds, self.settings.removal)
        self._pid = 0
        self._octets = 0
        self._max_used = self.settings.max_used
        self._full: Refusal | None = None
        self._closed = False
        self._lost: Callable[[Refusal], None] = _nobody
        self._lock_out: Callable[[str], None] = _nobody

    # ------------------------------------------------------------ connecting

    async def serve(self, lost: Callable[[Refusal], None], lock_out: Callable[[str], None]) -> None:
        self._lost, self._lock_out = lost, lock_out
        await self._standing.serve()

    def _was_lost(self, refusal: Refusal, had: bool) -> None:
        self._feeds.clear()
        if not had:
            return
        if not self._closed:
            self._lost(refusal)
        # Behind `lost`: connections have ended, and nobody is told of an outcome any more.
        self._line.void_all(refusal)

    def _told(self, notify: Notify) -> None:
        if not self._links.told(notify.payload, self._lock_out) and notify.pid != self._pid:
            self._ready(notify.payload)

    def _ready(self, queue: str) -> None:
        self._feeds.ready(queue)

    @property
    def trouble(self) -> Refusal | None:
        return self._standing.why

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
        self._line.add(Submission(tuple(operations), done))

    def _failed(self, steps: Sequence[Step], edge: int, refusal: Refusal) -> None:
        """None of the steps happened, or that is not known."""
        if refusal.rule in _VOID:
            if edge == self._standing.edge:
                self._standing.drop(refusal)
            for step in steps:
                self._line.void(step, refusal)
            return
        if refusal.rule is Rule.STORE_FULL:
            self._full = refusal
        for step in steps:
            if isinstance(step, Submission):
                self._line.settled(step)
                step.done(refusal)
            elif isinstance(step, Claim):
                self._feeds.not_claimed(step)
            elif edge == self._standing.edge:
                # What cannot be given back alone is given back with everything else.
                self._standing.drop(refusal)

    def _done(self, steps: Sequence[Step], edge: int, answer: Answer) -> None:
        self._pid, self._full = answer.pid, None
        current = edge == self._standing.edge
        if current:
            self._standing.joined |= answer.joined
        ready: set[str] = set()
        for step in steps:
            if isinstance(step, Submission):
                self._submitted(step, answer, ready)
            elif isinstance(step, Claim) and current:
                self._feeds.claimed(step, *answer.claimed[id(step)])
            elif isinstance(step, GiveBack):
                ready.add(step.queue)
        for queue in ready:
            self._ready(queue)

    def _submitted(self, submission: Submission, answer: Answer, ready: set[str]) -> None:
        self._line.settled(submission)
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
        elif isinstance(operation, (Remove, Hold)):
            feed = self._feeds.get(operation.queue)
            if feed is not None:
                self._octets = max(0, self._octets - operation.message.size)
                self._feeds.gone(feed, operation.message.number)

    # ------------------------------------------------------------ reading

    def subscribe(self, queue: str, credit: int, deliver: Callable[[Queued], None]) -> None:
        if self._standing.edge is not None:
            self._feeds.subscribe(queue, credit, deliver)

    def unsubscribe(self, queue: str) -> None:
        self._feeds.unsubscribe(queue)

    async def waiting(self, queue: str) -> int:
        feed = self._feeds.get(queue)
        if feed is not None and feed.claiming:
            return 1
        found = await self._standing.read(lambda t: queue_upkeep.waiting(t.connection, queue))
        return max(found, int(feed is not None and feed.claiming))

    async def read(self, queue: str, after: int, limit: int, max_octets: int) -> Sequence[Queued]:
        """What is read is claimed, until it is removed or the queue is let go of."""
        feed = self._feeds.of(queue)
        known = feed.after(after)
        room = max_octets - sum(message.size for message in known)
        if feed.deliver is None and len(known) < limit and (room > 0 or not known):
            edge, channel, now = self._standing.number, self._standing.channel, self._clock.now()
            claim = Claim(queue, limit - len(known), max(1, room))
            answer = await self._standing.run(
                lambda t: Work(t, edge, channel, now).run((claim,), frozenset())
            )
            for message in answer.claimed[id(claim)][0]:
                feed.take(message)
        return within(feed.after(after)[:limit], max_octets)

    async def load(self, queue: str, number: int) -> Octets | None:
        feed = self._feeds.get(queue)
        message = feed.leases.get(number) if feed is not None else None
        return None if message is None else message.content

    # ------------------------------------------------------------ queues

    def handed_out(self, queue: str, number: int) -> None:
        """What an edge has claimed counts as delivered in vain when the edge dies."""

    async def queues(self) -> Sequence[QueueState]:
        """All queues of the broker, whichever edge serves them."""
        if self._standing.edge is None:
            return ()
        states, ready = await self._standing.read(lambda t: queue_upkeep.states(t.connection))
        self._octets = sum(state.octets for state in states)
        for queue in ready:
            # Told of already; unless what another edge was about to take came back.
            self._ready(queue)
        return states

    async def create(self, queue: str) -> None:
        await self._links.join(queue)

    async def leave(self, queue: str) -> None:
        await self._links.leave(queue)

    async def remove(self, queue: str) -> bool:
        return await self._links.remove(queue)

    async def remove_idle(self, queue: str) -> bool:
        return await self._links.remove_idle(queue)

    async def release(self, queue: str) -> Released:
        released = await self._standing.run(
            lambda t: queue_upkeep.release(t.connection, self._standing.channel, queue)
        )
        self._ready(queue)
        return released

    # ------------------------------------------------------------ upkeep

    async def drop_expired(self, now: datetime, limit: int) -> Sequence[Dropped]:
        if self._standing.edge is None:
            return ()
        return await self._standing.run(lambda t: queue_upkeep.drop_expired(t, now, limit))

    async def forget(self, now: datetime) -> int:
        if self._standing.edge is None:
            return 0
        return await self._standing.run(lambda t: queue_upkeep.forget(t.connection, now))

    async def journal(self, work: Callable[[Journal], T]) -> T:
        """The stream of transfers of this edge."""
        return await self._standing.run(lambda t: work(t.journal))

    async def prune(self, now: datetime, retention: timedelta) -> int:
        gone = await self._local.prune(now, retention)
        if self._standing.edge is None:
            return gone
        return gone + await self._standing.run(lambda t: t.journal.prune(now, retention))

    async def probe(self) -> timedelta:
        """Both disks: that of the edge, and that of the database."""
        took = await self._local.probe()
        loop = asyncio.get_running_loop()
        edge, started = self._standing.number, loop.time()
        # Every transaction writes its mark.
        await self._standing.run(lambda t: queue_work.require_edge(t.connection, edge))
        self._full = None
        return took + timedelta(seconds=loop.time() - started)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self._database.doubt_timeout.total_seconds()):
                await self._line.drained()
        with suppress(Refusal):
            await self._standing.free()
        await self._tasks.end()
        await self._standing.close()
        await self._local.close()


def _nobody(what: object) -> None:
    """Nobody wants to know."""
