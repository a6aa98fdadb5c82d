"""The service at the broker: its connections, heartbeats, openings and upkeep."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

from gridpost.core.amqp091 import Channel, RabbitConnection
from gridpost.core.capacity import DIRECTIONS, Book
from gridpost.core.capacity_ledger import KEEP_BEHIND, CapacityLedger, CapacityUnit
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal
from gridpost.services.capacity import desk, topology
from gridpost.services.capacity.metrics import CapacityMetrics
from gridpost.services.capacity.post import Post
from gridpost.services.capacity.sessions import Sessions
from gridpost.services.capacity.settings import CapacitySettings
from gridpost.services.capacity.window import Window

_UPKEEP = timedelta(minutes=10)
_LONGEST_SLEEP = 3600.0
# Requests wait meanwhile.
_PRUNED_AT_ONCE = 500


class CapacityService:
    """Assembly connects it: `connected` and `lost` are told of connections as they come and go."""

    def __init__(
        self,
        settings: CapacitySettings,
        clock: Clock,
        ledger: CapacityLedger,
        metrics: CapacityMetrics,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.ledger = ledger
        self.metrics = metrics
        self.post = Post(settings, metrics)
        self.sessions = Sessions(self)
        self._window = Window(self)
        self.connection: RabbitConnection | None = None
        self._requests: Channel | None = None
        self._consumer = ""
        self._changed = asyncio.Event()
        self._announced_until: datetime | None = None
        self._announcing = asyncio.Lock()

    async def open(self) -> None:
        await self.sessions.open()

    # -- connections

    async def connected(self, connection: RabbitConnection) -> None:
        """Topology, then everything that is open, and only then requests (CMM 5.4.2)."""
        control = await connection.channel()
        await topology.declare(control, self.settings)
        await topology.delete_leftovers(connection, control, self.settings)
        await control.close()
        responses = await connection.channel()
        broadcasts = await connection.channel(confirms=False)
        await self.sessions.connected(connection)
        self.connection = connection
        self.post.connected(responses, broadcasts)
        now = self.clock.now()
        names = self.settings.names
        notices = await self.ledger.run(lambda unit: desk.everything(unit, names, now))
        self._announced_until = now
        self.post.broadcast(notices)
        await self.post.settled()
        await self._listen(connection)
        self.metrics.connected.set(1)

    def lost(self, refusal: Refusal) -> None:
        self.connection = self._requests = None
        self.post.disconnected()
        self.metrics.connected.set(0)

    async def _listen(self, connection: RabbitConnection) -> None:
        requests = await connection.channel(confirms=False)
        await topology.declare_requests(connection, requests, self.settings)
        self._requests = requests
        self._consumer = await requests.consume(
            self.settings.names.request_queue,
            self._window.taker(requests),
            prefetch=self.settings.prefetch,
        )

    async def pause(self) -> None:
        """Take no further requests; answer those that were taken."""
        if self._requests is not None and self._consumer:
            with contextlib.suppress(Refusal):
                await self._requests.cancel(self._consumer)
            self._consumer = ""
        await self._window.empty()
        await self.post.settled()

    async def run(self) -> None:
        """Heartbeats, broadcasts, openings and upkeep, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.post.run())
            group.create_task(self._heartbeats())
            group.create_task(self._openings())
            group.create_task(self._upkeep())

    async def _heartbeats(self) -> None:
        period = self.settings.heartbeat.total_seconds()
        due = monotonic()
        while True:
            await self.post.heartbeat(self.clock.now())
            due += period
            await asyncio.sleep(max(0.0, due - monotonic()))

    async def _openings(self) -> None:
        """CMM 5.4.2: all values as soon as the allocation for a day starts."""
        while True:
            now = self.clock.now()
            opening = self._next_opening(now)
            seconds = _LONGEST_SLEEP
            if opening is not None:
                seconds = min(seconds, max(0.0, (opening - now).total_seconds()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            self._changed.clear()
            await self.announce_openings()

    def _next_opening(self, now: datetime) -> datetime | None:
        return self.ledger.look(lambda book: book.next_opening(now))

    async def announce_openings(self) -> None:
        async with self._announcing:
            since, now = self._announced_until, self.clock.now()
            if since is None:
                return
            names = self.settings.names
            notices = await self.ledger.run(lambda unit: desk.opened(unit, names, since, now))
            self._announced_until = now
            self.post.broadcast(notices)

    async def _upkeep(self) -> None:
        while True:
            await self._forget(self.clock.now())
            await asyncio.sleep(_UPKEEP.total_seconds())

    async def _forget(self, now: datetime) -> None:
        window = self.settings.duplicate_window
        await self.ledger.run(lambda unit: unit.forget_outcomes(now - window))
        await self.ledger.run(lambda unit: unit.book.forget(now - KEEP_BEHIND))
        while True:
            gone = await self.ledger.run(lambda unit: self._prune(unit, now))
            if gone < _PRUNED_AT_ONCE:
                break

    def _prune(self, unit: CapacityUnit, now: datetime) -> int:
        settings = self.settings
        return unit.journal.prune(
            now,
            settings.journal_retention,
            keep_exported=settings.journal_exported,
            limit=_PRUNED_AT_ONCE,
        )

    # -- administration

    def changed(self) -> None:
        """Something was published: openings may have to be announced at another time."""
        self._changed.set()

    async def configure(self, settings: CapacitySettings) -> None:
        """New reference data and users: topology and bindings follow without a restart."""
        self.settings = self.post.settings = settings
        self._window.configured()
        connection = self.connection
        if connection is None:
            return
        channel = await connection.channel()
        try:
            await topology.declare(channel, settings)
            if self._requests is not None:
                # The queue stays as it was declared; other arguments count from the next start.
                await topology.bind_requests(channel, settings)
        finally:
            await channel.close()
        await self.sessions.follow_grants(connection)
        self._changed.set()

    @property
    def connected_now(self) -> bool:
        return self._requests is not None

    def logged_in(self) -> frozenset[str]:
        return self.sessions.users

    def shortfalls(self) -> dict[str, int]:
        """Border -> kW that are allocated beyond what is offered, over all open units."""

        def look(book: Book) -> dict[str, int]:
            found: dict[str, int] = {}
            for pool in book.pools.values():
                total = sum(
                    pool.shortfall(direction, start)
                    for direction in DIRECTIONS
                    for start in pool.offered[direction]
                )
                found[pool.border.name] = found.get(pool.border.name, 0) + total
            return found

        return self.ledger.look(look)

    def measure(self) -> None:
        for border, quantity in self.shortfalls().items():
            self.metrics.shortfall.labels(border).set(quantity)

    async def health(self) -> dict[str, Any]:
        await self.ledger.read(lambda reader: reader.entries(0, 1))
        connected = self.connected_now
        return {
            "ok": connected,
            "active": True,
            "connected": connected,
            "users_logged_in": len(self.sessions.users),
            "at": datetime.now(UTC).isoformat(),
        }
