"""What one edge has of one queue: messages that RabbitMQ gave it and that are not removed yet.

Closing the channel puts all of them back at the head of the queue, in order; a single one that is
given back (basic.nack) would go behind all others (RabbitMQ 3.10), so that is never done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from gridpost.core.amqp091 import Channel, Incoming, RabbitConnection
from gridpost.core.queues import Queued
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.rabbitmq.messages import QUEUE, decode

log = structlog.get_logger(__name__)

_SMALL: Final = 1024


@dataclass(slots=True)
class Lease:
    """A message that is ours until it is acknowledged or the channel closes."""

    message: Queued
    tag: int


class Feed:
    def __init__(
        self,
        queue: str,
        connection: RabbitConnection,
        number: Callable[[], int],
        unreadable: Callable[[Incoming, Feed], None],
        max_octets: int,
    ) -> None:
        self.leases: dict[int, Lease] = {}
        self.ended = False
        self._queue = queue
        self._connection = connection
        self._number = number
        self._unreadable = unreadable
        self._max_octets = max_octets
        self._octets = 0
        self._largest = _SMALL
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()
        self._consumer: str | None = None
        self._prefetch = 0
        self._wanted = 0
        self._deliver: Callable[[Queued], None] | None = None
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._tuning = False

    @property
    def subscribed(self) -> bool:
        return self._deliver is not None

    # ------------------------------------------------------------ getting

    async def channel(self) -> Channel:
        async with self._opening:
            if self.ended:
                raise Refusal(Rule.AMQP091_UNREACHABLE, f"queue {self._queue} was let go of")
            if self._channel is None:
                self._channel = await self._connection.channel(confirms=False)
            return self._channel

    async def get(self) -> Queued | None:
        """The next message, on demand."""
        channel = await self.channel()
        while (incoming := await channel.get(QUEUE + self._queue)) is not None:
            message = self._take(incoming)
            if message is not None:
                return message
        return None

    async def waiting(self) -> int:
        channel = await self.channel()
        _, counts = await channel.declare_queue(QUEUE + self._queue, passive=True)
        return counts.messages

    def subscribe(self, credit: int, deliver: Callable[[Queued], None]) -> None:
        self._wanted, self._deliver = credit, deliver
        self._tune()

    def _tune(self) -> None:
        """A consumer's prefetch is fixed: where it no longer fits, another consumer takes over."""
        if self._tuning or self.ended:
            return
        fits = self._prefetch_now()
        if self._consumer is None:
            due = fits > 0
        else:
            # Not for every little change: a new consumer is a round trip.
            due = fits > self._prefetch or fits * 4 < self._prefetch
        if due:
            self._tuning = True
            task = asyncio.ensure_future(self._consume())
            task.add_done_callback(self._tuned)

    def _prefetch_now(self) -> int:
        """Credit, as far as messages like the largest so far would fit into memory."""
        if self._octets >= self._max_octets and self.leases:
            return 0
        return min(self._wanted, max(1, self._max_octets // self._largest))

    async def _consume(self) -> None:
        channel = await self.channel()
        if self._consumer is not None:
            before, self._consumer = self._consumer, None
            await channel.cancel(before)
        prefetch = self._prefetch_now()
        if prefetch > 0 and not self.ended:
            self._prefetch = prefetch
            self._consumer = await channel.consume(
                QUEUE + self._queue, self._arrives, prefetch=prefetch, cancelled=self._cancelled
            )

    def _tuned(self, task: asyncio.Future[None]) -> None:
        self._tuning = False
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not self.ended:
            log.warning("not subscribed", queue=self._queue, why=str(error))

    def _cancelled(self) -> None:
        """The queue moved or was removed; if it is there, go on."""
        self._consumer = None
        self._tune()

    def _arrives(self, incoming: Incoming) -> None:
        message = self._take(incoming)
        if message is not None and self._deliver is not None and not self.ended:
            self._deliver(message)
        if self._octets >= self._max_octets:
            self._tune()

    def _take(self, incoming: Incoming) -> Queued | None:
        try:
            message = decode(incoming, self._number())
        except Refusal as refusal:
            log.error("unreadable", queue=self._queue, why=refusal.message, detail=refusal.details)
            self._unreadable(incoming, self)
            return None
        self.leases[message.number] = Lease(message, incoming.tag)
        self._octets += message.size
        self._largest = max(self._largest * 15 // 16, message.size, _SMALL)
        return message

    # ------------------------------------------------------------ letting go

    def begin(self) -> None:
        """Something is about to be acknowledged: the channel stays open until `finish`."""
        self._busy += 1
        self._idle.clear()

    def finish(self) -> None:
        self._busy -= 1
        if not self._busy:
            self._idle.set()

    async def acknowledge(self, tag: int, number: int = 0) -> None:
        channel = self._channel
        if channel is None or channel.closed:
            raise Refusal(Rule.AMQP091_UNREACHABLE, f"queue {self._queue} was let go of")
        await channel.ack(tag)
        lease = self.leases.pop(number, None)
        if lease is not None:
            self._octets -= lease.message.size
            if self._deliver is not None and self._consumer is None:
                self._tune()

    async def close(self) -> None:
        """All that is not acknowledged goes back, behind what is under way here."""
        self.ended = True
        self._deliver = None
        await self._idle.wait()
        async with self._opening:
            channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
        self.leases.clear()
