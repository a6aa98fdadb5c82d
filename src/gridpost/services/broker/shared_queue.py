"""One queue of an edge: other edges serve it too, and messages come from the store by themselves.

The law of this file: a message that the store handed over is waiting, under way to one consumer, or
leaving. When no consumer is left, or the store is lost, all of them are the store's again.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog

from gridpost.core.links import OutgoingLink, SentDelivery
from gridpost.core.queues import (
    Hold,
    Queued,
    QueueState,
    Released,
    Remove,
    SharedQueueStore,
    expired_row,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.broker.context import BrokerContext, sent_row
from gridpost.services.broker.served_queue import PutOff, ServedQueue, Taker
from gridpost.wire.mades.passing import passing_header

log = structlog.get_logger(__name__)

_MILLISECOND: Final = timedelta(milliseconds=1)
_DRAIN_AGAIN: Final = 0.02
_SKIP: Final = 5


class SharedQueue(ServedQueue):
    """What `LiveQueue` is for a store of its own."""

    def __init__(self, context: BrokerContext, store: SharedQueueStore, state: QueueState) -> None:
        super().__init__(context, state)
        self._store = store
        self._waiting: list[tuple[int, Queued]] = []
        self._put_off = PutOff(context, self._handed_over)
        self._subscribed = False
        self._draining: asyncio.Task[None] | None = None
        self.changes = 0
        self._skipped = 0

    # ------------------------------------------------------------ links

    def discard(self, taker: Taker) -> None:
        self.takers.remove(taker)
        self.idle_since = self._context.clock.now()
        if self.takers:
            self.pump()
        else:
            self._give_all_back()

    @property
    def oldest_at(self) -> datetime | None:
        """Of those that are here and, if the store tells, as last asked of all."""
        if not self.depth:
            return None
        here = [message for _, message in self._waiting]
        here += [*self._under_way.values(), *self._put_off.messages.values()]
        return min((message.stored_at for message in here), default=self._oldest)

    def refresh(self, state: QueueState, changes: int) -> None:
        """What the store counted, of all edges together, begun when `changes` was so much."""
        if changes != self.changes and self._skipped < _SKIP:
            # Messages came or went meanwhile: our own count is the better one.
            self._skipped += 1
            return
        self._skipped = 0
        self.depth, self.held = state.depth, state.held
        self.octets, self._oldest = state.octets, state.oldest_at

    def arrived(self, message: Queued) -> None:
        """Safe in the store, which hands it to whichever edge has a consumer."""
        self.depth += 1
        self.changes += 1
        message.content = None

    # ------------------------------------------------------------ leaving

    def pump(self) -> None:
        """Take as much from the store as consumers have credit for, and send it."""
        takers = self.takers
        if not takers or self._store.trouble is not None:
            return
        now = self._context.clock.now()
        while self._waiting:
            message = self._waiting[0][1]
            if message.expires_at <= now:
                # 503 cl. 5.7: never transferred.
                heapq.heappop(self._waiting)
                self._expire(message, now)
                continue
            taker = self._next_taker(message.number)
            if taker is None:
                break
            heapq.heappop(self._waiting)
            self._send(taker.link, message, now)
        # What is under way or put off stands in nobody's way.
        credit = sum(taker.link.sendable for taker in takers)
        credit += len(self._under_way) + len(self._put_off)
        if credit or self._subscribed:
            self._subscribed = True
            self._store.subscribe(self.code, credit, self._handed_over)
        if not self._waiting and any(taker.link.draining for taker in takers):
            self._drain()

    def _handed_over(self, message: Queued) -> None:
        heapq.heappush(self._waiting, (message.number, message))
        self.pump()

    def _send(self, link: OutgoingLink, message: Queued, now: datetime) -> None:
        ttl = (message.expires_at - now) // _MILLISECOND
        content = message.content
        assert content is not None
        self._context.sent(message)
        self._under_way[message.number] = message
        header = passing_header(message.priority, ttl, message.deliveries)
        link.send(header, content, context=message)

    def _drain(self) -> None:
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drained())
            self._draining.add_done_callback(self._drain_ended)

    async def _drained(self) -> None:
        """AMQP 2.6.7: the credit goes back when the store has nothing more for it."""
        while any(taker.link.draining for taker in self.takers) and not self._waiting:
            if await self._store.waiting(self.code) or self._waiting:
                await asyncio.sleep(_DRAIN_AGAIN)
                continue
            for taker in list(self.takers):
                if taker.link.draining:
                    taker.link.drained()

    def _drain_ended(self, task: asyncio.Task[None]) -> None:
        self._draining = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("not drained", queue=self.code, why=str(error))

    # ------------------------------------------------------------ outcomes

    def taken(self, delivery: SentDelivery, message: Queued, *, settled: bool) -> None:
        """The consumer has it: gone once that is safe, settled after that (503 cl. 5.8.1)."""
        row = sent_row(self._context.clock.now(), self.code, message, "accepted")
        self._leave(
            Remove(self.code, message, row), "delivered", None if settled else delivery.settle
        )
        self._context.metrics.octets_out += message.size

    def rejected(
        self, delivery: SentDelivery, message: Queued, reason: str, *, settled: bool
    ) -> None:
        row = sent_row(self._context.clock.now(), self.code, message, "rejected", reason)
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
        if not said or not self._put_off.add(message):
            heapq.heappush(self._waiting, (message.number, message))

    def removal(self, message: Queued) -> Remove:
        """For a transaction: what it does when it succeeds."""
        if message.number not in self._under_way:
            raise Refusal(Rule.STORE_UNREACHABLE, "the message is the store's again")
        row = sent_row(self._context.clock.now(), self.code, message, "accepted")
        return Remove(self.code, message, row)

    def removed(self, message: Queued) -> None:
        """A transaction has removed it."""
        self.changes += 1
        if self._under_way.pop(message.number, None) is not None:
            self.depth = max(0, self.depth - 1)
        self._context.metrics.left["delivered"] += 1

    def _expire(self, message: Queued, now: datetime) -> None:
        self._under_way[message.number] = message
        self._leave(
            Remove(self.code, message, expired_row(self.code, message, now)), "expired", None
        )

    def _leave(
        self, operation: Remove | Hold, outcome: str, settle: Callable[[], None] | None
    ) -> None:
        if operation.message.number in self._under_way:
            self._store.submit((operation,), partial(self._left, operation, outcome, settle))
        # Otherwise it is the store's again, and will be delivered once more: not settled.

    def _left(
        self,
        operation: Remove | Hold,
        outcome: str,
        settle: Callable[[], None] | None,
        refusal: Refusal | None,
    ) -> None:
        message = operation.message
        if refusal is not None:
            # Nothing is lost: it stays under way, unsettled, until the journal takes its row.
            log.error("not removed", queue=self.code, number=message.number, why=refusal.message)
            asyncio.get_running_loop().call_later(
                self._context.settings.retry.total_seconds(),
                self._leave,
                operation,
                outcome,
                settle,
            )
            return
        self.changes += 1
        if self._under_way.pop(message.number, None) is not None:
            self.depth = max(0, self.depth - 1)
        self._context.metrics.left[outcome] += 1
        self._context.passed(operation.row, message)
        if settle is not None:
            settle()

    # ------------------------------------------------------------ the store

    def _give_all_back(self) -> None:
        self._waiting.clear()
        self._put_off.clear()
        if self._subscribed:
            self._subscribed = False
            self._store.unsubscribe(self.code)

    def lost(self) -> None:
        """The store is out of reach: what it handed over is no longer ours."""
        self._waiting.clear()
        self._put_off.clear()
        self._under_way.clear()
        self._subscribed = False

    def dropped(self, sizes: Mapping[int, int], held: int = 0) -> None:
        """Expired messages that the store found by itself show in its next count."""

    def rewind(self, released: Released) -> None:
        """Messages came off hold; the store hands them over like all others."""
        self.held = max(0, self.held - released.messages)
        self.depth += released.messages
        self.octets += released.octets
