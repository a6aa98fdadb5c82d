"""A queue that applications consume from: what is held, given back, and gone.

The law of this file: an item is with one consumer at a time, until that settles or disconnects; it
leaves the store only after somebody accepted it, and its delivery is settled only after that commit.
What waits is read from the store when somebody wants it, many at a time; nothing is polled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import structlog

from gridpost.core.links import Octets, Outcome, OutcomeKind, OutgoingLink, SentDelivery
from gridpost.core.refusal import Refusal

log = structlog.get_logger(__name__)

_STORE_PAUSE = 1.0
_READ_AT_ONCE = 256


@dataclass(slots=True)
class Item:
    """Something that waits in a lane, in the order of its number."""

    number: int
    key: str
    """By what its source knows it."""
    octets: tuple[Octets, ...]
    lane: str = ""
    expires_at: datetime | None = None
    accepted: bool = False
    """A consumer has it, and the store is about to know: nobody else gets it."""


class Source(Protocol):
    """Where the items of a queue are kept."""

    async def lanes(self) -> Sequence[str]:
        """The lanes in which something may wait."""
        ...

    async def read(self, lane: str, after: int, limit: int) -> tuple[Sequence[Item], bool]:
        """In order, and whether more may wait there now."""
        ...

    async def let_go(self) -> None:
        """Nobody consumes here: other processes may have what was read."""
        ...

    async def taken(self, items: Sequence[Item]) -> None:
        """They were accepted: durable when this returns; refuses when nothing was done."""
        ...

    def refused(self, item: Item, user: str, reason: str) -> bool:
        """A consumer rejects it. True: it is gone with that; False: it waits for another consumer."""
        ...

    def again(self, item: Item, count: int) -> tuple[Octets, ...]:
        """Its octets for one more delivery, after `count` that failed."""
        ...

    def over(self, item: Item) -> bool:
        """It has expired since it was read (503 cl. 5.7)."""
        ...


@dataclass(slots=True)
class _Lane:
    name: str
    after: int = 0
    dry: bool = False
    ready: deque[Item] = field(default_factory=deque)


class LiveQueue:
    """One queue with all its consumers."""

    def __init__(self, source: Source, at_once: int = _READ_AT_ONCE) -> None:
        self._source = source
        self._at_once = at_once
        self._lanes: dict[str, _Lane] = {}
        self._consumers: deque[QueueConsumer] = deque()
        self._held: dict[str, Item] = {}
        """With a consumer, or accepted and on its way to the store: not to be read again."""
        self._failures: dict[str, int] = {}
        """How often an item came back without having been looked at in peace."""
        self._accepted: list[tuple[Item, SentDelivery | None]] = []
        self._filling: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._letting_go: asyncio.Task[None] | None = None
        self._pumping = False
        self._known = False
        """Whether the lanes of the store have been asked for."""

    @property
    def consumers(self) -> int:
        return len(self._consumers)

    @property
    def held(self) -> int:
        return len(self._held)

    # ------------------------------------------------------------ what is new

    def arrived(self, lane: str = "") -> None:
        """Something was committed to this lane."""
        if not self._consumers:
            return
        found = self._lanes.get(lane)
        if found is None:
            self._lanes[lane] = _Lane(lane)
        else:
            found.dry = False
        self._fill()

    def again(self) -> None:
        """What the source holds has changed as a whole: everything that no consumer has is read anew."""
        for lane in self._lanes.values():
            lane.after, lane.dry = 0, False
            lane.ready.clear()
        self._known = False
        self.pump()

    def freed(self, lane: str = "") -> None:
        """Another process held something of this lane and does so no more: look from the beginning."""
        found = self._lanes.get(lane)
        if found is not None:
            found.after = 0
            found.ready.clear()
        self.arrived(lane)

    def forget_ahead(self) -> None:
        """The store was out of reach: whatever no consumer has yet is read again."""
        for lane in self._lanes.values():
            lane.after, lane.dry = 0, False
            lane.ready.clear()
        self._fill()

    def add(self, consumer: QueueConsumer) -> None:
        self._consumers.append(consumer)
        self.pump()

    def discard(self, consumer: QueueConsumer) -> None:
        self._consumers.remove(consumer)
        if self._consumers:
            self.pump()
            return
        # Nobody is there: what was read ahead is read again for the next one.
        self._lanes.clear()
        self._failures.clear()
        self._known = False
        self._letting_go = asyncio.get_running_loop().create_task(self._let_go())

    async def _let_go(self) -> None:
        # What was accepted, and what is being read, ends before that.
        for task in (self._filling, self._writing):
            if task is not None:
                await asyncio.wait([task])
        if self._consumers:
            return
        try:
            await self._source.let_go()
        except Refusal as refusal:
            # The process that cannot say so will be missed by the others.
            log.warning("queue not let go", reason=refusal.message, id=refusal.id)

    # ------------------------------------------------------------ feeding

    def pump(self) -> None:
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._round():
                pass
        finally:
            self._pumping = False
        if not self._known or self._thirsty():
            self._fill()

    def _round(self) -> bool:
        """Every consumer its share, in turn; did anybody get something?"""
        fed = False
        for _ in range(len(self._consumers)):
            self._consumers.rotate(-1)
            fed |= self._feed(self._consumers[-1])
        return fed and len(self._consumers) > 1

    def _feed(self, consumer: QueueConsumer) -> bool:
        link, fed = consumer.link, False
        share = max(1, link.sendable // len(self._consumers))
        while share and link.sendable:
            lane = self._best(consumer)
            if lane is None:
                break
            item = lane.ready.popleft()
            if self._source.over(item):
                continue
            failures = self._failures.get(item.key, 0)
            octets = self._source.again(item, failures) if failures else item.octets
            link.send(*octets, context=item)
            # The link has them; should the item come back, the store still does.
            item.octets = ()
            self._held[item.key] = item
            fed = True
            share -= 1
        if link.draining and self._exhausted(consumer):
            link.drained()
        return fed

    def _best(self, consumer: QueueConsumer) -> _Lane | None:
        """Of the lanes that it may have, the one whose first item came first."""
        best: _Lane | None = None
        for lane in self._lanes.values():
            if not lane.ready or not consumer.may_have(lane.name):
                continue
            if lane.ready[0].key in consumer.unwanted and not self._skip_unwanted(lane, consumer):
                continue
            if best is None or lane.ready[0].number < best.ready[0].number:
                best = lane
        return best

    def _skip_unwanted(self, lane: _Lane, consumer: QueueConsumer) -> bool:
        """Bring an item to the front that this consumer has not sent back."""
        for position, item in enumerate(lane.ready):
            if item.key not in consumer.unwanted:
                del lane.ready[position]
                lane.ready.appendleft(item)
                return True
        return False

    def _exhausted(self, consumer: QueueConsumer) -> bool:
        return self._known and all(
            lane.dry and not lane.ready
            for lane in self._lanes.values()
            if consumer.may_have(lane.name)
        )

    def _fill(self) -> None:
        if self._filling is None and any(consumer.wants for consumer in self._consumers):
            self._filling = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        """Until everybody is content or nothing is left."""
        try:
            if not self._known:
                self._known = True
                for name in await self._source.lanes():
                    self._lanes.setdefault(name, _Lane(name))
            while lanes := self._thirsty():
                for lane in lanes:
                    await self._read_lane(lane)
                self.pump()
        except Refusal as refusal:
            self._known = False
            log.error("queue not read", reason=refusal.message, id=refusal.id)
            asyncio.get_running_loop().call_later(_STORE_PAUSE, self.pump)
        else:
            # Whoever drains is told only now that there is nothing more.
            asyncio.get_running_loop().call_soon(self.pump)
        finally:
            self._filling = None

    def _thirsty(self) -> list[_Lane]:
        """Lanes that may have more, for somebody who wants it."""
        return [
            lane
            for lane in self._lanes.values()
            if not lane.dry and len(lane.ready) < self._at_once and self._wanted(lane)
        ]

    async def _read_lane(self, lane: _Lane) -> None:
        lane.dry = True  # `arrived` says otherwise, also while we read
        try:
            items, more = await self._source.read(lane.name, lane.after, self._at_once)
        except Refusal:
            lane.dry = False
            raise
        if more:
            lane.dry = False
        if self._lanes.get(lane.name) is lane and items:
            lane.after = items[-1].number
            lane.ready.extend(item for item in items if item.key not in self._held)

    def _wanted(self, lane: _Lane) -> bool:
        return any(c.wants and c.may_have(lane.name) for c in self._consumers)

    # ------------------------------------------------------------ outcomes

    def accepted(self, item: Item, delivery: SentDelivery | None) -> None:
        """`delivery` is settled after the commit, if the consumer waits for that."""
        if item.accepted:
            # A consumer that leaves says so once more.
            return
        item.accepted = True
        self._accepted.append((item, delivery))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def rejected(self, item: Item, consumer: QueueConsumer, reason: str) -> None:
        if self._source.refused(item, consumer.user, reason):
            self.accepted(item, None)
        else:
            consumer.unwanted.add(item.key)
            self.gave_back(item)

    def gave_back(self, item: Item, *, failed: bool = False) -> None:
        # One that was accepted stays so, also where its link ended before that was answered.
        if item.accepted or self._held.pop(item.key, None) is None:
            return
        if failed:
            self._failures[item.key] = self._failures.get(item.key, 0) + 1
        lane = self._lanes.get(item.lane)
        if lane is not None:
            # Read again from here, in order; what others hold is left out by then.
            lane.after = min(lane.after, item.number - 1)
            lane.dry = False
            lane.ready.clear()

    async def _write(self) -> None:
        """Everything that was accepted since the last commit, in one more."""
        try:
            # Outcomes of one read from the network belong together.
            await asyncio.sleep(0)
            while self._accepted:
                batch, self._accepted = self._accepted, []
                try:
                    await self._source.taken([item for item, _ in batch])
                except Refusal as refusal:
                    log.error("outcomes not stored", reason=refusal.message, id=refusal.id)
                    self._accepted[:0] = batch
                    await asyncio.sleep(_STORE_PAUSE)
                    continue
                for item, delivery in batch:
                    self._held.pop(item.key, None)
                    self._failures.pop(item.key, None)
                    if delivery is not None:
                        delivery.settle()
        finally:
            self._writing = None

    async def drain(self, seconds: float) -> None:
        """Whatever was accepted is written down before we stop."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=seconds)
        if self._filling is not None:
            self._filling.cancel()
        if self._letting_go is not None:
            await asyncio.wait([self._letting_go], timeout=seconds)


