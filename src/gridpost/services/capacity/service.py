"""The service at the broker: takes requests, commits, answers, then tells everybody.

Who asks is known by the exchange a request came through, and by nothing else (CMM 4.3).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic, perf_counter
from typing import Any

import structlog

from gridpost.core.amqp091 import Channel, Incoming, RabbitConnection
from gridpost.core.broadcast import Notice
from gridpost.core.capacity import DIRECTIONS, Book
from gridpost.core.capacity_ledger import KEEP_BEHIND, CapacityLedger, CapacityUnit
from gridpost.core.journal import refusal_row
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.capacity import desk, topology
from gridpost.services.capacity.counter import Counter
from gridpost.services.capacity.metrics import CapacityMetrics
from gridpost.services.capacity.post import Post
from gridpost.services.capacity.rate import RequestRate
from gridpost.services.capacity.sessions import Sessions
from gridpost.services.capacity.settings import CapacitySettings
from gridpost.services.gathering import Gathering
from gridpost.wire.cmm import ErrorResp, Login, decode, unpack
from gridpost.wire.cmm.messages import REQUESTS, Request, Response
from gridpost.wire.xml import XmlLimits

log = structlog.get_logger(__name__)

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
        self._counter = Counter(self)
        self._sessions = Sessions(self)
        self.connection: RabbitConnection | None = None
        self._requests: Channel | None = None
        self._consumer = ""
        self._rates: dict[str, RequestRate] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._announced_until: datetime | None = None
        self._announcing = asyncio.Lock()
        self._limits = _limits(settings)

    async def open(self) -> None:
        await self._sessions.open()

    # -- connections

    async def connected(self, connection: RabbitConnection) -> None:
        """Topology, then everything that is open, and only then requests (CMM 5.4.2)."""
        control = await connection.channel()
        await topology.declare(control, self.settings)
        await topology.delete_leftovers(connection, control, self.settings)
        await control.close()
        responses = await connection.channel()
        broadcasts = await connection.channel(confirms=False)
        await self._sessions.connected(connection)
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
        settling = Gathering(partial(_settle, requests))
        self._consumer = await requests.consume(
            self.settings.names.request_queue,
            lambda incoming: self._take(settling, incoming),
            prefetch=self.settings.prefetch,
        )

    async def pause(self) -> None:
        """Take no further requests; answer those that were taken."""
        if self._requests is not None and self._consumer:
            with contextlib.suppress(Refusal):
                await self._requests.cancel(self._consumer)
            self._consumer = ""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
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

    # -- requests

    def _take(self, settling: Gathering[int, None], incoming: Incoming) -> None:
        self.spawn(self._serve(settling, incoming, perf_counter()))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(
        self, settling: Gathering[int, None], incoming: Incoming, since: float
    ) -> None:
        user = self.settings.names.user_of(incoming.exchange)
        notices: tuple[Notice, ...] = ()
        if user is None or user not in self.settings.parties:
            log.warning("a request of an unknown user was dropped", exchange=incoming.exchange)
        else:
            correlation_id = incoming.properties.correlation_id
            try:
                response, notices = await self._answer(user, incoming)
            except Refusal as refusal:
                response = ErrorResp(refusal.message)
            except Exception as error:
                # Our own bug must not leave the client without an answer, nor end the service.
                log.exception("a request failed", user=user, error=repr(error))
                response = ErrorResp("The request failed for an internal reason.")
            await self._respond(user, response, correlation_id, since)
        self.post.broadcast(notices)
        with contextlib.suppress(Refusal):
            await settling.add(incoming.tag)

    async def _respond(
        self, user: str, response: Response, correlation_id: str | None, since: float
    ) -> None:
        try:
            await self._sessions.ensure_response_queue(user)
        except Refusal as refusal:
            log.warning("no response queue", user=user, reason=refusal.message)
        if not await self.post.respond(user, response, correlation_id, since):
            await self._returned(user, correlation_id or "")

    async def _answer(self, user: str, incoming: Incoming) -> tuple[Response, tuple[Notice, ...]]:
        settings = self.settings
        rate = self._rates.get(user)
        if rate is None:
            period = settings.rate_period.total_seconds()
            rate = self._rates[user] = RequestRate(settings.rate_limit, period)
        if not rate.admits(monotonic()):
            self.metrics.requests.labels("any", "back-off").inc()
            seconds = settings.rate_period.total_seconds()
            return ErrorResp(
                f"Back off: more than {settings.rate_limit} requests in {seconds:g} seconds. "
                f"The measurement period is {seconds:g} seconds, "
                f"the limit {settings.rate_limit} requests."
            ), ()
        try:
            request = self._read(incoming)
        except Refusal as refusal:
            self.metrics.requests.labels("unreadable", "error").inc()
            return ErrorResp(refusal.message), ()
        if isinstance(request, Login):
            return await self._sessions.login(user, request), ()
        try:
            await self._sessions.require(user)
        except Refusal as refusal:
            return self._counter.refused(request, refusal.message), ()
        return await self._counter.answer(user, request, incoming.properties.correlation_id or "")

    def _read(self, incoming: Incoming) -> Request:
        """CMM 5.1.3: an unknown content-type is read as version 1.0, the only one there is."""
        properties = incoming.properties
        body = unpack(incoming.body, properties.content_encoding, self.settings.max_bytes)
        message = decode(body, self._limits)
        if not isinstance(message, REQUESTS):
            raise Refusal(
                Rule.SCHEMA_INVALID, f"{type(message).__name__} is not a request to this service"
            )
        return message

    async def _returned(self, user: str, correlation_id: str) -> None:
        """CMM 3.2.2: a response that no queue took. The client can ask for the outcome again."""
        self._sessions.response_returned(user)
        self.metrics.returned.inc()
        refusal = Refusal(Rule.RESPONSE_UNROUTABLE, f"a response for {user} found no queue")
        log.warning(refusal.message, id=refusal.id, correlation=correlation_id)
        row = refusal_row(refusal, self.clock.now(), peer=user, message_id=correlation_id)
        await self.ledger.run(lambda unit: unit.journal.append(row))

    # -- administration

    def changed(self) -> None:
        """Something was published: openings may have to be announced at another time."""
        self._changed.set()

    async def configure(self, settings: CapacitySettings) -> None:
        """New reference data and users: topology and bindings follow without a restart."""
        self.settings = self.post.settings = settings
        self._limits = _limits(settings)
        self._rates.clear()
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
        await self._sessions.follow_grants(connection)
        self._changed.set()

    @property
    def connected_now(self) -> bool:
        return self._requests is not None

    def logged_in(self) -> frozenset[str]:
        return self._sessions.users

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
            "users_logged_in": len(self._sessions.users),
            "at": datetime.now(UTC).isoformat(),
        }


async def _settle(channel: Channel, tags: Sequence[int]) -> list[None]:
    await channel.ack_all(tags)
    return [None] * len(tags)


def _limits(settings: CapacitySettings) -> XmlLimits:
    return XmlLimits(
        max_bytes=settings.max_bytes,
        max_depth=8,
        max_attributes=1_000_000,
        max_attribute_length=16 * 1024,
    )
