"""What every queue of a running broker has: links, whose turn it is, when a failure is tried again.

503 cl. 6.3 wants first in, first out; a message that its consumer cannot take must not stop those
behind it (divergences, broker-redelivery). So a message that was given back as failed steps aside for
a while, which doubles with each failure, and comes back to its place at the head; meanwhile the
others pass in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

import structlog

from gridpost.core.links import OutgoingLink
from gridpost.core.queues import CountFailure, Queued, QueueState
from gridpost.core.refusal import Refusal
from gridpost.services.broker.context import BrokerContext, sent_row

log = structlog.get_logger(__name__)


class Taker(Protocol):
    """A consumer, as its queue sees it."""

    @property
    def link(self) -> OutgoingLink: ...

    @property
    def refused(self) -> set[int]:
        """Numbers that must not come again on this link (AMQP 3.4.5, undeliverable-here)."""
        ...


class ServedQueue:
    """Beside the law of its kind: what is under way is with exactly one consumer."""

    def __init__(self, context: BrokerContext, state: QueueState) -> None:
        self.code = state.code
        self.depth = state.depth
        self.octets = state.octets
        self.held = state.held
        self.producers = 0
        self.promised = 0
        """Messages that open transactions will put here: they may outlive the link they came on."""
        self.takers: list[Taker] = []
        self.idle_since: datetime = context.clock.now()
        self._oldest = state.oldest_at
        self._context = context
        self._under_way: dict[int, Queued] = {}
        self._turn = 0

    @property
    def referred(self) -> bool:
        return bool(self.producers or self.takers or self.promised)

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def add(self, taker: Taker) -> None:
        self.takers.append(taker)

    def producer_left(self) -> None:
        self.producers -= 1
        self.idle_since = self._context.clock.now()

    def promise_over(self) -> None:
        self.promised -= 1
        self.idle_since = self._context.clock.now()

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

    def _count_failure(self, message: Queued) -> None:
        """AMQP 3.2.1. Of many failures of one message the 1st, 2nd, 4th, 8th … are written down."""
        message.deliveries += 1
        self._context.metrics.failed += 1
        row = None
        if message.deliveries & (message.deliveries - 1) == 0:
            attempt = f"attempt {message.deliveries}"
            now = self._context.clock.now()
            row = sent_row(now, self.code, message, "not settled", attempt)
        operation = CountFailure(self.code, message, row)
        self._context.store.submit((operation,), self._counted)

    def _counted(self, refusal: Refusal | None) -> None:
        if refusal is not None:
            log.error("delivery not counted", queue=self.code, why=refusal.message)


class PutOff:
    """Messages that step aside after a failure; `due` is called with each when its time has come."""

    def __init__(self, context: BrokerContext, due: Callable[[Queued], None]) -> None:
        self._context = context
        self._due = due
        self._messages: dict[int, Queued] = {}

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def messages(self) -> dict[int, Queued]:
        return self._messages

    def add(self, message: Queued) -> bool:
        """One more failure, by the word of its consumer; False: it may be tried again at once."""
        message.failures += 1
        if message.failures < 2:
            return False
        settings = self._context.settings
        # The cap is reached long before 2 ** 32, whatever it is.
        pause = settings.redeliver_after * 2 ** min(message.failures - 2, 32)
        seconds = min(pause, settings.redeliver_at_most).total_seconds()
        self._messages[message.number] = message
        asyncio.get_running_loop().call_later(seconds, self._over, message)
        return True

    def take_out(self, numbers: set[int]) -> list[Queued]:
        found = self._messages.keys() & numbers
        return [self._messages.pop(number) for number in found]

    def clear(self) -> None:
        self._messages.clear()

    def _over(self, message: Queued) -> None:
        # It may have expired, or be the store's again and another object by now.
        if self._messages.get(message.number) is message:
            del self._messages[message.number]
            self._due(message)
