"""One queue while the broker runs: which message goes to which consumer next.

The law of this file: a message waits (see `waiting`), or is under way to exactly one consumer.
"""

from __future__ import annotations

import asyncio
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
from gridpost.services.broker.waiting import Memory, Waiting
from gridpost.wire.mades.passing import passing_header

log = structlog.get_logger(__name__)

_KEEP: Final = 64 * 1024
"""A larger body is not kept while its message is under way: it is loaded again if it comes back."""
_MILLISECOND: Final = timedelta(milliseconds=1)


class Taker(Protocol):
    """A consumer, as its queue sees it."""

    @property
    def link(self) -> OutgoingLink: ...

    @property
    def refused(self) -> set[int]:
        """Numbers that must not come again on this link (AMQP 3.4.5, undeliverable-here)."""
        ...


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
        self._under_way: dict[int, Queued] = {}
        self._leaving: set[int] = set()
        self._waiting = Waiting(context, memory, state, self._under_way, self.pump, self.dropped)
        self._turn = 0

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
        heads = self._waiting.heads()
        if self._under_way:
            heads.append(next(iter(self._under_way.values())).stored_at)
        return min(heads, default=self._oldest)

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    # ------------------------------------------------------------ arriving

    def arrived(self, message: Queued) -> None:
        """A message is safe in the store; it may be in the window already, read from there."""
        self.depth += 1
        self.octets += message.size
        if self._waiting.arrived(message) and self.takers:
            self.pump()

    # ------------------------------------------------------------ leaving

    def pump(self) -> None:
        """Send as long as there is a message and a consumer with credit for it."""
        takers = self.takers
        if not takers:
            return
        now = self._context.clock.now()
        waiting = self._waiting
        sent = 0
        while True:
            message = waiting.head()
            if message is None:
                break
            if message.expires_at <= now:
                # 503 cl. 5.7: never transferred.
                waiting.pop(message)
                self._expire(message, now)
                continue
            taker = self._next_taker(message.number)
            if taker is None:
                break
            if message.content is None:
                waiting.load_ahead()
                break
            waiting.pop(message)
            self._send(taker.link, message, now)
            sent = max(sent, message.number)
        if sent:
            self._store.handed_out(self.code, sent)
        if not waiting.fill() and message is None and not waiting.behind:
            for taker in list(takers):
                if taker.link.draining:
                    taker.link.drained()

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
            self._waiting.drop_content(message)
        link.send(header, content, context=message)

    # ------------------------------------------------------------ outcomes

    def taken(self, delivery: SentDelivery, message: Queued, *, settled: bool) -> None:
        """The consumer has it: gone once that is safe, settled after that (503 cl. 5.8.1)."""
        row = sent_row(self._context.clock.now(), self.code, message, "accepted")
        self._waiting.drop_content(message)
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
        self._waiting.drop_content(message)
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
        self._waiting.give_back(message)

    def removal(self, message: Queued) -> Remove:
        """For a transaction: what it does when it succeeds."""
        row = sent_row(self._context.clock.now(), self.code, message, "accepted")
        return Remove(self.code, message, row)

    def removed(self, message: Queued) -> None:
        """A transaction has removed it."""
        self._waiting.drop_content(message)
        if self._under_way.pop(message.number, None) is not None:
            self._count_out(message)
            self._context.metrics.left["delivered"] += 1

    def _expire(self, message: Queued, now: datetime) -> None:
        self._waiting.drop_content(message)
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
        for message in self._waiting.take_out(gone):
            self._count_out(message)
            gone.discard(message.number)
        for number in gone - self._leaving:
            known = self._under_way.pop(number, None)
            if known is not None:
                self._waiting.drop_content(known)
                self._count_out(known)
            else:
                # Behind the window.
                self.depth -= 1
        self.depth = max(0, self.depth)

    def rewind(self, released: int) -> None:
        """Messages came off hold: they are read from the store again, in their order."""
        self.held = max(0, self.held - released)
        self.depth += released
        self._waiting.rewind()
        self.pump()
