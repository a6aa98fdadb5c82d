"""All queues of a running broker: which exist, when one comes into being and when it goes.

503 cl. 6.3: dynamic. A queue is made when a link validly refers to it, and removed when it is empty
and no link has referred to it for a time that the administrator sets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import structlog

from gridpost.core.queues import QueueState
from gridpost.services.broker.context import BrokerContext
from gridpost.services.broker.live_queue import LiveQueue, Memory

log = structlog.get_logger(__name__)

_EXPIRE_AT_ONCE = 1_000


class Queues:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._memory = Memory(context.settings.memory_octets)
        self._live: dict[str, LiveQueue] = {}
        self._lock = asyncio.Lock()

    def __iter__(self) -> Iterator[LiveQueue]:
        return iter(sorted(self._live.values(), key=lambda queue: queue.code))

    def get(self, code: str) -> LiveQueue | None:
        return self._live.get(code)

    def configure(self) -> None:
        self._memory.limit = self._context.settings.memory_octets

    async def open(self) -> None:
        """Take up what the store holds."""
        for state in await self._context.store.queues():
            self._live[state.code] = LiveQueue(self._context, self._memory, state)

    async def refer(self, code: str) -> LiveQueue:
        """The queue for a link that may have it."""
        async with self._lock:
            live = self._live.get(code)
            if live is None:
                await self._context.store.create(code)
                live = LiveQueue(self._context, self._memory, QueueState(code, 0, 0, 0, 0))
                self._live[code] = live
                log.info("queue created", queue=code)
            return live

    async def remove_idle(self) -> None:
        if not self._context.store.capabilities.removes_queues:
            return
        before = self._context.clock.now() - self._context.settings.queue_idle
        for code, live in list(self._live.items()):
            async with self._lock:
                if live.referred or live.depth or live.held or live.idle_since > before:
                    continue
                if await self._context.store.remove(code):
                    del self._live[code]
                    log.info("queue removed", queue=code)

    async def drop_expired(self) -> int:
        count = 0
        while True:
            dropped = await self._context.store.drop_expired(
                self._context.clock.now(), _EXPIRE_AT_ONCE
            )
            found = sum(len(one.numbers) + one.held for one in dropped)
            for one in dropped:
                live = self._live.get(one.queue)
                if live is not None:
                    live.dropped(one.numbers, one.held)
            self._context.metrics.left["expired"] += found
            count += found
            if found < _EXPIRE_AT_ONCE:
                return count

    async def release(self, code: str) -> int:
        """Deliver again what consumers of a queue had refused."""
        released = await self._context.store.release(code)
        live = self._live.get(code)
        if live is not None and released:
            live.rewind(released)
        return released
