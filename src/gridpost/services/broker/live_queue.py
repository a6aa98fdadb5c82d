"""One queue while the broker runs: which message goes to which consumer next.

The law of this file: a message waits (see `waiting`), or is under way to exactly one consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog

from gridpost.core.links import OutgoingLink, SentDelivery
from gridpost.core.queues import (
    Hold,
    Operation,
    Queued,
    QueueState,
    Released,
    Remove,
    expired_row,
)
from gridpost.core.refusal import Refusal
from gridpost.services.broker.context import BrokerContext, sent_row
from gridpost.services.broker.served_queue import ServedQueue, Taker
from gridpost.services.broker.waiting import Memory, Waiting
from gridpost.wire.mades.passing import passing_header

log = structlog.get_logger(__name__)

_KEEP: Final = 64 * 1024
"""A larger body is not kept while its message is under way: it is loaded again if it comes back."""
_MILLISECOND: Final = timedelta(milliseconds=1)


class LiveQueue(ServedQueue):
    def __init__(self, context: BrokerContext, memory: Memory, state: QueueState) -> None:
        super().__init__(context, state)
        self._store = context.store
        self._leaving: set[int] = set()
        self._waiting = Waiting(context, memory, state, self._under_way, self.pump, self.dropped)

    # ------------------------------------------------------------ links

    def discard(self, taker: Taker) -> None:
        self.takers.remove(taker)
        self.idle_since = self._context.clock.now()
        self.pump()

    @property
    def oldest_at(self) -> datetime | None:
        if not self.depth:
            return None
        heads = self._waiting.heads()
        if self._under_way:
            heads.append(next(iter(self._under_way.values())).stored_at)
        return min(heads, default=self._oldest)

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

    def _send(self, link: OutgoingLink, message: Queued, now: datetime) -> None:
        ttl = (message.expires_at - now) // _MILLISECOND
        header = passing_header(message.priority, ttl, message.deliveries)
        content = message.content
        assert content is not None
        self._context.sent(message)
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
            Remove(self.code, message, row, awaited=not settled),
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

    def gave_back(self, message: Queued, *, failed: bool, said: bool = False) -> None:
        """Not delivered: it is the next one again, for whoever has credit.

        `said`: by the word of its consumer, which may fail at it again and again.
        """
        if self._under_way.pop(message.number, None) is None:
            return
        if failed:
            self._count_failure(message)
        if not said or not self._waiting.put_off.add(message):
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
            Remove(self.code, message, expired_row(self.code, message, now), awaited=False),
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
        self._context.passed(operation.row, message)
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

    def dropped(self, sizes: Mapping[int, int], held: int = 0) -> None:
        """The store dropped expired messages, and so many more that were on hold."""
        self.held = max(0, self.held - held)
        gone = set(sizes)
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
                self.octets -= sizes[number]
        self.depth, self.octets = max(0, self.depth), max(0, self.octets)

    def rewind(self, released: Released) -> None:
        """Messages came off hold: they are read from the store again, in their order."""
        self.held = max(0, self.held - released.messages)
        self.depth += released.messages
        self.octets += released.octets
        self._waiting.rewind()
        self.pump()
