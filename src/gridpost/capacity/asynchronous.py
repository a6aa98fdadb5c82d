"""The client for asyncio: connects, logs in again, notices what it missed, and asks for it once."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any
from uuid import uuid4

import structlog

from gridpost.capacity.recovery import Recovery
from gridpost.capacity.session import Session, new_correlation_id
from gridpost.capacity.settings import ClientSettings
from gridpost.capacity.values import (
    AllocationsChanged,
    AtcChanged,
    ConnectionLost,
    Event,
    Heartbeat,
    LoggedIn,
    Result,
    ServiceDown,
    Wanted,
)
from gridpost.core.allocation import AllocationType
from gridpost.core.amqp091 import Incoming, RabbitConnection
from gridpost.core.broadcast import X_PERIOD
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp091 import Amqp091Client, Amqp091Keeper
from gridpost.wire.cmm import (
    Alc,
    AlcResult,
    AllocationDataList,
    AllocationDataNtf,
    AllocationDataReq,
    AllocationDataResp,
    AllocationReq,
    AllocationResp,
    Allocations,
    AtcDataList,
    AtcDataNtf,
    AtcDataReq,
    AtcDataResp,
    ErrorResp,
    decode,
    read_heartbeat,
    unpack,
)
from gridpost.wire.cmm.messages import Message, Request

log = structlog.get_logger(__name__)

_MAX_BYTES = 64 * 1024 * 1024
_FIRST_OUTCOME = re.compile(
    r"Duplicate request; first outcome: "
    r"(?:alclid=(?P<number>\S+) confQty=(?P<quantity>\d+)|refused: (?P<reason>.*))",
    re.DOTALL,
)


class AsyncCapacityClient:
    """`async with AsyncCapacityClient(settings) as client: ...`"""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._rabbit = Amqp091Client(
            settings.urls,
            virtual_host=settings.virtual_host,
            tls=settings.tls,
            # CMM 2.2: also where the certificate alone decides.
            user=settings.user,
            password=settings.password,
            heartbeat=settings.heartbeat,
            name=f"gridpost capacity client {settings.user}",
        )
        self._keeper = Amqp091Keeper(self._rabbit, self._connected, lost=self._lost)
        self._session: Session | None = None
        self._second: RabbitConnection | None = None
        self._logins = 0
        self._events: deque[Event] = deque(maxlen=settings.buffer)
        self._arrived = asyncio.Event()
        self.dropped = 0
        """Events that the application was too slow to take."""
        self._heard: float | None = None
        self._heartbeat: Heartbeat | None = None
        self._down = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._recovery = Recovery(settings, self._ask, self._put, self._start)
        self._closed = False

    async def __aenter__(self) -> AsyncCapacityClient:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Returns when logged in; refuses with the reason."""
        await self._keeper.start()
        self._start(self._watch())

    async def close(self) -> None:
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._keeper.close()
        if self._second is not None:
            await self._second.close()
        self._arrived.set()

    @property
    def connected(self) -> bool:
        return self._session is not None

    @property
    def service_alive(self) -> bool:
        """By its heartbeats, not by the connection (CMM 3.1.1.1)."""
        return self._heard is not None and not self._down

    @property
    def recoveries(self) -> int:
        """How often allocation data was asked for because broadcasts were missed."""
        return self._recovery.done

    @property
    def latency(self) -> timedelta | None:
        return None if self._heartbeat is None else self._heartbeat.latency

    # -- requests

    async def allocate(
        self,
        wanted: Iterable[Wanted],
        type: AllocationType = AllocationType.AON,
        correlation_id: str = "",
    ) -> Result:
        """One request. A response that does not come leaves the result unknown, never failed."""
        parts: dict[tuple[str, str], list[Alc]] = {}
        for item in wanted:
            parts.setdefault((item.in_area, item.out_area), []).append(
                Alc(
                    item.client_id or uuid4().hex,
                    item.period_start,
                    item.period_end,
                    item.quantity,
                    item.balancing_group,
                )
            )
        request = AllocationReq(
            type, tuple(Allocations(*areas, tuple(items)) for areas, items in parts.items())
        )
        return await self._send(request, correlation_id or new_correlation_id())

    async def resolve(self, result: Result) -> Result:
        """Ask what became of a request: the same request again, under the same correlation-id.

        A service that executed it answers with the first outcome; one that never saw it executes it.
        """
        return await self._send(result.request, result.correlation_id)

    async def atc(self, date: datetime, area1: str, area2: str) -> tuple[AtcDataList, ...]:
        """What is available on the delivery day that contains an instant, both ways."""
        response = await self._ask(AtcDataReq(date, area1, area2))
        if isinstance(response, AtcDataResp) and response.success:
            return response.lists
        raise _refused(response)

    async def allocations(
        self, balancing_group: str, start: datetime, end: datetime, area1: str, area2: str
    ) -> tuple[AllocationDataList, ...]:
        """Allocations of an own group whose period starts in [start, end)."""
        response = await self._ask(AllocationDataReq(balancing_group, start, end, area1, area2))
        if isinstance(response, AllocationDataResp) and response.success:
            return response.lists
        raise _refused(response)

    async def _send(self, request: AllocationReq, correlation_id: str) -> Result:
        try:
            response = await self._ask(request, correlation_id)
        except Refusal as refusal:
            if refusal.rule is not Rule.OUTCOME_UNKNOWN:
                raise
            return Result(correlation_id, request, known=False, reason=refusal.message)
        if not isinstance(response, AllocationResp):
            raise _refused(response)
        first = [_first_outcome(item) for item in response.items]
        repeated = bool(first) and all(item is not None for item in first)
        items = tuple(item for item in first if item is not None) if repeated else response.items
        return Result(correlation_id, request, known=True, items=items, repeated=repeated)

    async def _ask(self, request: Request, correlation_id: str = "") -> Message:
        session = self._session
        if session is None:
            why = self._keeper.why
            raise Refusal(
                Rule.UNREACHABLE,
                "there is no connection to the broker now; it is tried again",
                "" if why is None else why.message,
            )
        return await session.ask(request, correlation_id or new_correlation_id())

    # -- broadcasts

    async def events(self) -> AsyncIterator[Event]:
        """Everything in the order it came, until the client is closed."""
        while True:
            while self._events:
                yield self._events.popleft()
            if self._closed:
                return
            self._arrived.clear()
            await self._arrived.wait()

    async def unsubscribe(self) -> None:
        if self._session is not None:
            await self._session.unsubscribe()
            self._heard = None

    def _put(self, event: Event) -> None:
        if len(self._events) == self._events.maxlen:
            self.dropped += 1
        self._events.append(event)
        self._arrived.set()

    def _take(self, incoming: Incoming) -> None:
        """CMM 3.1.4: into the buffer at once; the application works when it can."""
        headers = {name: str(value) for name, value in incoming.properties.headers.items()}
        try:
            if X_PERIOD in headers:
                self._beat(incoming.body, headers[X_PERIOD])
                return
            body = unpack(incoming.body, incoming.properties.content_encoding, _MAX_BYTES)
            message = decode(body)
        except (Refusal, ValueError) as error:
            log.warning("a broadcast cannot be read", exchange=incoming.exchange, error=str(error))
            return
        if isinstance(message, AtcDataNtf):
            self._put(AtcChanged(headers, message.lists))
        elif isinstance(message, AllocationDataNtf):
            self._recovery.follow(headers, message)
            self._put(AllocationsChanged(headers, message.lists))

    def _beat(self, body: bytes, period: str) -> None:
        sent = read_heartbeat(body)
        beat = Heartbeat(sent, timedelta(seconds=float(period)), datetime.now(UTC) - sent)
        self._heard, self._heartbeat, self._down = monotonic(), beat, False
        self._put(beat)

    async def _watch(self) -> None:
        """CMM 3.1.1.1: no heartbeat for some periods means that the service is away."""
        while True:
            beat, heard = self._heartbeat, self._heard
            period = self.settings.heartbeat_period if beat is None else beat.period
            if period is None or heard is None:
                await asyncio.sleep(0.2)
                continue
            allowed = period.total_seconds() * self.settings.missed_heartbeats
            left = heard + allowed - monotonic()
            if left <= 0 and not self._down:
                self._down = True
                self._put(ServiceDown(None if beat is None else beat.sent))
            # Not longer than a moment: the first heartbeat may tell of a shorter period.
            await asyncio.sleep(max(0.05, min(left if left > 0 else allowed / 4, 1.0)))

    # -- connections

    async def _connected(self, connection: RabbitConnection) -> None:
        settings = self.settings
        consuming = connection
        if settings.separate_connections:
            consuming = self._second = await self._rabbit.connect("consuming")
        session = Session(settings, connection, consuming, self._take, self._cancelled)
        await session.open()
        again = self._logins > 0
        self._logins += 1
        self._session = session
        # The service has answered the Login: it lives, and its silence counts from here.
        self._heard, self._down = monotonic(), False
        self._put(LoggedIn(again))
        if again:
            self._recovery.logged_in_again()

    def _lost(self, refusal: Refusal) -> None:
        session, self._session = self._session, None
        # Without a connection nobody can say whether the service lives.
        self._heard = None
        if session is not None:
            session.lost(refusal)
        self._put(ConnectionLost(refusal.message))

    def _cancelled(self) -> None:
        """Our queue is gone, for instance by another Login of the same user: start over."""
        connection = self._keeper.connection
        if connection is not None and not self._closed:
            log.warning("the broker ended a subscription: logging in again")
            self._start(connection.close())

    def _start(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _first_outcome(item: AlcResult) -> AlcResult | None:
    match = _FIRST_OUTCOME.fullmatch(item.message)
    if match is None or item.success:
        return None
    if match["number"] is not None:
        return AlcResult(item.client_id, True, "Allocated", match["number"], int(match["quantity"]))
    return AlcResult(item.client_id, False, match["reason"])


def _refused(response: Message) -> Refusal:
    if isinstance(response, ErrorResp | AtcDataResp | AllocationDataResp):
        return Refusal(Rule.REQUEST_REFUSED, response.message)
    return Refusal(Rule.REQUEST_REFUSED, f"the service answered with {type(response).__name__}")
