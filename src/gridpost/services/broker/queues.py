"""All queues of a running broker: which exist, when one comes into being and when it goes.

503 cl. 6.3: dynamic. A queue is made when a link validly refers to it, and removed when it is empty
and no link has referred to it for a time that the administrator sets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import cast

import structlog

from gridpost.core.queues import QueueState, SharedQueueStore
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.broker.context import BrokerContext
from gridpost.services.broker.live_queue import LiveQueue
from gridpost.services.broker.shared_queue import SharedQueue
from gridpost.services.broker.waiting import Memory

log = structlog.get_logger(__name__)

_EXPIRE_AT_ONCE = 1_000

AnyQueue = LiveQueue | SharedQueue


class Queues:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._memory = Memory(context.settings.memory_octets)
        self._live: dict[str, AnyQueue] = {}
        self._lock = asyncio.Lock()
        self._locked_out: set[str] = set()

    def __iter__(self) -> Iterator[AnyQueue]:
        return iter(sorted(self._live.values(), key=lambda queue: queue.code))

    def get(self, code: str) -> AnyQueue | None:
        return self._live.get(code)

    def configure(self) -> None:
        self._memory.limit = self._context.settings.memory_octets

    async def open(self) -> None:
        """Take up what the store holds."""
        for state in await self._context.store.queues():
            self._live[state.code] = self._make(state)

    def _make(self, state: QueueState) -> AnyQueue:
        shared = self._shared
        if shared is not None:
            return SharedQueue(self._context, shared, state)
        return LiveQueue(self._context, self._memory, state)

    @property
    def _shared(self) -> SharedQueueStore | None:
        store = self._context.store
        return cast(SharedQueueStore, store) if store.capabilities.shared else None

    async def refer(self, code: str) -> AnyQueue:
        """The queue for a link that may have it."""
        async with self._lock:
            if code in self._locked_out:
                raise Refusal(Rule.QUEUE_IN_USE, f"the queue {code} is being removed")
            live = self._live.get(code)
            if live is None or self._shared is not None:
                await self._context.store.create(code)
            if live is None:
                live = self._live[code] = self._make(QueueState(code, 0, 0, 0, 0))
                log.info("queue created", queue=code)
            return live

    async def remove_idle(self) -> None:
        before = self._context.clock.now() - self._context.settings.queue_idle
        removes, shared = self._context.store.capabilities.removes_queues, self._shared
        for code, live in list(self._live.items()):
            async with self._lock:
                if live.referred or live.idle_since > before:
                    continue
                if shared is not None:
                    await shared.leave(code)
                if not removes or live.depth or live.held:
                    continue
                remove = self._context.store.remove if shared is None else shared.remove_idle
                if await remove(code):
                    del self._live[code]
                    log.info("queue removed", queue=code)

    @asynccontextmanager
    async def locked_out(self, code: str) -> AsyncIterator[AnyQueue | None]:
        """While the block lasts no link comes to the queue."""
        async with self._lock:
            if code in self._locked_out:
                raise Refusal(Rule.QUEUE_IN_USE, f"the queue {code} is being removed already")
            self._locked_out.add(code)
        try:
            yield self._live.get(code)
        finally:
            self._locked_out.discard(code)

    async def remove(self, code: str) -> bool:
        """By an administrator; the caller has locked it out."""
        removed = await self._context.store.remove(code)
        if removed:
            self._live.pop(code, None)
            log.info("queue removed", queue=code)
        return removed

    async def leave(self, code: str) -> None:
        """Another edge removes the queue, and no link leads to it any more."""
        if self._shared is not None:
            await self._shared.leave(code)

    def lost(self) -> None:
        """A shared store is out of reach."""
        for live in self._live.values():
            if isinstance(live, SharedQueue):
                live.lost()

    async def refresh(self) -> None:
        """What only a shared store knows: how much is in a queue, by all edges."""
        if self._shared is None or self._shared.trouble is not None:
            return
        before = {q.code: q.changes for q in self._live.values() if isinstance(q, SharedQueue)}
        states = {state.code: state for state in await self._shared.queues()}
        if self._shared.trouble is not None:
            return
        async with self._lock:
            for code, state in states.items():
                live = self._live.get(code)
                if isinstance(live, SharedQueue):
                    live.refresh(state, before.get(code, live.changes))
                else:
                    self._live[code] = self._make(state)
            for code in before.keys() - states.keys():
                # Another edge has removed it.
                known = self._live.get(code)
                if known is not None and not known.referred:
                    del self._live[code]

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
                    live.dropped(one.sizes, one.held)
            self._context.metrics.left["expired"] += found
            count += found
            if found < _EXPIRE_AT_ONCE:
                return count

    async def release(self, code: str) -> int:
        """Deliver again what consumers of a queue had refused."""
        released = await self._context.store.release(code)
        live = self._live.get(code)
        if live is not None and released.messages:
            live.rewind(released)
        return released.messages
