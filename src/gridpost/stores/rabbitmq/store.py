"""The queues of a broker in RabbitMQ as the broker asks for them: reading, releasing, sweeping.

Journal and directory copy stay in a store of the edge's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from gridpost.core.amqp091 import Incoming, Properties, RabbitClient
from gridpost.core.journal import Identity
from gridpost.core.ports import Clock, Journal
from gridpost.core.queues import (
    Capabilities,
    CountFailure,
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
    expired_row,
    within,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.rabbitmq.feed import Feed
from gridpost.stores.rabbitmq.feeds import Feeds
from gridpost.stores.rabbitmq.links import Links
from gridpost.stores.rabbitmq.messages import HELD, PROBE, QUEUE, decode, encode
from gridpost.stores.rabbitmq.session import Session
from gridpost.stores.rabbitmq.writer import Writer
from gridpost.stores.tasks import Tasks

T = TypeVar("T")
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RabbitSettings:
    """What an operator may tune."""

    prefetch: int = 100
    """Messages of one queue that an edge has at a time, at most."""
    window_octets: int = 4 * MIB
    """Of one queue: an edge takes fewer messages when they are large."""
    sweep: timedelta = timedelta(hours=1)
    """How often an edge looks for expired messages in queues that nobody reads."""
    removal: timedelta = timedelta(seconds=10)
    """How long a removal waits for other edges to let go of a queue."""


class RabbitQueueStore:
    """core.queues.SharedQueueStore."""

    capabilities = Capabilities(
        transactions=False,
        stops_duplicates=False,
        drops_expired=False,
        removes_queues=False,
        shared=True,
        measures_queues=False,
    )

    def __init__(
        self,
        local: QueueStore,
        client: RabbitClient,
        clock: Clock,
        settings: RabbitSettings | None = None,
    ) -> None:
        """`local` keeps the journal and the names of the queues that this edge has served."""
        self.identity: Identity = local.identity
        self.settings = settings or RabbitSettings()
        self._local = local
        self._clock = clock
        self._tasks = Tasks("queue store")
        self._session = Session(
            client, local.identity.component, self._tasks, told=self._told, lost=self._was_lost
        )
        self._feeds = Feeds(self._session, self._set_aside, self.settings.window_octets)
        self._links = Links(local, self._session, self._feeds, self.settings.removal)
        self._writer = Writer(local, self._session, self._feeds, self._links, self._tasks)
        self._swept_at: datetime | None = None
        self._closed = False
        self._lost: Callable[[Refusal], None] = _nobody
        self._lock_out: Callable[[str], None] = _nobody

    # ------------------------------------------------------------ connecting

    async def serve(self, lost: Callable[[Refusal], None], lock_out: Callable[[str], None]) -> None:
        self._lost, self._lock_out = lost, lock_out
        await self._session.open()

    def _was_lost(self, refusal: Refusal) -> None:
        self._links.lost()
        self._feeds.lost()
        if not self._closed:
            self._lost(refusal)

    def _told(self, incoming: Incoming) -> None:
        self._links.told(incoming, self._lock_out)

    def _set_aside(self, incoming: Incoming, feed: Feed) -> None:
        self._writer.set_aside(incoming, feed)

    @property
    def trouble(self) -> Refusal | None:
        return self._session.trouble

    @property
    def space(self) -> Space:
        space = self._local.space
        if self._session.blocked and not space.refusing:
            reason = "RabbitMQ is short of memory or disk"
            return Space(space.free, space.used, refusing=True, reason=reason)
        return space

    def set_marks(self, *, min_free: int, max_used: int) -> None:
        self._local.set_marks(min_free=min_free, max_used=max_used)

    # ------------------------------------------------------------ writing

    def submit(self, operations: Sequence[Operation], done: Done) -> None:
        if self._closed:
            raise RuntimeError("the store is closed")
        if all(type(operation) is Record for operation in operations):
            self._local.submit(operations, done)
            return
        if len(operations) > 1:
            raise Refusal(Rule.NOT_OFFERED, "RabbitMQ commits one operation at a time")
        (operation,) = operations
        if isinstance(operation, Put):
            space = self.space
            if space.refusing:
                refusal = Refusal(Rule.STORE_FULL, f"no room for new messages: {space.reason}")
                asyncio.get_running_loop().call_soon(done, refusal)
                return
            self._writer.put(operation, done)
        elif isinstance(operation, Remove):
            self._writer.remove(operation, done)
        elif isinstance(operation, Hold):
            self._writer.hold(operation, done)
        elif isinstance(operation, CountFailure):
            self._writer.count_failure(operation, done)

    # ------------------------------------------------------------ queues

    def handed_out(self, queue: str, number: int) -> None:
        """RabbitMQ counts deliveries by itself (x-delivery-count)."""

    async def queues(self) -> Sequence[QueueState]:
        """Those that this edge has served, with what RabbitMQ knows of them."""
        states = []
        for known in await self._local.queues():
            code = known.code
            ready = held = 0
            if self.trouble is None:
                ready, held = await self._count(QUEUE + code), await self._count(HELD + code)
            states.append(QueueState(code, ready + self._feeds.leased(code), 0, held, 0))
        return states

    async def _count(self, name: str) -> int:
        counts = await self._links.counts(name)
        return 0 if counts is None else counts.messages

    async def create(self, queue: str) -> None:
        await self._links.join(queue)

    async def leave(self, queue: str) -> None:
        await self._links.leave(queue)

    async def remove(self, queue: str) -> bool:
        return await self._links.remove(queue)

    async def remove_idle(self, queue: str) -> bool:
        """Only by an administrator."""
        return False

    # ------------------------------------------------------------ reading

    def subscribe(self, queue: str, credit: int, deliver: Callable[[Queued], None]) -> None:
        if self.trouble is None:
            self._feeds.of(queue).subscribe(min(credit, self.settings.prefetch), deliver)

    def unsubscribe(self, queue: str) -> None:
        feed = self._feeds.pop(queue)
        if feed is not None:
            self._tasks.start(feed.close())

    async def waiting(self, queue: str) -> int:
        return await self._feeds.of(queue).waiting()

    async def read(self, queue: str, after: int, limit: int, max_octets: int) -> Sequence[Queued]:
        feed = self._feeds.of(queue)
        found = [lease.message for number, lease in sorted(feed.leases.items()) if number > after]
        octets = sum(message.size for message in found)
        while not feed.subscribed and len(found) < limit and octets <= max_octets:
            message = await self._next(queue, feed)
            if message is None:
                break
            found.append(message)
            octets += message.size
        return within(found[:limit], max_octets)

    async def _next(self, queue: str, feed: Feed) -> Queued | None:
        try:
            return await feed.get()
        except Refusal as refusal:
            if refusal.rule is not Rule.AMQP091_NOT_FOUND:
                raise
            self.unsubscribe(queue)
            return None

    async def load(self, queue: str, number: int) -> Octets | None:
        found = self._feeds.lease(queue, number)
        return None if found is None else found[1].message.content

    async def release(self, queue: str) -> Released:
        """One after the other to the end of the queue; the expired ones are dropped."""
        await self._links.join(queue)
        channel = await self._session.delivering.channel(confirms=False)
        released = 0
        try:
            while (incoming := await channel.get(HELD + queue)) is not None:
                message = decode(incoming, 0)
                now = self._clock.now()
                if message.expires_at <= now:
                    await self._writer.written(expired_row(queue, message, now))
                else:
                    body, properties = encode(message)
                    await self._session.publisher.publish(
                        body, properties, routing_key=QUEUE + queue
                    )
                    released += 1
                await channel.ack(incoming.tag)
        finally:
            await channel.close()
        return Released(released)

    # ------------------------------------------------------------ upkeep

    async def drop_expired(self, now: datetime, limit: int) -> Sequence[Dropped]:
        """Queues that are read lose expired messages then; of the others some are looked at."""
        if self._swept_at is not None and now - self._swept_at < self.settings.sweep:
            return ()
        self._swept_at = now
        if self.trouble is not None:
            return ()
        for known in await self._local.queues():
            if known.code not in self._links:
                await self._sweep(known.code, now, limit)
        return ()

    async def _sweep(self, queue: str, now: datetime, limit: int) -> None:
        """From its head on, as long as messages are expired; the rest goes back to its place."""
        async with self._links.lock:
            counts = await self._links.counts(QUEUE + queue)
            if queue in self._feeds or counts is None or counts.consumers or not counts.messages:
                return
            feed = self._feeds.apart(queue)
            try:
                for _ in range(limit):
                    message = await feed.get()
                    if message is None or message.expires_at > now:
                        break
                    await self._writer.written(expired_row(queue, message, now))
                    await feed.acknowledge(feed.leases[message.number].tag, message.number)
            finally:
                await feed.close()

    async def forget(self, now: datetime) -> int:
        """No ids are remembered."""
        return 0

    async def journal(self, work: Callable[[Journal], T]) -> T:
        return await self._local.journal(work)

    async def prune(self, now: datetime, retention: timedelta) -> int:
        return await self._local.prune(now, retention)

    async def probe(self) -> timedelta:
        """Both disks: that of the edge, and those of a quorum."""
        took = await self._local.probe()
        if self.trouble is not None:
            raise self.trouble
        if self._session.blocked:
            # It would not be confirmed before there is room; `space` says so.
            return took
        loop = asyncio.get_running_loop()
        started = loop.time()
        await self._session.publisher.publish(b"", Properties(), routing_key=PROBE)
        return took + timedelta(seconds=loop.time() - started)

    async def close(self) -> None:
        self._closed = True
        await self._feeds.close()
        await self._session.close()
        await self._tasks.end()
        await self._local.close()


def _nobody(what: object) -> None:
    """Nobody wants to know."""
