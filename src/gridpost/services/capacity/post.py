"""What the service publishes: responses at once, broadcasts when no response is waiting.

Everything here is best effort (CMM 3.2.4): what cannot be published while the broker is away is
lost, and clients notice by heartbeats and sequence ids.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from time import perf_counter

import structlog

from gridpost.core.amqp091 import Channel, Properties
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

# Of a backlog of broadcasts, the part that goes out in one turn of the loop: responses that are
# ready go first, and yet a backlog does not grow without end.
_SHARE = 32


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

    async def respond(
        self, user: str, response: Response, correlation_id: str | None, since: float
    ) -> bool:
        """False: no queue took it (CMM 3.2.2). `since`: when its request was delivered."""
        channel = self._responses
        if channel is None:
            return True
        zipped = type(response).__name__ in self.settings.zipped
        body, encoding = pack(encode(response), zipped=zipped)
        properties = Properties(
            content_type=CONTENT_TYPE,
            content_encoding=encoding,
            persistent=False,
            correlation_id=correlation_id,
        )
        self._metrics.service_seconds.observe(perf_counter() - since)
        try:
            await channel.publish(
                body, properties, exchange=self.settings.names.response, routing_key=user
            )
        except Refusal as refusal:
            if refusal.rule is Rule.AMQP091_UNROUTED:
                return False
            log.warning("a response was not sent", user=user, reason=refusal.message)
        return True

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
            self._wake.clear()
            while self._waiting:
                # Whatever became ready goes first.
                await asyncio.sleep(0)
                for _ in range(1 + len(self._waiting) // _SHARE):
                    await self._publish(self._waiting.popleft())
            self._idle.set()

    async def _publish(self, notice: Notice) -> None:
        channel, names = self._broadcasts, self.settings.names
        if channel is None:
            self._metrics.lost.labels(type(notice).__name__).inc()
            return
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
        try:
            await channel.publish(body, properties, exchange=exchange, mandatory=False)
        except Refusal as refusal:
            log.warning("a broadcast was not sent", exchange=exchange, reason=refusal.message)
            self._metrics.lost.labels(type(notice).__name__).inc()
        else:
            self._metrics.broadcasts.labels(type(notice).__name__).inc()


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
