"""Queues that live as long as their process: the twin of the durable ones, with the same contract."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import uuid4

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
    Released,
    Remove,
    Space,
    expired_row,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.memory.journal import MemoryJournal
from gridpost.stores.memory.state import State

T = TypeVar("T")


@dataclass
class _Queue:
    active: bool = True
    ready: dict[int, Queued] = field(default_factory=dict)
    held: dict[int, Queued] = field(default_factory=dict)


class MemoryQueueStore:
    """core.queues.QueueStore."""

    capabilities = Capabilities()
    trouble: Refusal | None = None

    def __init__(self, component: str, clock: Clock, max_octets: int = 0) -> None:
        self.identity = Identity(component, str(uuid4()))
        self.max_octets = max_octets
        self._clock = clock
        self._queues: dict[str, _Queue] = {}
        self._known: dict[tuple[str, str], datetime] = {}
        self._number = 0
        self._journal = MemoryJournal(State())

    @property
    def space(self) -> Space:
        used = sum(m.size for q in self._queues.values() for m in q.ready.values())
        full = bool(self.max_octets) and used > self.max_octets
        return Space(0, used, refusing=full, reason="the store is full" if full else "")

    def set_marks(self, *, min_free: int, max_used: int) -> None:
        self.max_octets = max_used

    def submit(self, operations: Sequence[Operation], done: Done) -> None:
        refusal = None
        if self.space.refusing and any(type(operation) is Put for operation in operations):
            refusal = Refusal(Rule.STORE_FULL, "no room for new messages")
        else:
            for operation in operations:
                self._apply(operation)
        asyncio.get_running_loop().call_soon(done, refusal)

    def _apply(self, operation: Operation) -> None:
        if isinstance(operation, Put):
            self._put(operation)
        elif isinstance(operation, Remove):
            self._queues[operation.queue].ready.pop(operation.message.number, None)
        elif isinstance(operation, CountFailure):
            stored = self._queues[operation.queue].ready.get(operation.message.number)
            if stored is not None:
                stored.deliveries = operation.message.deliveries
        elif isinstance(operation, Hold):
            queue = self._queues[operation.queue]
            stored = queue.ready.pop(operation.message.number, None)
            if stored is not None:
                queue.held[stored.number] = stored
        row = operation.written() if isinstance(operation, Put) else operation.row
        if row is not None:
            self._journal.append(row)

    def _put(self, put: Put) -> None:
        queue = self._queues.setdefault(put.queue, _Queue())
        queue.active = True
        key = (put.queue, put.message.message_id.lower())
        until = self._known.get(key)
        self._number += 1
        put.message.number = self._number
        put.duplicate = until is not None and until > self._clock.now()
        if not put.duplicate:
            self._known[key] = put.message.expires_at
            content = put.message.content
            queue.ready[self._number] = replace(
                put.message, content=None if content is None else bytes(content)
            )

    def handed_out(self, queue: str, number: int) -> None:
        """A crash leaves nothing to count."""

    async def queues(self) -> Sequence[QueueState]:
        return [
            QueueState(
                code,
                len(queue.ready),
                sum(message.size for message in queue.ready.values()),
                len(queue.held),
                max(queue.ready, default=0),
                min((m.stored_at for m in queue.ready.values()), default=None),
            )
            for code, queue in sorted(self._queues.items())
            if queue.active
        ]

    async def create(self, queue: str) -> None:
        self._queues.setdefault(queue, _Queue()).active = True

    async def remove(self, queue: str) -> bool:
        found = self._queues.get(queue)
        if found is None or not found.active or found.ready or found.held:
            return False
        found.active = False
        return True

    async def read(self, queue: str, after: int, limit: int, max_octets: int) -> Sequence[Queued]:
        answer: list[Queued] = []
        octets = 0
        found = self._queues.get(queue)
        for number, message in sorted(found.ready.items()) if found else ():
            if number <= after:
                continue
            octets += message.size
            if len(answer) == limit or (octets > max_octets and answer):
                break
            answer.append(replace(message))
        return answer

    async def load(self, queue: str, number: int) -> Octets | None:
        message = self._queues[queue].ready.get(number)
        return None if message is None else message.content

    async def release(self, queue: str) -> Released:
        found = self._queues.get(queue)
        if found is None:
            return Released()
        released = Released(len(found.held), sum(m.size for m in found.held.values()))
        found.ready |= found.held
        found.held = {}
        return released

    async def drop_expired(self, now: datetime, limit: int) -> Sequence[Dropped]:
        dropped = []
        for code, queue in self._queues.items():
            gone: list[dict[int, int]] = [{}, {}]
            for place, sizes in zip((queue.ready, queue.held), gone, strict=True):
                for number, message in list(place.items()):
                    if message.expires_at <= now and limit > 0:
                        limit -= 1
                        del place[number]
                        sizes[number] = message.size
                        self._journal.append(expired_row(code, message, now))
            if any(gone):
                dropped.append(Dropped(code, gone[0], len(gone[1])))
        return dropped

    async def forget(self, now: datetime) -> int:
        gone = [key for key, until in self._known.items() if until <= now]
        for key in gone:
            del self._known[key]
        return len(gone)

    async def journal(self, work: Callable[[Journal], T]) -> T:
        return work(self._journal)

    async def prune(self, now: datetime, retention: timedelta) -> int:
        return await self.journal(lambda journal: journal.prune(now, retention))

    async def probe(self) -> timedelta:
        return timedelta(0)

    async def close(self) -> None:
        """Nothing to let go of."""
