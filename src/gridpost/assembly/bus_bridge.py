"""The bridge between a bus and other parties: envelopes travel as documents through the endpoint.

A request of another party is put to the queue of its noun like any other; its reply goes back to
that party. A reply is matched by its correlation with the request that this bus sent.
"""

from __future__ import annotations

import asyncio
from uuid import uuid4

import structlog

from gridpost.assembly.bus_links import MadesSection
from gridpost.client import AsyncEndpoint, Received
from gridpost.core.envelope import FaultMessage, ResponseMessage, specific
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.answering import Arrival
from gridpost.services.bus.door import WebDoor
from gridpost.services.bus.service import BusService
from gridpost.wire.envelope import decode

log = structlog.get_logger(__name__)


class MadesBridge:
    """services.bus.forwarding.Bridge."""

    def __init__(self, section: MadesSection, service: BusService, door: WebDoor) -> None:
        self._section = section
        self._service = service
        self._door = door
        self._endpoint = AsyncEndpoint(
            section.url,
            user=section.user,
            password="" if section.password is None else section.password.get_secret_value(),
            certificate=section.certificate,
            key=section.key,
            ca=section.ca,
        )

    async def close(self) -> None:
        await self._endpoint.close()

    async def send(self, code: str, envelope: bytes, correlation: str) -> None:
        """Again with the same correlation: nothing is sent a second time."""
        await self._endpoint.send(
            code,
            self._section.request_type,
            envelope,
            ba_message_id=correlation,
            key=f"bus-request-{correlation}",
        )

    async def run(self) -> None:
        while True:
            try:
                while await self._one(self._section.response_type, self._reply):
                    pass
                while await self._one(self._section.request_type, self._request):
                    pass
            except Refusal as refusal:
                log.warning("the bridge waits", reason=refusal.message)
            await asyncio.sleep(self._section.every.total_seconds())

    async def _one(self, message_type: str, take: object) -> bool:
        found = await self._endpoint.receive(message_type)
        if found is None or found.content is None:
            return False
        step = self._service.step
        step("party received")
        try:
            await take(found)  # type: ignore[operator]
        except Refusal as refusal:
            if refusal.retryable:
                raise
            log.warning(
                "an envelope of another party is of no use",
                message=found.message.message_id,
                sender=found.message.sender,
                reason=refusal.message,
            )
        step("party taken")
        await self._endpoint.confirm(found.message.message_id)
        step("party confirmed")
        return True

    async def _reply(self, received: Received) -> None:
        assert received.content is not None
        arrival = Arrival(self._section.context, f"mades:{received.message.sender}")
        try:
            message = self._service.processor.read(received.content)
            if not isinstance(message, ResponseMessage | FaultMessage):
                raise Refusal(Rule.ENVELOPE_FORM, "only responses come by this message-type")
        except Refusal as refusal:
            await self._service.processor.not_taken(refusal, None, received.content, arrival)
            raise
        await self._door.take_reply(message, received.content, arrival)

    async def _request(self, received: Received) -> None:
        assert received.content is not None
        place = f"mades:{received.message.sender}"
        given = await self._door.request(received.content, self._section.context, place)
        if given.body is None:
            return
        self._service.step("party served")
        await self._endpoint.send(
            received.message.sender,
            self._section.response_type,
            given.body,
            ba_message_id=_correlation(given.body) or str(uuid4()),
            key=f"bus-response-{received.message.message_id}",
        )


def _correlation(answer: bytes) -> str:
    message = specific(decode(answer))
    return (isinstance(message, ResponseMessage) and message.header.correlation_id) or ""
