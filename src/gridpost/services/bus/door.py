"""What every web binding of a bus does with an envelope, and what is said in the same exchange."""

from __future__ import annotations

from dataclasses import dataclass

from gridpost.core.bus import BusUnit, Outgoing
from gridpost.core.envelope import FaultMessage, RequestMessage, ResponseMessage, correlation_of
from gridpost.core.envelope_exchange import complete, error_of, failed, fault, response_to
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.answering import Arrival
from gridpost.services.bus.service import BusService
from gridpost.wire.envelope import encode


@dataclass(frozen=True, slots=True)
class Given:
    """The envelope that is answered; None: accepted, and there is nothing to say."""

    body: bytes | None
    fault: bool = False


class WebDoor:
    def __init__(self, service: BusService) -> None:
        self._service = service

    async def request(self, body: bytes, context: str, destination: str) -> Given:
        service = self._service
        try:
            message = service.processor.read(body)
        except Refusal:
            message = None
        if isinstance(message, RequestMessage):
            if service.forwarder is not None:
                found = await service.forwarder.web(message, body, context)
                if found is not None:
                    return Given(found)
            if message.header.one_way or message.header.async_reply:
                return await self._later(message, body, context)
        arrival = Arrival(context, destination, synchronous=True)
        treated = await service.processor.request(body, arrival)
        await service.post.publish(treated.posts)
        return Given(treated.response, treated.dead is not None)

    async def _later(self, message: RequestMessage, body: bytes, context: str) -> Given:
        """61968-100 cl. 5.2.5: the queue keeps it, so it is safe to say that it was taken."""
        service = self._service
        refused = service.processor.admit(message, context)
        if refused is not None and not message.header.one_way:
            return Given(encode(refused))
        await service.post.put_request(body, message, context)
        if message.header.one_way:
            return Given(None)
        return Given(encode(service.processor.answering.in_progress(message)))

    async def event(self, body: bytes, context: str, destination: str) -> Given:
        treated = await self._service.processor.publish(body, Arrival(context, destination))
        await self._service.post.publish(treated.posts)
        return Given(treated.response, treated.dead is not None)

    async def response(self, body: bytes, context: str, destination: str) -> Given:
        """61968-100 Annex D, Response: matched by its correlation, or nobody's."""
        service = self._service
        try:
            message = service.processor.read(body)
            if not isinstance(message, ResponseMessage):
                raise Refusal(Rule.ENVELOPE_FORM, "only a ResponseMessage is taken here")
        except Refusal as refusal:
            return Given(encode(fault(refusal)), fault=True)
        try:
            await self.take_reply(message, body)
            reply = complete()
        except Refusal as refusal:
            reply = failed(error_of(refusal))
        stamp = service.processor.answering.stamp()
        return Given(encode(response_to(message.header, reply, stamp)))

    async def take_reply(self, message: ResponseMessage | FaultMessage, body: bytes) -> None:
        """A reply from elsewhere goes where the request came from."""
        correlation = ""
        if isinstance(message, ResponseMessage):
            correlation = correlation_of(message.header) or ""

        def work(unit: BusUnit) -> tuple[object, ...]:
            found = unit.expected(correlation)
            if found is None:
                raise Refusal(
                    Rule.NOT_EXPECTED, f"no request with the correlation '{correlation}' is open"
                )
            address, transport = found
            if not isinstance(message, ResponseMessage) or not message.reply.more_follow:
                unit.settled(correlation)
            message_id = message.header.message_id if isinstance(message, ResponseMessage) else ""
            post = Outgoing(address, body, message_id or "", transport)
            return unit.remember("", (), b"", [post], self._service.clock.now())

        await self._service.post.publish(await self._service.ledger.run(work))  # type: ignore[arg-type]
