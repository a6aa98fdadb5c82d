"""How an envelope came, what has to be in it, and what is answered and told because of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import uuid4

from gridpost.core.bus import Outgoing
from gridpost.core.envelope import (
    EventMessage,
    Header,
    Payload,
    Reply,
    RequestMessage,
    ResponseMessage,
    Result,
)
from gridpost.core.envelope_exchange import (
    AddressKind,
    ReplyAddress,
    Stamp,
    in_series,
    prevailing,
    response_to,
)
from gridpost.core.identifiers import clip
from gridpost.core.journal import EnvelopeRow
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.handlers import Answer
from gridpost.services.bus.journalling import EnvelopeJournal
from gridpost.services.bus.settings import BusSettings
from gridpost.wire.envelope import content, encode


@dataclass(frozen=True, slots=True)
class Arrival:
    """How an envelope came: its context by the place, and where its transport expects an answer."""

    context: str
    destination: str
    reply_to: str = ""
    """A reply address; empty: the transport has none."""
    correlation: str = ""
    deadline: float | None = None
    """On the monotonic clock: after it, nothing is executed any more."""
    synchronous: bool = False
    """Is the answer given in the exchange in which the request came?"""
    own: bool = False
    """Did an adapter of this bus write the envelope?"""


class Answering:
    """Writes what goes out."""

    def __init__(self, settings: BusSettings, clock: Clock, journal: EnvelopeJournal) -> None:
        self._settings = settings
        self._clock = clock
        self._journal = journal

    def stamp(self) -> Stamp:
        now = prevailing(self._clock.now(), self._settings.zone)
        return Stamp(str(uuid4()), now, self._settings.name)

    def response(self, request: Header, answer: Answer) -> ResponseMessage:
        return response_to(request, answer.reply, self.stamp(), answer.payload)

    def post(self, address: str, response: ResponseMessage, arrival: Arrival) -> Outgoing:
        message_id = response.header.message_id or ""
        return Outgoing(address, encode(response), message_id, arrival.correlation)

    def posts(
        self, request: Header, arrival: Arrival, responses: Iterable[ResponseMessage]
    ) -> list[Outgoing]:
        # 61968-100 cl. 6.3.2: the transport's address for the transport, unless the reply comes later.
        address = arrival.reply_to
        if request.async_reply or not address:
            address = self._given_address(request, arrival) or arrival.reply_to
        if arrival.synchronous and not request.async_reply:
            address = ""
        elif not address:
            return []
        return [self.post(address, response, arrival) for response in responses]

    def _given_address(self, request: Header, arrival: Arrival) -> str:
        """Empty: there is none, or it is none that we may answer to."""
        try:
            self._settings.guard.check_reply_address(request, destination=arrival.context)
        except Refusal:
            return ""
        return request.reply_address or ""

    def went(
        self, responses: Iterable[ResponseMessage], posts: Iterable[Outgoing], arrival: Arrival
    ) -> list[EnvelopeRow]:
        return [
            self._journal.goes(
                response, post.body, arrival.context, post.address or arrival.destination
            )
            for response, post in zip(responses, posts, strict=False)
        ]

    def event_post(self, event: EventMessage, context: str) -> Outgoing:
        name = self._settings.names.destination(context, event.header.verb, event.header.noun)
        return Outgoing(
            str(ReplyAddress(AddressKind.TOPIC, name)),
            encode(event),
            event.header.message_id or "",
            event.header.correlation_id or "",
            reply=False,
        )

    def in_progress(self, message: RequestMessage) -> ResponseMessage:
        """61968-100 cl. 5.2.5: the reply itself comes later."""
        return self.response(message.header, Answer(in_series(Reply(Result.PARTIAL), last=None)))


def check_content(settings: BusSettings, header: Header, payload: Payload | None) -> None:
    """61968-100 cl. 6.7: by the noun's schema, where one is configured.

    What is streamed is looked at by whoever takes it, while it is taken.
    """
    if payload is None or payload.empty or payload.ids or payload.operation_set is not None:
        return
    rules = settings.nouns.get(header.noun)
    if (payload.format or "XML") != "XML" or (rules is not None and rules.streamed):
        return
    compressed = payload.compressed is not None
    if not compressed and (rules is None or rules.schema is None):
        return
    parts = content(payload, limits=settings.reading.limits)
    for part in parts:
        if part.local_name != header.noun:
            raise Refusal(
                Rule.ENVELOPE_NOUN,
                f"the payload is a {clip(part.local_name)}, and the noun {clip(header.noun)}",
            )
        if rules is not None and rules.schema is not None:
            rules.schema.validate(part.element)
