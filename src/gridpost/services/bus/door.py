"""What every web binding of a bus does with an envelope, and what is said in the same exchange."""

from __future__ import annotations

from dataclasses import dataclass

from gridpost.core.bus import BusUnit, Outgoing, Posted
from gridpost.core.envelope import FaultMessage, RequestMessage, ResponseMessage, correlation_of
from gridpost.core.envelope_exchange import complete, error_of, failed, fault, response_to
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.answering import Arrival
from gridpost.services.bus.handlers import Answer
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

    async def request(
        self, body: bytes, context: str, destination: str, *, own: bool = False
    ) -> Given:
        """`own`: an adapter of this bus wrote the envelope."""
        service = self._service
        try:
            message = service.processor.read(body)
        except Refusal:
            message = None
        if isinstance(message, RequestMessage):
            if service.forwarder is not None:
                found = await service.forwarder.web(message, body, context, destination, own)
                if found is not None:
                    return Given(found.answer)
            if message.header.one_way or message.header.async_reply:
                return await self._later(message, body, Arrival(context, destination))
        arrival = Arrival(context, destination, synchronous=True, own=own)
        treated = await service.processor.request(body, arrival)
        await service.post.publish(treated.posts)
        return Given(treated.response, treated.dead is not None)

    async def _later(self, message: RequestMessage, body: bytes, arrival: Arrival) -> Given:
        """61968-100 cl. 5.2.5: the queue keeps it, so it is safe to say that it was taken.

        It is `in` the journal when it is taken from there, and until then on its way `out`.
        """
        service, context, place = self._service, arrival.context, arrival.destination
        journal, one_way = service.processor.journal, message.header.one_way
        try:
            service.processor.admit(message, context)
        except Refusal as refusal:
            if not one_way:
                said = service.processor.answering.response(
                    message.header, Answer(failed(error_of(refusal)))
                )
                await service.processor.not_taken(refusal, message, body, arrival, said)
                return Given(encode(said))
        queue = service.post.queue_of(message, context)
        await journal.note(journal.goes(message, body, context, f"queue:{queue}"))
        await service.post.put_request(body, message, context)
        if one_way:
            return Given(None)
        progress = service.processor.answering.in_progress(message)
        given = encode(progress)
        await journal.note(journal.goes(progress, given, context, place))
        return Given(given)

    async def event(
        self, body: bytes, context: str, destination: str, *, own: bool = False
    ) -> Given:
        arrival = Arrival(context, destination, own=own)
        treated = await self._service.processor.publish(body, arrival)
        await self._service.post.publish(treated.posts)
        return Given(treated.response, treated.dead is not None)

    async def response(self, body: bytes, context: str, destination: str) -> Given:
        """61968-100 Annex D, Response: matched by its correlation, or nobody's."""
        service, arrival = self._service, Arrival(context, destination)
        try:
            message = service.processor.read(body)
            if not isinstance(message, ResponseMessage):
                raise Refusal(Rule.ENVELOPE_FORM, "only a ResponseMessage is taken here")
        except Refusal as refusal:
            told = fault(refusal)
            await service.processor.not_taken(refusal, None, body, arrival, told)
            return Given(encode(told), fault=True)
        try:
            await self.take_reply(message, body, arrival)
            reply = complete()
        except Refusal as refusal:
            reply = failed(error_of(refusal))
        said = response_to(message.header, reply, service.processor.answering.stamp())
        given, journal = encode(said), service.processor.journal
        await journal.note(journal.goes(said, given, context, destination))
        return Given(given)

    async def take_reply(
        self, message: ResponseMessage | FaultMessage, body: bytes, arrival: Arrival
    ) -> None:
        """A reply from elsewhere goes where the request came from."""
        service, journal = self._service, self._service.processor.journal
        context, correlation = arrival.context, ""
        if isinstance(message, ResponseMessage):
            correlation = correlation_of(message.header) or ""

        def work(unit: BusUnit) -> tuple[Posted, ...]:
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
            unit.record(journal.came(message, body, context, arrival.destination))
            unit.record(journal.goes(message, body, context, address))
            return unit.remember("", (), b"", [post], service.clock.now())

        try:
            posts = await service.ledger.run(work)
        except Refusal as refusal:
            if not refusal.retryable:
                await service.processor.not_taken(refusal, message, body, arrival)
            raise
        await service.post.publish(posts)