class QueueConsumer:
    """core.links.ConsumerHandler: one application that consumes."""

    def __init__(
        self, queue: LiveQueue, link: OutgoingLink, user: str, may_have: Callable[[str], bool]
    ) -> None:
        self.link = link
        self.user = user
        self.may_have = may_have
        self.unwanted: set[str] = set()
        """Sent back for good by this consumer; others may have it."""
        self._queue = queue
        self._gone = False
        queue.add(self)

    @property
    def wants(self) -> bool:
        return self.link.draining or self.link.sendable > 0

    def on_credit(self, link: OutgoingLink) -> None:
        self._queue.pump()

    def on_outcome(self, delivery: SentDelivery, outcome: Outcome) -> None:
        item: Item = delivery.context
        queue, kind = self._queue, outcome.kind
        if kind is OutcomeKind.ACCEPTED:
            queue.accepted(item, None if outcome.settled else delivery)
            return
        if kind is OutcomeKind.REJECTED:
            reason = f"{outcome.condition} {outcome.description}".strip()
            queue.rejected(item, self, reason)
        else:
            if outcome.undeliverable_here:
                self.unwanted.add(item.key)
            queue.gave_back(item, failed=kind is OutcomeKind.LOST or outcome.delivery_failed)
        if not outcome.settled:
            delivery.settle()
        # A link that ends gives back one after the other; `on_detached` pumps once.
        if kind not in (OutcomeKind.LOST, OutcomeKind.UNSENT):
            queue.pump()

    def on_detached(self) -> None:
        if not self._gone:
            self._gone = True
            self._queue.discard(self)
