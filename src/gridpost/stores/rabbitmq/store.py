"""The queues of a broker in RabbitMQ; journal and directory copy stay in a store of the edge's own.

The order that nothing may break: a message is confirmed by a quorum, then its row is in the edge's
journal, then it is reported; a message that leaves has its row first, is acknowledged then, and is
reported last. What RabbitMQ did not answer is never reported (the law of `core.queues`).
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, TypeVar

import structlog

from gridpost.core.amqp091 import (
    Channel,
    ConnectionKeeper,
    Incoming,
    Properties,
    QueueCounts,
    RabbitClient,
    RabbitConnection,
)
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
    Remove,
    Space,
    expired_row,
    within,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.rabbitmq.feed import Feed
from gridpost.stores.rabbitmq.messages import (
    EDGES,
    HELD,
    LINKS,
    PROBE,
    QUEUE,
    UNREADABLE,
    arguments,
    decode,
    encode,
)

T = TypeVar("T")
MIB = 1024 * 1024
log = structlog.get_logger(__name__)

_LOOK_SECONDS = 1.0
"""Between looks whether RabbitMQ takes publications."""


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
        self._local = local
        self._client = client
        self._clock = clock
        self.settings = settings or RabbitSettings()
        self._keeper: ConnectionKeeper = client.keep(
            self._work, purpose=f"{local.identity.component} producing", lost=self._was_lost
        )
        self._numbers = count(1)
        self._publishing: Channel | None = None
        self._asking: Channel | None = None
        self._delivering: RabbitConnection | None = None
        self._lock = asyncio.Lock()
        self._used: dict[str, str] = {}
        """Queues to which links may lead, with the tag that says so in RabbitMQ."""
        self._locked: set[str] = set()
        self._feeds: dict[str, Feed] = {}
        self._open_puts: dict[str, int] = defaultdict(int)
        self._preparing: dict[str, list[tuple[Put, Done]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._blocked = False
        self._swept_at: datetime | None = None
        self._closed = False
        self._lost: Callable[[Refusal], None] = _nobody
        self._lock_out: Callable[[str], None] = _nobody

    # ------------------------------------------------------------ connecting

    async def serve(self, lost: Callable[[Refusal], None], lock_out: Callable[[str], None]) -> None:
        self._lost, self._lock_out = lost, lock_out
        await self._keeper.start(insist=False)
        self._start(self._watch_alarms())

    async def _work(self, connection: RabbitConnection) -> None:
        """A new connection: publications on it, everything else on another.

        RabbitMQ stops reading a connection that publishes when it runs short of memory or disk;
        acknowledgements must go on then.
        """
        delivering = await self._client.connect(f"{self.identity.component} consuming")
        try:
            publishing = await connection.channel()
            asking = await delivering.channel()
            quorum = arguments(connection.version)
            await asking.declare_queue(UNREADABLE, arguments=quorum)
            await asking.declare_queue(
                PROBE, arguments=arguments(connection.version, **{"x-max-length": 1})
            )
            await asking.declare_exchange(EDGES, "fanout")
            own, _ = await asking.declare_queue(exclusive=True, durable=False, auto_delete=True)
            await asking.bind(own, EDGES)
            await asking.consume(own, self._told, no_ack=True)
        except BaseException:
            await delivering.close()
            raise
        self._publishing, self._asking, self._delivering = publishing, asking, delivering
        # One without the other is of no use.
        delivering.lost.add_done_callback(lambda _: self._start(connection.close()))

    def _was_lost(self, refusal: Refusal) -> None:
        delivering = self._delivering
        self._publishing = self._asking = self._delivering = None
        self._used.clear()
        self._blocked = False
        for feed in self._feeds.values():
            feed.ended = True
        self._feeds.clear()
        if delivering is not None:
            self._start(delivering.close())
        if not self._closed:
            self._lost(refusal)

    def _told(self, incoming: Incoming) -> None:
        """What another edge tells all of them."""
        try:
            told = json.loads(incoming.body)
            edge, queue = str(told["edge"]), str(told["lock-out"])
        except (ValueError, KeyError, TypeError):
            return
        if edge != self.identity.instance and queue in self._used:
            self._lock_out(queue)

    async def _watch_alarms(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            connection = self._keeper.connection
            self._blocked = connection is not None and await connection.blocked()

    @property
    def trouble(self) -> Refusal | None:
        return None if self._publishing is not None else self._keeper.why or _not_connected()

    @property
    def space(self) -> Space:
        space = self._local.space
        if self._blocked and not space.refusing:
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
            self._open_puts[operation.queue] += 1
            self._put_in_order(operation, done)
        elif isinstance(operation, Remove):
            self._remove_message(operation, done)
        elif isinstance(operation, Hold):
            self._start(self._hold(operation, done))
        elif isinstance(operation, CountFailure):
            # Counted by RabbitMQ when the message goes back, by us as long as it is here.
            feed = self._feeds.get(operation.queue)
            lease = feed.leases.get(operation.message.number) if feed is not None else None
            if lease is not None:
                lease.message.deliveries = operation.message.deliveries
            if operation.row is None:
                asyncio.get_running_loop().call_soon(done, None)
            else:
                self._local.submit((Record(operation.row),), done)

    def _put_in_order(self, put: Put, done: Done) -> None:
        """Publications begin in the order of their tasks; before the queue is there, they line up."""
        line = self._preparing.get(put.queue)
        if line is not None:
            line.append((put, done))
        elif put.queue in self._used:
            self._start(self._put(put, done))
        else:
            self._preparing[put.queue] = [(put, done)]
            self._start(self._prepare(put.queue))

    async def _prepare(self, queue: str) -> None:
        refusal: Refusal | None = None
        try:
            await self.create(queue)
        except Refusal as refused:
            refusal = refused
        for put, done in self._preparing.pop(queue):
            if refusal is None:
                self._start(self._put(put, done))
            else:
                self._not_put(put, done, refusal)

    async def _put(self, put: Put, done: Done) -> None:
        try:
            body, properties = encode(put.message)
            await self._publisher().publish(body, properties, routing_key=QUEUE + put.queue)
        except Refusal as refusal:
            self._not_put(put, done, refusal)
            return
        self._open_puts[put.queue] -= 1
        put.message.number = next(self._numbers)
        self._local.submit((Record(put.written()),), done)

    def _not_put(self, put: Put, done: Done, refusal: Refusal) -> None:
        self._open_puts[put.queue] -= 1
        # In doubt: the sender hears nothing, and sends it again.
        if refusal.rule is not Rule.AMQP091_UNREACHABLE:
            done(refusal)

    def _remove_message(self, remove: Remove, done: Done) -> None:
        feed = self._feeds.get(remove.queue)
        lease = feed.leases.get(remove.message.number) if feed is not None else None
        if feed is None or lease is None:
            # Gone already, or void: then RabbitMQ delivers it again.
            self._local.submit((Record(remove.row),), done)
            return
        feed.begin()
        self._local.submit(
            (Record(remove.row),),
            partial(self._row_written, feed, lease.tag, remove.message.number, done),
        )

    def _row_written(
        self, feed: Feed, tag: int, number: int, done: Done, refusal: Refusal | None
    ) -> None:
        if refusal is not None:
            feed.finish()
            done(refusal)
        else:
            self._start(self._acknowledge(feed, tag, number, done))

    async def _acknowledge(self, feed: Feed, tag: int, number: int, done: Done) -> None:
        try:
            await feed.acknowledge(tag, number)
        except Refusal as refusal:
            log.info("not acknowledged", why=refusal.message)
            return
        finally:
            feed.finish()
        done(None)

    async def _hold(self, hold: Hold, done: Done) -> None:
        feed = self._feeds.get(hold.queue)
        lease = feed.leases.get(hold.message.number) if feed is not None else None
        if feed is None or lease is None:
            self._local.submit((Record(hold.row),), done)
            return
        feed.begin()
        try:
            body, properties = encode(lease.message, reason=hold.reason)
            await self._publisher().publish(body, properties, routing_key=HELD + hold.queue)
        except Refusal as refusal:
            feed.finish()
            if refusal.rule is not Rule.AMQP091_UNREACHABLE:
                done(refusal)
            return
        self._local.submit(
            (Record(hold.row),),
            partial(self._row_written, feed, lease.tag, hold.message.number, done),
        )

    def _set_aside(self, incoming: Incoming, feed: Feed) -> None:
        feed.begin()
        self._start(self._keep_unreadable(incoming, feed))

    async def _keep_unreadable(self, incoming: Incoming, feed: Feed) -> None:
        try:
            await self._publisher().publish(
                incoming.body, incoming.properties, routing_key=UNREADABLE
            )
            await feed.acknowledge(incoming.tag)
        except Refusal as refusal:
            log.error("unreadable message not set aside", why=refusal.message)
        finally:
            feed.finish()

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
            feed = self._feeds.get(code)
            ours = len(feed.leases) if feed is not None else 0
            states.append(QueueState(code, max(0, ready) + ours, 0, max(0, held), 0))
        return states

    async def create(self, queue: str) -> None:
        async with self._lock:
            if queue in self._used:
                return
            if queue in self._locked:
                raise Refusal(Rule.QUEUE_IN_USE, f"the queue {queue} is being removed")
            await self._declare(queue)
            await self._local.create(queue)
            # While RabbitMQ takes no publications, consumers come all the same; what producers
            # send is refused until then, and joins with the first that is not.
            if not self._blocked:
                self._used[queue] = await self._join(queue)

    async def _declare(self, queue: str) -> None:
        quorum = arguments(self._version())
        for name in (QUEUE + queue, HELD + queue):
            # Declared only where it is missing: an older one may have other arguments.
            if await self._count(name) < 0:
                await self._asker().declare_queue(name, arguments=quorum)

    async def _join(self, queue: str) -> str:
        """Refused while somebody removes the queue: a refusal closes its channel, so try elsewhere."""
        name, publisher = LINKS + queue, self._publisher()
        while True:
            trial = await self._connected().channel(confirms=False)
            try:
                await trial.declare_queue(name, durable=False, auto_delete=True)
                await trial.consume(name, _ignore, no_ack=True)
                # On the channel of publications: when it goes, so does our right to publish.
                return await publisher.consume(name, _ignore, no_ack=True)
            except Refusal as refusal:
                if refusal.rule is Rule.AMQP091_DENIED:
                    raise Refusal(
                        Rule.QUEUE_IN_USE, f"the queue {queue} is being removed", refusal.message
                    ) from None
                # The last one who had it left between our two steps, and it went with him.
                if refusal.rule is not Rule.AMQP091_NOT_FOUND:
                    raise
            finally:
                await trial.close()

    async def leave(self, queue: str) -> None:
        async with self._lock:
            if queue in self._feeds or self._open_puts.get(queue):
                return
            tag = self._used.pop(queue, None)
            if tag is not None and self._publishing is not None:
                await self._publishing.cancel(tag)

    async def remove(self, queue: str) -> bool:
        """Lock out consumers and producers of all edges, prove that the queue is empty, delete it."""
        if queue not in {state.code for state in await self._local.queues()}:
            return False
        if self._open_puts.get(queue):
            return False
        self._locked.add(queue)
        lock: Channel | None = None
        try:
            await self._let_go(queue)
            await self.leave(queue)
            lock = await self._lock_all_out(queue)
            for name in (QUEUE + queue, HELD + queue):
                if not await self._proven_empty(name):
                    return False
            for name in (QUEUE + queue, HELD + queue):
                await lock.delete_queue(name)
            await self._local.remove(queue)
            return True
        finally:
            self._locked.discard(queue)
            if lock is not None:
                await lock.close()

    async def remove_idle(self, queue: str) -> bool:
        """Only by an administrator."""
        return False

    async def _lock_all_out(self, queue: str) -> Channel:
        deadline = asyncio.get_running_loop().time() + self.settings.removal.total_seconds()
        told = json.dumps({"edge": self.identity.instance, "lock-out": queue}).encode()
        while True:
            await self._publisher().publish(
                told, Properties(persistent=False), exchange=EDGES, mandatory=False
            )
            channel = await self._connected().channel(confirms=False)
            try:
                await channel.declare_queue(LINKS + queue, durable=False, auto_delete=True)
                await channel.consume(LINKS + queue, _ignore, no_ack=True, exclusive=True)
            except Refusal as refusal:
                await channel.close()
                late = asyncio.get_running_loop().time() >= deadline
                # Not found: the last one who had it left between our two steps, and it went with him.
                if refusal.rule not in (Rule.AMQP091_DENIED, Rule.AMQP091_NOT_FOUND):
                    raise
                if late:
                    raise Refusal(
                        Rule.QUEUE_IN_USE, f"links of another edge still lead to the queue {queue}"
                    ) from None
                await asyncio.sleep(0.1)
            else:
                return channel

    async def _proven_empty(self, name: str) -> bool:
        """Nothing ready and nobody who has something that may come back, twice in a row."""
        for _ in range(2):
            counts = await self._counts(name)
            if counts is not None and (counts.messages or counts.consumers):
                return False
            await asyncio.sleep(0.2)
        return True

    async def _count(self, name: str) -> int:
        """Messages that nobody has taken; -1: there is no such queue."""
        counts = await self._counts(name)
        return -1 if counts is None else counts.messages

    async def _counts(self, name: str) -> QueueCounts | None:
        # Asking for a queue that is not there costs the channel.
        trial = await self._reached(self._delivering).channel(confirms=False)
        try:
            _, counts = await trial.declare_queue(name, passive=True)
        except Refusal as refusal:
            if refusal.rule is Rule.AMQP091_NOT_FOUND:
                return None
            raise
        finally:
            await trial.close()
        return counts

    # ------------------------------------------------------------ reading

    def subscribe(self, queue: str, credit: int, deliver: Callable[[Queued], None]) -> None:
        if self._delivering is not None:
            self._feed(queue).subscribe(min(credit, self.settings.prefetch), deliver)

    def unsubscribe(self, queue: str) -> None:
        feed = self._feeds.pop(queue, None)
        if feed is not None:
            self._start(feed.close())

    async def waiting(self, queue: str) -> int:
        return await self._feed(queue).waiting()

    async def read(self, queue: str, after: int, limit: int, max_octets: int) -> Sequence[Queued]:
        feed = self._feed(queue)
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
        feed = self._feeds.get(queue)
        lease = feed.leases.get(number) if feed is not None else None
        return None if lease is None else lease.message.content

    async def release(self, queue: str) -> int:
        """One after the other to the end of the queue; the expired ones are dropped."""
        await self.create(queue)
        channel = await self._reached(self._delivering).channel(confirms=False)
        released = 0
        try:
            while (incoming := await channel.get(HELD + queue)) is not None:
                message = decode(incoming, 0)
                now = self._clock.now()
                if message.expires_at <= now:
                    await self._written(expired_row(queue, message, now))
                else:
                    body, properties = encode(message)
                    await self._publisher().publish(body, properties, routing_key=QUEUE + queue)
                    released += 1
                await channel.ack(incoming.tag)
        finally:
            await channel.close()
        return released

    # ------------------------------------------------------------ upkeep

    async def drop_expired(self, now: datetime, limit: int) -> Sequence[Dropped]:
        """Queues that are read lose expired messages then; of the others some are looked at."""
        if self._swept_at is not None and now - self._swept_at < self.settings.sweep:
            return ()
        self._swept_at = now
        if self.trouble is not None:
            return ()
        for known in await self._local.queues():
            if known.code not in self._used:
                await self._sweep(known.code, now, limit)
        return ()

    async def _sweep(self, queue: str, now: datetime, limit: int) -> None:
        """From its head on, as long as messages are expired; the rest goes back to its place."""
        async with self._lock:
            counts = await self._counts(QUEUE + queue)
            if queue in self._feeds or counts is None or counts.consumers or not counts.messages:
                return
            feed = Feed(
                queue,
                self._reached(self._delivering),
                self._numbers.__next__,
                self._set_aside,
                self.settings.window_octets,
            )
            try:
                for _ in range(limit):
                    message = await feed.get()
                    if message is None or message.expires_at > now:
                        break
                    await self._written(expired_row(queue, message, now))
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
        if self._blocked:
            # It would not be confirmed before there is room; `space` says so.
            return took
        loop = asyncio.get_running_loop()
        started = loop.time()
        await self._publisher().publish(b"", Properties(), routing_key=PROBE)
        return took + timedelta(seconds=loop.time() - started)

    async def close(self) -> None:
        self._closed = True
        for queue in list(self._feeds):
            await self._let_go(queue)
        await self._keeper.close()
        if self._delivering is not None:
            await self._delivering.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._local.close()

    # ------------------------------------------------------------ within

    def _feed(self, queue: str) -> Feed:
        feed = self._feeds.get(queue)
        if feed is None:
            feed = self._feeds[queue] = Feed(
                queue,
                self._reached(self._delivering),
                self._numbers.__next__,
                self._set_aside,
                self.settings.window_octets,
            )
        return feed

    async def _let_go(self, queue: str) -> None:
        feed = self._feeds.pop(queue, None)
        if feed is not None:
            await feed.close()

    async def _written(self, row: Any) -> None:
        written: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        self._local.submit((Record(row),), written.set_result)
        refusal = await written
        if refusal is not None:
            raise refusal

    def _connected(self) -> RabbitConnection:
        return self._reached(self._keeper.connection)

    def _publisher(self) -> Channel:
        return self._reached(self._publishing)

    def _asker(self) -> Channel:
        return self._reached(self._asking)

    def _version(self) -> tuple[int, ...]:
        return self._connected().version

    def _reached(self, what: T | None) -> T:
        if what is None:
            raise self._keeper.why or _not_connected()
        return what

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("queue store", error=repr(error))


def _ignore(incoming: Incoming) -> None:
    """Nobody publishes there."""


def _nobody(what: object) -> None:
    """Nobody wants to know."""


def _not_connected() -> Refusal:
    return Refusal(Rule.AMQP091_UNREACHABLE, "not connected to RabbitMQ yet")
