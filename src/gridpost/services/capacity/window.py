"""The window for requests: they are read, committed and answered together, then everybody is told.

Who asks is known by the exchange a request came through, and by nothing else (CMM 4.3). Requests that are
there at once share a work on the ledger, a write to the broker and an acknowledgement; while one group is
committed the next gathers by itself. What has to ask the broker or the past first goes its own way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import structlog

from gridpost.core.amqp091 import Channel, Incoming
from gridpost.core.broadcast import Notice
from gridpost.core.journal import refusal_row
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.capacity.counter import Counter, Question
from gridpost.services.capacity.post import Answered
from gridpost.services.capacity.rate import RequestRate
from gridpost.services.capacity.settings import CapacitySettings
from gridpost.services.settling import Settling
from gridpost.wire.cmm import AllocationDataReq, Login, decode, unpack
from gridpost.wire.cmm.messages import REQUESTS, Request, Response
from gridpost.wire.xml import XmlLimits

if TYPE_CHECKING:
    from gridpost.services.capacity.service import CapacityService

log = structlog.get_logger(__name__)

# A work holds the book for as long as it takes, and the first of a group waits for the last.
_TOGETHER = 64


@dataclass(frozen=True, slots=True)
class _Delivered:
    settling: Settling
    incoming: Incoming
    user: str
    since: float

    def answered(self, response: Response) -> Answered:
        return Answered(self.user, response, self.incoming.properties.correlation_id, self.since)

    def question(self, request: Request) -> Question:
        return Question(self.user, request, self.incoming.properties.correlation_id or "")


class Window:
    def __init__(self, service: CapacityService) -> None:
        self._service = service
        self._counter = Counter(service)
        self._rates: dict[str, RequestRate] = {}
        self._limits = _limits(service.settings)
        self._arrived: list[_Delivered] = []
        self._waiting: list[tuple[_Delivered, Request]] = []
        self._serving = False
        self._tasks: set[asyncio.Task[None]] = set()

    def configured(self) -> None:
        self._limits = _limits(self._service.settings)
        self._rates.clear()

    def taker(self, channel: Channel) -> Callable[[Incoming], None]:
        settling = Settling(channel)

        def take(incoming: Incoming) -> None:
            settling.took(incoming.tag)
            user = self._service.settings.names.user_of(incoming.exchange) or ""
            if not self._arrived:
                asyncio.get_running_loop().call_soon(self._look)
            self._arrived.append(_Delivered(settling, incoming, user, perf_counter()))

        return take

    async def empty(self) -> None:
        """Until everything that was taken is answered."""
        while self._arrived or self._tasks:
            await asyncio.sleep(0)
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _look(self) -> None:
        """At what one turn of the loop brought."""
        arrived, self._arrived = self._arrived, []
        for delivered in arrived:
            if delivered.user not in self._service.settings.parties:
                exchange = delivered.incoming.exchange
                log.warning("a request of an unknown user was dropped", exchange=exchange)
                self._spawn(self._settle([delivered]))
                continue
            try:
                request = self._admit(delivered)
            except Exception as error:
                self._spawn(
                    self._respond_alone(delivered, self._counter.error(delivered.user, error))
                )
                continue
            alone = isinstance(request, Login | AllocationDataReq)
            if alone or not self._service.sessions.certain(delivered.user):
                self._spawn(self._serve_alone(delivered, request))
            else:
                self._waiting.append((delivered, request))
        if self._waiting and not self._serving:
            self._serving = True
            self._spawn(self._serve())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _admit(self, delivered: _Delivered) -> Request:
        settings, metrics = self._service.settings, self._service.metrics
        rate = self._rates.get(delivered.user)
        if rate is None:
            period = settings.rate_period.total_seconds()
            rate = self._rates[delivered.user] = RequestRate(settings.rate_limit, period)
        if not rate.admits(monotonic()):
            metrics.requests.labels("any", "back-off").inc()
            seconds = settings.rate_period.total_seconds()
            raise Refusal(
                Rule.LIMIT_EXCEEDED,
                f"Back off: more than {settings.rate_limit} requests in {seconds:g} seconds. "
                f"The measurement period is {seconds:g} seconds, "
                f"the limit {settings.rate_limit} requests.",
            )
        try:
            return self._read(delivered.incoming)
        except Refusal:
            metrics.requests.labels("unreadable", "error").inc()
            raise

    def _read(self, incoming: Incoming) -> Request:
        """CMM 5.1.3: an unknown content-type is read as version 1.0, the only one there is."""
        properties = incoming.properties
        body = unpack(incoming.body, properties.content_encoding, self._service.settings.max_bytes)
        message = decode(body, self._limits)
        if not isinstance(message, REQUESTS):
            raise Refusal(
                Rule.SCHEMA_INVALID, f"{type(message).__name__} is not a request to this service"
            )
        return message

    # -- together

    async def _serve(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:_TOGETHER], self._waiting[_TOGETHER:]
                questions = [delivered.question(request) for delivered, request in group]
                responses, notices = await self._counter.answer(questions)
                answered = [
                    delivered.answered(response)
                    for (delivered, _), response in zip(group, responses, strict=True)
                ]
                self._spawn(self._tell([delivered for delivered, _ in group], answered, notices))
        finally:
            self._serving = False

    async def _tell(
        self, group: Sequence[_Delivered], answered: Sequence[Answered], notices: Sequence[Notice]
    ) -> None:
        post = self._service.post
        # They leave in a later turn of the loop; the responses are written in this one.
        post.broadcast(notices)
        for returned in await post.respond(answered):
            await self._returned(returned)
        await self._settle(group)

    async def _settle(self, group: Sequence[_Delivered]) -> None:
        by_channel: dict[Settling, list[int]] = {}
        for delivered in group:
            by_channel.setdefault(delivered.settling, []).append(delivered.incoming.tag)
        for settling, tags in by_channel.items():
            with contextlib.suppress(Refusal):
                await settling.ack(*tags)

    # -- alone

    async def _serve_alone(self, delivered: _Delivered, request: Request) -> None:
        sessions = self._service.sessions
        notices: tuple[Notice, ...] = ()
        try:
            if isinstance(request, Login):
                response: Response = await sessions.login(delivered.user, request)
            else:
                await sessions.require(delivered.user)
                [response], notices = await self._counter.answer([delivered.question(request)])
        except Refusal as refusal:
            response = self._counter.refused(request, refusal.message)
        except Exception as error:
            response = self._counter.error(delivered.user, error)
        await self._respond_alone(delivered, response, notices)

    async def _respond_alone(
        self, delivered: _Delivered, response: Response, notices: Sequence[Notice] = ()
    ) -> None:
        try:
            await self._service.sessions.ensure_response_queue(delivered.user)
        except Refusal as refusal:
            log.warning("no response queue", user=delivered.user, reason=refusal.message)
        await self._tell([delivered], [delivered.answered(response)], notices)

    async def _returned(self, answered: Answered) -> None:
        """CMM 3.2.2: a response that no queue took. The client can ask for the outcome again."""
        service, user = self._service, answered.user
        correlation_id = answered.correlation_id or ""
        service.sessions.response_returned(user)
        service.metrics.returned.inc()
        refusal = Refusal(Rule.RESPONSE_UNROUTABLE, f"a response for {user} found no queue")
        log.warning(refusal.message, id=refusal.id, correlation=correlation_id)
        row = refusal_row(refusal, service.clock.now(), peer=user, message_id=correlation_id)
        await service.ledger.run(lambda unit: unit.journal.append(row))


def _limits(settings: CapacitySettings) -> XmlLimits:
    return XmlLimits(
        max_bytes=settings.max_bytes,
        max_depth=8,
        max_attributes=1_000_000,
        max_attribute_length=16 * 1024,
    )
