"""Joining queues to which links of this edge may lead, leaving them, removing one from under all edges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres import queue_work
from gridpost.stores.postgres.queue_feeds import Feeds
from gridpost.stores.postgres.queue_line import Line
from gridpost.stores.postgres.queue_standing import Standing
from gridpost.stores.postgres.transaction import Transaction

_LOCK_OUT = "\nlock-out "
"""In front of a queue that is being removed; no code begins so."""


class Links:
    def __init__(self, standing: Standing, line: Line, feeds: Feeds, removal: timedelta) -> None:
        self._standing = standing
        self._line = line
        self._feeds = feeds
        self._removal = removal
        self._locked: set[str] = set()

    def told(self, payload: str, lock_out: Callable[[str], None]) -> bool:
        """Did another edge tell us to let go of a queue?"""
        if not payload.startswith(_LOCK_OUT):
            return False
        queue = payload.removeprefix(_LOCK_OUT)
        if queue in self._standing.joined and queue not in self._locked:
            lock_out(queue)
        return True

    async def join(self, queue: str) -> None:
        if queue in self._standing.joined:
            return
        edge = self._standing.number
        if queue in self._locked:
            raise Refusal(Rule.QUEUE_IN_USE, f"the queue {queue} is being removed")

        def work(transaction: Transaction) -> None:
            queue_work.require_edge(transaction.connection, edge)
            queue_work.join(transaction.connection, queue, edge)

        await self._standing.run(work)
        if edge == self._standing.edge:
            self._standing.joined.add(queue)

    async def leave(self, queue: str) -> None:
        if queue in self._feeds or self._line.has_puts(queue) or queue not in self._standing.joined:
            return
        edge = self._standing.number
        self._standing.joined.discard(queue)
        await self._standing.run(lambda t: queue_work.leave(t.connection, queue, edge))

    async def remove(self, queue: str) -> bool:
        """Lock out consumers and producers of all edges, then remove the queue if it is empty."""
        if self._line.has_puts(queue):
            return False
        edge, run = self._standing.number, self._standing.run
        self._feeds.unsubscribe(queue)
        self._locked.add(queue)
        try:
            if not await run(lambda t: queue_work.lock_out(t.connection, queue, edge)):
                return False
            self._standing.joined.discard(queue)
            try:
                await self._lock_others_out(queue, edge)
                return await run(lambda t: queue_work.remove_queue(t.connection, queue, edge))
            finally:
                await run(lambda t: _let_in(t, queue, edge))
        finally:
            self._locked.discard(queue)

    async def remove_idle(self, queue: str) -> bool:
        if self._line.has_puts(queue) or queue in self._feeds:
            return False
        edge = self._standing.number
        self._standing.joined.discard(queue)
        return await self._standing.run(
            lambda t: queue_work.remove_queue(t.connection, queue, edge)
        )

    async def _lock_others_out(self, queue: str, edge: int) -> None:
        deadline = asyncio.get_running_loop().time() + self._removal.total_seconds()
        standing = self._standing
        while await standing.read(lambda t: queue_work.linked_elsewhere(t.connection, queue, edge)):
            if asyncio.get_running_loop().time() >= deadline:
                raise Refusal(
                    Rule.QUEUE_IN_USE, f"links of another edge still lead to the queue {queue}"
                )
            await standing.run(
                lambda t: queue_work.notify(t.connection, standing.channel, (_LOCK_OUT + queue,))
            )
            await asyncio.sleep(0.1)


def _let_in(transaction: Transaction, queue: str, edge: int) -> None:
    queue_work.leave(transaction.connection, queue, edge)
    queue_work.unlock(transaction.connection, queue, edge)
