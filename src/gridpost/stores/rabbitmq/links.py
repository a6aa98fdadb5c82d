"""To which queues links of this edge may lead: how it joins and leaves one, and how it locks all others out.

Whoever has links to a queue consumes from its `links/` queue; whoever removes the queue consumes from it
exclusively, which RabbitMQ refuses as long as anybody else does.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta

from gridpost.core.amqp091 import Channel, Incoming, Properties, QueueCounts
from gridpost.core.queues import QueueStore
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.rabbitmq.feeds import Feeds
from gridpost.stores.rabbitmq.messages import EDGES, HELD, LINKS, QUEUE, arguments
from gridpost.stores.rabbitmq.session import Session


class Links:
    def __init__(
        self, local: QueueStore, session: Session, feeds: Feeds, removal: timedelta
    ) -> None:
        self.lock = asyncio.Lock()
        """Held while this edge joins, leaves or looks through a queue that it has not joined."""
        self.open_puts: dict[str, int] = defaultdict(int)
        """Publications by queue whose outcome is not known."""
        self._local = local
        self._session = session
        self._feeds = feeds
        self._removal = removal
        self._instance = local.identity.instance
        self._used: dict[str, str] = {}
        """Queues to which links may lead, with the tag that says so in RabbitMQ."""
        self._locked: set[str] = set()

    def __contains__(self, queue: str) -> bool:
        return queue in self._used

    def lost(self) -> None:
        self._used.clear()

    async def join(self, queue: str) -> None:
        async with self.lock:
            if queue in self._used:
                return
            if queue in self._locked:
                raise Refusal(Rule.QUEUE_IN_USE, f"the queue {queue} is being removed")
            await self._declare(queue)
            await self._local.create(queue)
            # While RabbitMQ takes no publications, consumers come all the same; what producers
            # send is refused until then, and joins with the first that is not.
            if not self._session.blocked:
                self._used[queue] = await self._join(queue)

    async def _declare(self, queue: str) -> None:
        quorum = arguments(self._session.producing.version)
        for name in (QUEUE + queue, HELD + queue):
            # Declared only where it is missing: an older one may have other arguments.
            if await self.counts(name) is None:
                await self._session.asker.declare_queue(name, arguments=quorum)

    async def _join(self, queue: str) -> str:
        """Refused while somebody removes the queue: a refusal closes its channel, so try elsewhere."""
        while True:
            trial = await self._session.producing.channel(confirms=False)
            try:
                await _consume(trial, queue)
                # On the channel of publications: when it goes, so does our right to publish.
                publisher = self._session.publisher
                return await publisher.consume(LINKS + queue, _ignore, no_ack=True)
            except Refusal as refusal:
                if refusal.rule is Rule.AMQP091_DENIED:
                    raise Refusal(
                        Rule.QUEUE_IN_USE, f"the queue {queue} is being removed", refusal.message
                    ) from None
                if not _vanished(refusal):
                    raise
            finally:
                await trial.close()

    async def leave(self, queue: str) -> None:
        async with self.lock:
            if queue in self._feeds or self.open_puts.get(queue):
                return
            tag = self._used.pop(queue, None)
            if tag is not None and self._session.trouble is None:
                await self._session.publisher.cancel(tag)

    async def remove(self, queue: str) -> bool:
        """Lock out consumers and producers of all edges, prove that the queue is empty, delete it."""
        if queue not in {state.code for state in await self._local.queues()}:
            return False
        if self.open_puts.get(queue):
            return False
        self._locked.add(queue)
        lock: Channel | None = None
        try:
            await self._feeds.let_go(queue)
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

    async def _lock_all_out(self, queue: str) -> Channel:
        deadline = asyncio.get_running_loop().time() + self._removal.total_seconds()
        told = json.dumps({"edge": self._instance, "lock-out": queue}).encode()
        while True:
            await self._session.publisher.publish(
                told, Properties(persistent=False), exchange=EDGES, mandatory=False
            )
            channel = await self._session.producing.channel(confirms=False)
            try:
                await _consume(channel, queue, exclusive=True)
            except Refusal as refusal:
                await channel.close()
                late = asyncio.get_running_loop().time() >= deadline
                if refusal.rule is not Rule.AMQP091_DENIED and not _vanished(refusal):
                    raise
                if late:
                    raise Refusal(
                        Rule.QUEUE_IN_USE, f"links of another edge still lead to the queue {queue}"
                    ) from None
                await asyncio.sleep(0.1)
            else:
                return channel

    def told(self, incoming: Incoming, lock_out: Callable[[str], None]) -> None:
        """What another edge tells all of them."""
        try:
            told = json.loads(incoming.body)
            edge, queue = str(told["edge"]), str(told["lock-out"])
        except (ValueError, KeyError, TypeError):
            return
        if edge != self._instance and queue in self._used:
            lock_out(queue)

    async def _proven_empty(self, name: str) -> bool:
        """Nothing ready and nobody who has something that may come back, twice in a row."""
        for _ in range(2):
            counts = await self.counts(name)
            if counts is not None and (counts.messages or counts.consumers):
                return False
            await asyncio.sleep(0.2)
        return True

    async def counts(self, name: str) -> QueueCounts | None:
        """Messages that nobody has taken, and consumers; None: there is no such queue."""
        # Asking for a queue that is not there costs the channel.
        trial = await self._session.delivering.channel(confirms=False)
        try:
            _, counts = await trial.declare_queue(name, passive=True)
        except Refusal as refusal:
            if refusal.rule is Rule.AMQP091_NOT_FOUND:
                return None
            raise
        finally:
            await trial.close()
        return counts


async def _consume(channel: Channel, queue: str, *, exclusive: bool = False) -> None:
    await channel.declare_queue(LINKS + queue, durable=False, auto_delete=True)
    await channel.consume(LINKS + queue, _ignore, no_ack=True, exclusive=exclusive)


def _vanished(refusal: Refusal) -> bool:
    """Its last consumer left between declaration and consumption, and the queue with it: try again."""
    return refusal.rule is Rule.AMQP091_NOT_FOUND


def _ignore(incoming: Incoming) -> None:
    """Nobody publishes there."""
