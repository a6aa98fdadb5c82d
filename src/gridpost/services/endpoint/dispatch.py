"""When the next transfer is made, and how many are under way at once.

Woken by whoever stores a transfer, by lines that open and by the end of a pause; nothing is polled.
A message-type that keeps its order has one transfer under way to each recipient, and nothing
overtakes one that waits (503 cl. 5.11); in a MADES 1.1 network every type does (its cl. 3.13).
Outcomes that come in together are committed together.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from gridpost.core.identifiers import ComponentCode
from gridpost.core.message import InternalType
from gridpost.core.message_box import Outgoing
from gridpost.core.message_path import Route
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.transfer import Attempt, BackOff, Transfer

log = structlog.get_logger(__name__)

Pair = tuple[str, ComponentCode]
"""Message-type and recipient."""

_Place = tuple[int, Route]

_STORE_PAUSE = 1.0
"""Seconds until outcomes that the store did not take are offered to it again."""


@dataclass(frozen=True, slots=True)
class DispatchLimits:
    under_way: int = 256
    bytes_under_way: int = 64 * 1024 * 1024
    drain: timedelta = timedelta(seconds=10)
    """How long an orderly stop waits for outcomes."""


class Dispatcher:
    def __init__(
        self,
        context: EndpointContext,
        transfer: Transfer,
        *,
        closed: Callable[[], Collection[Route]] = tuple,
        limits: DispatchLimits | None = None,
        back_off: BackOff | None = None,
    ) -> None:
        """`closed` are routes that cannot take anything now; who opens one calls `opened`."""
        self._context = context
        self._transfer = transfer
        self._closed = closed
        self._limits = limits or DispatchLimits()
        self._back_off = back_off or BackOff()
        self._wake = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._bytes = 0
        self._outcomes: list[Attempt] = []
        self._writing: asyncio.Task[None] | None = None
        self._settling: set[int] = set()
        self._opened: set[Route] = set()
        self._order = _Order()
        self._carried: set[str] = set()
        self._forbidden: set[str] = set()
        self._unpaused = False
        self._next_due: datetime | None = None
        """When something that was postponed is due, as the last look found it."""
        context.signals.on_enqueued(lambda _route, _receiver: self.wake())

    @property
    def under_way(self) -> int:
        return len(self._tasks)

    def wake(self) -> None:
        """There is something new to transfer."""
        self._wake.set()

    def opened(self, route: Route) -> None:
        """A line came up: what was postponed while it was down is due now."""
        self._opened.add(route)
        self.wake()

    def forbid(self, message_id: str) -> bool:
        """Begin no transfer of it from now on; False: one is under way or not written down yet."""
        if message_id in self._carried:
            return False
        self._forbidden.add(message_id)
        return True

    def permit(self, message_id: str) -> None:
        self._forbidden.discard(message_id)
        self.wake()

    def unpause(self) -> None:
        """An operator has resumed something: what was put aside is looked at again."""
        self._unpaused = True
        self.wake()

    async def run(self) -> None:
        """Until cancelled; then what is under way gets a little time to end."""
        try:
            while True:
                self._wake.clear()
                await self._hasten()
                if await self._start_due():
                    continue
                await self._pause()
        finally:
            await self._drain()

    async def _hasten(self) -> None:
        routes, self._opened = self._opened, set()
        unpaused, self._unpaused = self._unpaused, False
        now = self._context.clock.now()

        def hasten(work: UnitOfWork) -> None:
            # A paused message is ACCEPTED, so that its route is one of those awaited.
            for route in routes | set(work.box.awaited(now) if unpaused else ()):
                work.box.hasten(route)

        if routes or unpaused:
            await self._context.store.run(hasten)
            self._order.resume()

    async def _start_due(self) -> bool:
        """Begin what fits; is there more that could begin now?"""
        self._next_due = None
        now = self._context.clock.now()
        self._order.resume(now)
        room = self._limits.under_way - len(self._tasks)
        free = self._limits.bytes_under_way - self._bytes
        if room <= 0 or free <= 0:
            # Whatever ends makes room, and wakes us.
            return False
        excluded = {*self._tasks, *self._settling, *self._order.held()}
        closed = tuple(self._closed())
        found, paused, more, self._next_due = await self._context.store.read(
            lambda work: self._look(work, now, excluded, closed, room, free)
        )
        if paused:
            await self._context.store.run(lambda work: _put_aside(work, paused))
        aside = {outgoing.number for outgoing in paused}
        for outgoing in found:
            if outgoing.number in aside or outgoing.message.metadata.message_id in self._forbidden:
                continue
            pair = self._pair(outgoing)
            if pair is None or self._order.may_start(pair, outgoing):
                self._start(outgoing, pair)
        # A short answer has everything that there is: what was expected and is not in it has gone.
        # What was not asked for, because it waited when the question was put, says nothing.
        seen = {o.number for o in found} | self._tasks.keys() | excluded
        gone = len(found) < room and self._order.forget_absent(seen, closed)
        return more or gone

    def _look(
        self,
        work: UnitOfWork,
        now: datetime,
        excluded: set[int],
        closed: tuple[Route, ...],
        room: int,
        free: int,
    ) -> tuple[list[Outgoing], list[Outgoing], bool, datetime | None]:
        """What is due, what of it is paused, whether there is more, and when something will be.

        All in one look: to go to the store costs more than what is asked there.
        """
        box, holding = work.box, self._context.holding
        found = list(box.outgoing(now, room, under_way=excluded, closed=closed, max_bytes=free))
        paused = [o for o in found if holding.transfer(work, o) is not None]
        more = len(found) >= room
        if found and not more:
            # Was it the octets that ended the answer? A large content is not loaded to find out.
            large = sum(len(o.message.content) for o in found) > free // 2
            seen = excluded.union(o.number for o in found)
            more = large or bool(box.outgoing(now, 1, under_way=seen, closed=closed, max_bytes=1))
        return found, paused, more, None if more else box.next_due(now)

    def _start(self, outgoing: Outgoing, pair: Pair | None) -> None:
        self._bytes += len(outgoing.message.content)
        self._carried.add(outgoing.message.metadata.message_id)
        task = asyncio.get_running_loop().create_task(self._carry(outgoing, pair))
        self._tasks[outgoing.number] = task

    async def _carry(self, outgoing: Outgoing, pair: Pair | None) -> None:
        try:
            attempt = await self._transfer.attempt(outgoing)
        except asyncio.CancelledError:
            self._ended(outgoing)
            self._carried.discard(outgoing.message.metadata.message_id)
            raise
        except Exception as error:
            # Our own bug: it must not cost the message its further attempts (503 cl. 5.8).
            log.exception("transfer broken", message_id=outgoing.message.metadata.message_id)
            refusal = Refusal(Rule.OWN_DEFECT, f"the transfer broke: {type(error).__name__}")
            attempt = Attempt(outgoing, self._context.clock.now(), 0, refusal)
        self._outcomes.append(attempt)
        self._settling.add(outgoing.number)
        self._ended(outgoing)
        if pair is not None and attempt.refusal is not None and not attempt.fatal:
            self._order.pause(pair, attempt.at + self._back_off.after(self._order.failed(pair)))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def _ended(self, outgoing: Outgoing) -> None:
        self._bytes -= len(outgoing.message.content)
        self._tasks.pop(outgoing.number, None)

    async def _write(self) -> None:
        """Everything that ended since the last commit, in one more."""
        try:
            # Outcomes of one read from the network belong together: they come in this turn.
            await asyncio.sleep(0)
            while self._outcomes:
                batch, self._outcomes = self._outcomes, []
                # What keeps its order is held back here, not in the store: there a later one
                # would overtake it.
                ordered = {a.outgoing.number for a in batch if self._pair(a.outgoing) is not None}
                try:
                    await self._transfer.write_down(batch, ordered)
                except Refusal as refusal:
                    # Not settled: nobody may forget what the store does not know.
                    log.error("outcomes not stored", reason=refusal.message, id=refusal.id)
                    self._outcomes[:0] = batch
                    await asyncio.sleep(_STORE_PAUSE)
                    continue
                for attempt in batch:
                    self._settling.discard(attempt.outgoing.number)
                    self._carried.discard(attempt.outgoing.message.metadata.message_id)
                    pair = self._pair(attempt.outgoing)
                    if pair is not None:
                        over = attempt.refusal is None or attempt.fatal
                        self._order.ended(pair, attempt.outgoing, over)
                self.wake()
        finally:
            self._writing = None

    async def _pause(self) -> None:
        now = self._context.clock.now()
        moments = [m for m in (self._next_due, self._order.next_moment()) if m is not None]
        delay = max(0.0, (min(moments) - now).total_seconds()) if moments else None
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._wake.wait()

    async def _drain(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.drain.total_seconds()):
                while self._tasks or self._writing is not None:
                    waiting = list(self._tasks.values())
                    if self._writing is not None:
                        waiting.append(self._writing)
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in list(self._tasks.values()):
            task.cancel()

    def _pair(self, outgoing: Outgoing) -> Pair | None:
        metadata = outgoing.message.metadata
        if metadata.internal_type is not InternalType.STANDARD_MESSAGE:
            return None
        kept = outgoing.route.old or self._context.settings.keeps_order(metadata.message_type)
        if not kept:
            return None
        return metadata.message_type, metadata.receiver_code


def _put_aside(work: UnitOfWork, paused: list[Outgoing]) -> None:
    """Due no more before they expire: a long pause costs nothing at each look at the queue."""
    for outgoing in paused:
        work.box.postpone(outgoing.number, outgoing.expires_at)


class _Order:
    """Pairs of message-type and recipient whose transfers go one after the other.

    The order of numbers is the order of acceptance. Numbers that were seen out of turn are held
    back; after a restart the store gives them in order again.
    """

    def __init__(self) -> None:
        self._under_way: dict[Pair, int] = {}
        self._waiting: defaultdict[Pair, deque[_Place]] = defaultdict(deque)
        self._paused: dict[Pair, datetime] = {}
        self._failures: dict[Pair, int] = {}
        self._next: dict[Pair, _Place] = {}

    def held(self) -> list[int]:
        waiting = [number for places in self._waiting.values() for number, _ in places]
        return waiting + [self._next[pair][0] for pair in self._paused if pair in self._next]

    def may_start(self, pair: Pair, outgoing: Outgoing) -> bool:
        expected = self._next.get(pair)
        in_turn = expected is None or expected[0] == outgoing.number
        if pair in self._under_way or pair in self._paused or not in_turn:
            self._waiting[pair].append((outgoing.number, outgoing.route))
            return False
        self._next.pop(pair, None)
        self._under_way[pair] = outgoing.number
        return True

    def ended(self, pair: Pair, outgoing: Outgoing, over: bool) -> None:
        """`over`: transferred, or never to be tried again."""
        self._under_way.pop(pair, None)
        if over:
            self._failures.pop(pair, None)
            self._advance(pair)
        else:
            self._next[pair] = outgoing.number, outgoing.route

    def failed(self, pair: Pair) -> int:
        failures = self._failures.get(pair, 0)
        self._failures[pair] = failures + 1
        return failures

    def pause(self, pair: Pair, until: datetime) -> None:
        self._paused[pair] = until

    def resume(self, now: datetime | None = None) -> None:
        """The pauses that are over; all of them when a line has come up."""
        for pair, until in list(self._paused.items()):
            if now is None or until <= now:
                del self._paused[pair]

    def next_moment(self) -> datetime | None:
        return min(self._paused.values(), default=None)

    def forget_absent(self, seen: set[int], closed: Collection[Route]) -> bool:
        """An expected transfer that the store no longer has: cancelled, expired or acknowledged."""
        gone = [
            pair
            for pair, (number, route) in self._next.items()
            if number not in seen and pair not in self._paused and route not in closed
        ]
        for pair in gone:
            self._advance(pair)
        return bool(gone)

    def _advance(self, pair: Pair) -> None:
        waiting = self._waiting.get(pair)
        if waiting:
            self._next[pair] = waiting.popleft()
        else:
            self._waiting.pop(pair, None)
            self._next.pop(pair, None)
