"""One queue while the broker runs: which message goes to which consumer next.

In memory is a window at the head of the queue; what is behind it stays in the store until the
window has room. The law of this file: a message is in exactly one of four places: behind the
window, in the window, given back, or under way to one consumer.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol

import structlog

from gridpost.core.links import OutgoingLink, SentDelivery
from gridpost.core.queues import (
    CountFailure,
    Hold,
    Operation,
    Queued,
    QueueState,
    Remove,
    expired_row,
)
from gridpost.core.refusal import Refusal
from gridpost.services.broker.context import BrokerContext, sent_row
from gridpost.wire.mades.passing import passing_header

log = structlog.get_logger(__name__)

_BATCH: Final = 256
_KEEP: Final = 64 * 1024
"""A larger body is not kept while its message is under way: it is loaded again if it comes back."""
_AHEAD: Final = 4
"""Bodies that are loaded before it is their turn."""
_MILLISECOND: Final = timedelta(milliseconds=1)


class Taker(Protocol):
    """A consumer, as its queue sees it."""

    @property
    def link(self) -> OutgoingLink: ...

    @property
    def refused(self) -> set[int]:
        """Numbers that must not come again on this link (AMQP 3.4.5, undeliverable-here)."""
        ...


class Memory:
    """Octets of bodies that are in memory, of all queues together."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class LiveQueue:
    def __init__(self, context: BrokerContext, memory: Memory, state: QueueState) -> None:
        self.code = state.code
        self.depth = state.depth
        self.octets = state.octets
        self.held = state.held
        self.producers = 0
        self.takers: list[Taker] = []
        self.idle_since: datetime = context.clock.now()
        self._oldest = state.oldest_at
        self._context = context
        self._store = context.store
        self._memory = memory
        self._window: deque[Queued] = deque()
        self._window_octets = 0
        self._window_end = 0
        self._last = state.last_number
        self._returned: list[tuple[int, Queued]] = []
        self._under_way: dict[int, Queued] = {}
        self._leaving: set[int] = set()
        self._reading = False
        self._loading: set[int] = set()
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------ links

    @property
    def referred(self) -> bool:
        return bool(self.producers or self.takers)

    def add(self, taker: Taker) -> None:
        self.takers.append(taker)

    def discard(self, taker: Taker) -> None:
        self.takers.remove(taker)
        self.idle_since = self._context.clock.now()
        self.pump()

    def producer_left(self) -> None:
        self.producers -= 1
        self.idle_since = self._context.clock.now()

    @property
    def oldest_at(self) -> datetime | None:
        if not self.depth:
            return None
        heads = [self._returned[0][1]] if self._returned else []
        heads += [self._window[0]] if self._window else []
        heads += [next(iter(self._under_way.values()))] if self._under_way else []
        return min((head.stored_at for head in heads), default=self._oldest)

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    # ------------------------------------------------------------ arriving

    def arrived(self, message: Queued) -> None:
        """A message is safe in the store; it may be in the window already, read from there."""
        self.depth += 1
        self.octets += message.size
        behind = self._behind
        self._last = max(self._last, message.number)
        if message.number <= self._window_end:
            return
        if not behind and self._fits(message.size):
            self._window_end = message.number
            self._append(message)
        else:
            message.content = None
        if self.takers:
            self.pump()

    @property
    def _behind(self) -> bool:
        return self._last > self._window_end

    def _fits(self, size: int) -> bool:
        settings = self._context.settings
        return (
            len(self._window) < settings.window_messages
            and self._window_octets + size <= max(settings.window_octets, size)
            and self._memory.used + size <= self._memory.limit
        )

    def _append(self, message: Queued) -> None:
        self._window.append(message)
        self._hold(message)

    def _hold(self, message: Queued) -> None:
        if message.content is not None:
            self._window_octets += message.size
            self._memory.used += message.size

    def _drop_content(self, message: Queued) -> None:
        if message.content is not None:
            message.content = None
            self._window_octets -= message.size
            self._memory.used -= message.size

    # ------------------------------------------------------------ leaving

    def pump(self) -> None:
        """Send as long as there is a message and a consumer with credit for it."""
        takers = self.takers
        if not takers:
            return
        now = self._context.clock.now()
        while True:
            message = self._head()
            if message is None:
                break
            if message.expires_at <= now:
                # 503 cl. 5.7: never transferred.
                self._pop(message)
                self._expire(message, now)
                continue
            taker = self._next_taker(message.number)
            if taker is None:
                break
            if message.content is None:
                self._load_ahead()
                break
            self._pop(message)
            self._send(taker.link, message, now)
        if len(self._window) < _BATCH // 2 and self._behind:
            self._read()
        elif message is None and not self._behind:
            for taker in list(takers):
                if taker.link.draining:
                    taker.link.drained()

    def _head(self) -> Queued | None:
        returned, window = self._returned, self._window
        if returned and (not window or returned[0][0] < window[0].number):
            return returned[0][1]
        return window[0] if window else None

    def _pop(self, message: Queued) -> None:
        if self._window and self._window[0] is message:
            self._window.popleft()
        else:
            heapq.heappop(self._returned)

    def _next_taker(self, number: int) -> Taker | None:
        """The next in turn that has credit: several consumers share a queue fairly."""
        takers = self.takers
        count = len(takers)
        for step in range(count):
            at = (self._turn + step) % count
            taker = takers[at]
            if taker.link.sendable and number not in taker.refused:
                self._turn = at + 1
                return taker
        return None

    def _send(self, link: OutgoingLink, message: Queued, now: datetime) -> None:
        ttl = (message.expires_at - now) // _MILLISECOND
        header = passing_header(message.priority, ttl, message.deliveries)
        content = message.content
        assert content is not None
        self._under_way[message.number] = message
        if message.size > _KEEP:
            self._drop_content(message)
        link.send(header, content, context=message)

    # ------------------------------------------------------------ outcomes

    def taken(self, delivery: SentDelivery, message: Queued, *, settled: bool) -> None:
        """The consumer has it: gone once that is safe, settled after that (503 cl. 5.8.1)."""
        row = sent_row(self._context.clock.now(), self.code, message, "accepted")
        self._drop_content(message)
        self._leave(
            Remove(self.code, message, row),
            "delivered",
            None if settled else delivery.settle,
        )
        self._context.metrics.octets_out += message.size

    def rejected(
        self, delivery: SentDelivery, message: Queued, reason: str, *, settled: bool
    ) -> None:
        row = sent_row(self._context.clock.now(), self.code, message, "rejected", reason)
        self._drop_content(message)
        self.held += 1
        self._leave(
            Hold(self.code, message, reason or "rejected by the consumer", row),
            "held",
            None if settled else delivery.settle,
        )

    def gave_back(self, message: Queued, *, failed: bool) -> None:
        """Not delivered: it is the next one again, for whoever has credit."""
        if self._under_way.pop(message.number, None) is None:
            return
        if failed:
            message.deliveries += 1
            self._context.metrics.failed += 1
            row = sent_row(self._context.clock.now(), self.code, message, "not settled")
            self._store.submit((CountFailure(self.code, message, row),), self._counted)
        heapq.heappush(self._returned, (message.number, message))

    def removal(self, message: Queued) -> Remove:
        """For a transaction: what it does when it succeeds."""
        row = sent_row(self._context.clock.now(), self.code, message, "accepted")
        return Remove(self.code, message, row)

    def removed(self, message: Queued) -> None:
        """A transaction has removed it."""
        self._drop_content(message)
        if self._under_way.pop(message.number, None) is not None:
            self._count_out(message)
            self._context.metrics.left["delivered"] += 1

    def _expire(self, message: Queued, now: datetime) -> None:
        self._drop_content(message)
        self._under_way[message.number] = message
        self._leave(
            Remove(self.code, message, expired_row(self.code, message, now)),
            "expired",
            None,
        )

    def _leave(
        self, operation: Remove | Hold, outcome: str, settle: Callable[[], None] | None
    ) -> None:
        number = operation.message.number
        if number not in self._under_way:
            # Expired while it was under way, and dropped.
            if settle is not None:
                settle()
            return
        self._leaving.add(number)
        self._store.submit((operation,), partial(self._left, operation, outcome, settle))

    def _left(
        self,
        operation: Remove | Hold,
        outcome: str,
        settle: Callable[[], None] | None,
        refusal: Refusal | None,
    ) -> None:
        message = operation.message
        if refusal is not None:
            # Nothing is lost: it stays under way, unsettled, until the disk takes it.
            log.error("not removed", queue=self.code, number=message.number, why=refusal.message)
            asyncio.get_running_loop().call_later(
                self._context.settings.retry.total_seconds(),
                self._again,
                operation,
                partial(self._left, operation, outcome, settle),
            )
            return
        self._leaving.discard(message.number)
        if self._under_way.pop(message.number, None) is not None:
            self._count_out(message)
        self._context.metrics.left[outcome] += 1
        if settle is not None:
            settle()

    def _again(self, operation: Operation, done: Callable[[Refusal | None], None]) -> None:
        try:
            self._store.submit((operation,), done)
        except RuntimeError:
            # The store was closed: the message is still in it, and will be delivered again.
            return

    def _count_out(self, message: Queued) -> None:
        self.depth -= 1
        self.octets -= message.size
        if not self.depth:
            self.idle_since = self._context.clock.now()

    def _counted(self, refusal: Refusal | None) -> None:
        if refusal is not None:
            log.error("delivery not counted", queue=self.code, why=refusal.message)

    def dropped(self, numbers: Iterable[int], held: int = 0) -> None:
        """The store dropped expired messages, and so many more that were on hold."""
        self.held = max(0, self.held - held)
        gone = set(numbers)
        for message in [m for m in self._window if m.number in gone]:
            self._window.remove(message)
            self._drop_content(message)
            self._count_out(message)
            gone.discard(message.number)
        kept = []
        for number, message in self._returned:
            if number in gone:
                self._drop_content(message)
                self._count_out(message)
                gone.discard(number)
            else:
                kept.append((number, message))
        heapq.heapify(kept)
        self._returned = kept
        for number in gone - self._leaving:
            known = self._under_way.pop(number, None)
            if known is not None:
                self._drop_content(known)
                self._count_out(known)
            else:
                # Behind the window.
                self.depth -= 1
        self.depth = max(0, self.depth)

    # ------------------------------------------------------------ from the store

    def rewind(self, released: int) -> None:
        """Messages came off hold: the window begins again from the store."""
        self.held = max(0, self.held - released)
        self.depth += released
        for message in self._window:
            self._drop_content(message)
        self._window.clear()
        self._window_end = 0
        self._last = max(self._last, 1)
        self.pump()

    def _read(self) -> None:
        if not self._reading:
            self._reading = True
            self._start(self._read_behind())

    async def _read_behind(self) -> None:
        settings = self._context.settings
        last, after = self._last, self._window_end
        room = max(0, settings.window_octets - self._window_octets)
        try:
            found = await self._store.read(self.code, after, _BATCH, room)
        finally:
            self._reading = False
        if self._window_end != after:
            # Rewound meanwhile: this is not what comes next.
            self.pump()
            return
        # Only after a rewind can something be read that is elsewhere already.
        elsewhere = self._under_way.keys() | {number for number, _ in self._returned}
        for message in found:
            self._window_end = message.number
            if message.number not in elsewhere:
                self._append(message)
        if not found:
            # Everything up to what was the last number has left meanwhile.
            self._window_end = max(self._window_end, last)
        self.pump()

    def _load_ahead(self) -> None:
        """Large bodies, and those that were dropped while their message was under way."""
        wanted = [message for _, message in heapq.nsmallest(_AHEAD, self._returned)]
        for message in self._window:
            if len(wanted) >= _AHEAD:
                break
            wanted.append(message)
        for at, message in enumerate(wanted):
            if message.content is None and message.number not in self._loading:
                # The first has to come whatever it costs, or nothing would move.
                if at and self._memory.used + message.size > self._memory.limit:
                    break
                self._loading.add(message.number)
                self._start(self._load(message))

    async def _load(self, message: Queued) -> None:
        try:
            content = await self._store.load(self.code, message.number)
        finally:
            self._loading.discard(message.number)
        if content is None:
            self.dropped([message.number])
        elif message.content is None and message.number not in self._under_way:
            message.content = content
            self._hold(message)
        self.pump()

    def _start(self, work: object) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("queue could not be read", queue=self.code, error=repr(error))
        asyncio.get_running_loop().call_later(
            self._context.settings.retry.total_seconds(), self.pump
        )
