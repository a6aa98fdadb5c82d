"""What the service publishes: responses at once, broadcasts when no response is waiting.

Everything here is best effort (CMM 3.2.4): what cannot be published while the broker is away is
lost, and clients notice by heartbeats and sequence ids.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter

import structlog

from gridpost.core.amqp091 import Channel, Properties, Publication
from gridpost.core.broadcast import X_PERIOD, AllocationNotice, AtcNotice, Notice
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.capacity.metrics import CapacityMetrics
from gridpost.services.capacity.settings import CapacitySettings
from gridpost.wire.cmm import (
    CONTENT_TYPE,
    AllocationData,
    AllocationDataList,
    AllocationDataNtf,
    AtcData,
    AtcDataList,
    AtcDataNtf,
    encode,
    pack,
    write_heartbeat,
)
from gridpost.wire.cmm.heartbeat import HEARTBEAT_TYPE
from gridpost.wire.cmm.messages import Response

log = structlog.get_logger(__name__)

# Broadcasts that go out in one turn of the loop: a response that becomes ready waits no longer than
# these take, and yet each turn carries many.
_AT_ONCE = 16
# Seconds in which broadcasts of several commits come together, to leave in one write: whoever was answered
# is ahead of them anyhow.
_GATHERED = 0.005


@dataclass(frozen=True, slots=True)
class Answered:
    """A response on its way; `since`: when its request was delivered."""

    user: str
    response: Response
    correlation_id: str | None
    since: float


class Post:
    def __init__(self, settings: CapacitySettings, metrics: CapacityMetrics) -> None:
        self.settings = settings
        self._metrics = metrics
        self._responses: Channel | None = None
        self._broadcasts: Channel | None = None
        self._waiting: deque[Notice] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def connected(self, responses: Channel, broadcasts: Channel) -> None:
        self._responses, self._broadcasts = responses, broadcasts

    def disconnected(self) -> None:
        self._responses = self._broadcasts = None

    async def respond(self, responses: Sequence[Answered]) -> list[Answered]:
        """In one write; those that no queue took (CMM 3.2.2)."""
        channel = self._responses
        if channel is None:
            return []
        messages = list(map(self._response, responses))
        now = perf_counter()
        for response in responses:
            self._metrics.service_seconds.observe(now - response.since)
        try:
            refusals: Sequence[Refusal | None] = await channel.publish_all(messages)
        except Refusal as lost:
            refusals = [lost] * len(responses)
        returned = []
        for response, refusal in zip(responses, refusals, strict=True):
            if refusal is None:
                continue
            if refusal.rule is Rule.AMQP091_UNROUTED:
                returned.append(response)
            else:
                log.warning("a response was not sent", user=response.user, reason=refusal.message)
        return returned

    def _response(self, answered: Answered) -> Publication:
        response = answered.response
        zipped = type(response).__name__ in self.settings.zipped
        body, encoding = pack(encode(response), zipped=zipped)
        properties = Properties(
            content_type=CONTENT_TYPE,
            content_encoding=encoding,
            persistent=False,
            correlation_id=answered.correlation_id,
        )
        return Publication(body, properties, self.settings.names.response, answered.user)

    def broadcast(self, notices: Iterable[Notice]) -> None:
        """In this order, after the responses that are ready now."""
        self._waiting.extend(notices)
        if self._waiting:
            self._idle.clear()
            self._wake.set()

    async def settled(self) -> None:
        """Until every broadcast so far is published."""
        await self._idle.wait()

    async def heartbeat(self, at: datetime) -> None:
        channel = self._broadcasts
        if channel is None:
            return
        seconds = self.settings.heartbeat / timedelta(seconds=1)
        properties = Properties(
            headers={X_PERIOD: f"{seconds:g}"}, content_type=HEARTBEAT_TYPE, persistent=False
        )
        try:
            await channel.publish(
                write_heartbeat(at),
                properties,
                exchange=self.settings.names.heartbeat,
                mandatory=False,
            )
        except Refusal as refusal:
            log.warning("a heartbeat was not sent", reason=refusal.message)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(_GATHERED)
            self._wake.clear()
            while self._waiting:
                # Whatever became ready goes first.
                await asyncio.sleep(0)
                number = min(_AT_ONCE, len(self._waiting))
                await self._publish([self._waiting.popleft() for _ in range(number)])
            self._idle.set()

    async def _publish(self, notices: Sequence[Notice]) -> None:
        channel = self._broadcasts
        counter = self._metrics.lost
        if channel is not None:
            try:
                await channel.publish_all(list(map(self._publication, notices)))
                counter = self._metrics.broadcasts
            except Refusal as refusal:
                log.warning("broadcasts were not sent", reason=refusal.message)
        for kind, number in Counter(type(notice).__name__ for notice in notices).items():
            counter.labels(kind).inc(number)

    def _publication(self, notice: Notice) -> Publication:
        names = self.settings.names
        if isinstance(notice, AtcNotice):
            exchange, document = names.atc(notice.border), encode(_atc(notice))
        else:
            exchange, document = names.allocation(notice.group), encode(_allocations(notice))
        body, encoding = pack(document, zipped=True)
        properties = Properties(
            headers=notice.headers(),
            content_type=CONTENT_TYPE,
            content_encoding=encoding,
            persistent=False,
        )
        return Publication(body, properties, exchange, mandatory=False)


def _atc(notice: AtcNotice) -> AtcDataNtf:
    items = tuple(AtcData(period.start, period.end, quantity) for period, quantity in notice.values)
    values = AtcDataList(notice.border, notice.day_start, notice.in_area, notice.out_area, items)
    return AtcDataNtf((values,))


def _allocations(notice: AllocationNotice) -> AllocationDataNtf:
    return AllocationDataNtf(
        (
            AllocationDataList(
                notice.group,
                notice.in_area,
                notice.out_area,
                tuple(
                    AllocationData(
                        allocation.activity,
                        str(allocation.allocation_id),
                        allocation.period.start,
                        allocation.period.end,
                        allocation.quantity,
                        allocation.at,
                    )
                    for allocation in notice.allocations
                ),
            ),
        )
    )
