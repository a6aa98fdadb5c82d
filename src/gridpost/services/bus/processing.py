"""What the bus does with one envelope, whichever way it came: once, and in one transaction.

The law of this file: nothing is sent that is not stored, and nothing is done twice. Whoever calls
sends what comes back and only then lets go of the message that it had.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import uuid4

import structlog

from gridpost.core.bus import BusLedger, BusUnit, Outgoing, Posted
from gridpost.core.envelope import (
    OPERATION_SET_NOUN,
    EventMessage,
    FaultMessage,
    Header,
    Operation,
    Pair,
    Payload,
    Reply,
    Request,
    RequestMessage,
    ResponseMessage,
    Result,
    Verb,
    specific,
)
from gridpost.core.envelope_exchange import (
    AddressKind,
    ReplyAddress,
    Stamp,
    error_of,
    event_of,
    event_of_operations,
    failed,
    fault,
    in_series,
    prevailing,
    response_to,
)
from gridpost.core.identifiers import clip
from gridpost.core.journal import EnvelopeRow, RefusalRow
from gridpost.core.operation_set import execute, replies
from gridpost.core.ports import Clock
from gridpost.core.refusal import Fault, Refusal, Rule
from gridpost.services.bus.handlers import Answer, Handlers, Series, answers, succeeded
from gridpost.services.bus.journalling import EnvelopeJournal, Known
from gridpost.services.bus.settings import BusSettings
from gridpost.wire.envelope import content, decode, encode

log = structlog.get_logger(__name__)

AnyPost = Posted | Outgoing
_ELEMENTS = "elementOperation"


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


@dataclass(frozen=True, slots=True)
class Treated:
    """What is to be sent, and whether the message itself must go to the dead letters."""

    posts: tuple[AnyPost, ...] = ()
    dead: Refusal | None = None
    response: bytes | None = None
    """For a transport that answers in the same exchange."""


class Processor:
    def __init__(
        self, settings: BusSettings, handlers: Handlers, ledger: BusLedger, clock: Clock
    ) -> None:
        self._settings = settings
        self._handlers = handlers
        self._ledger = ledger
        self._clock = clock
        self._journal = EnvelopeJournal(settings, clock)

    def read(self, body: bytes) -> RequestMessage | ResponseMessage | EventMessage | FaultMessage:
        if len(body) > self._settings.max_bytes:
            raise Refusal(
                Rule.LIMIT_EXCEEDED, f"an envelope has at most {self._settings.max_bytes} bytes"
            )
        return specific(decode(body, self._settings.reading))

    # -- requests (61968-100 cl. 6.7)

    async def request(self, body: bytes, arrival: Arrival) -> Treated:
        begun = time.monotonic()
        try:
            message = self.read(body)
            if not isinstance(message, RequestMessage):
                raise Refusal(Rule.ENVELOPE_FORM, "only a RequestMessage is served here")
        except Refusal as refusal:
            # Not even the header counts: a fault, and the message is kept for the operator.
            told = fault(refusal)
            post = Outgoing(arrival.reply_to, encode(told), correlation_id=arrival.correlation)
            rows = [
                self._journal.came(
                    None, body, arrival.context, arrival.destination, refusal=refusal
                ),
                self._journal.goes(told, post, arrival.context),
            ]
            await self._note(refusal, arrival, rows=rows)
            return Treated((post,) if arrival.reply_to else (), refusal, post.body)
        try:
            return await self._serve(message, body, arrival, begun)
        except Refusal as refusal:
            if refusal.rule is Rule.BUSY or (
                refusal.retryable and refusal.fault is Fault.OURSELVES
            ):
                raise
            return await self._failed(message, body, arrival, refusal, begun)

    async def _failed(
        self,
        message: RequestMessage,
        body: bytes,
        arrival: Arrival,
        refusal: Refusal,
        begun: float,
    ) -> Treated:
        header = message.header
        rows = [
            self._journal.came(
                message,
                body,
                arrival.context,
                arrival.destination,
                refusal=refusal,
                elapsed=timedelta(seconds=time.monotonic() - begun),
                limit=self._settings.sla(header.verb, header.noun).within,
            )
        ]
        if refusal.rule is Rule.REQUEST_EXPIRED or header.one_way:
            await self._note(refusal, arrival, header.message_id or "", rows)
            return Treated(dead=refusal)
        response = self._response(header, Answer(failed(error_of(refusal))))
        posts = self._posts(header, arrival, [response])
        rows += self._went([response], posts, arrival)
        await self._note(refusal, arrival, header.message_id or "", rows)
        return Treated(tuple(posts), None, posts[-1].body if posts else encode(response))

    async def _serve(
        self, request: RequestMessage, body: bytes, arrival: Arrival, begun: float
    ) -> Treated:
        header = request.header
        self._settings.guard.check(header, destination=arrival.context, now=self._clock.now())
        handler = self._handler(request)
        self._check_content(header, request.payload)
        if header.reply_address and not header.one_way:
            ReplyAddress.parse(header.reply_address)
        if header.context is None:
            request = replace(request, header=replace(header, context=arrival.context))
        sla = self._settings.sla(header.verb, header.noun)
        keys = _keys(header)
        digest = hashlib.sha256(body).digest()

        def work(unit: BusUnit) -> Treated:
            known = unit.handled(header.source or "", keys)
            if known is not None:
                if known.digest != digest:
                    raise Refusal(
                        Rule.ENVELOPE_REPLAY,
                        "another message came with this MessageID or nonce before",
                    )
                return self._again(known.posted)
            if arrival.deadline is not None and time.monotonic() > arrival.deadline:
                raise Refusal(Rule.REQUEST_EXPIRED, "the request waited longer than it may take")
            found, event = self._execute(handler, request, unit)
            responses = [self._response(request.header, answer) for answer in found]
            posts = [] if header.one_way else self._posts(request.header, arrival, responses)
            unit.record(
                self._journal.came(
                    request,
                    body,
                    arrival.context,
                    arrival.destination,
                    answers=found,
                    elapsed=timedelta(seconds=time.monotonic() - begun),
                    limit=sla.within,
                )
            )
            if not header.one_way:
                for row in self._went(responses, posts, arrival):
                    unit.record(row)
            if event is not None:
                posts.append(self._event_post(event, arrival.context))
                unit.record(self._journal.goes(event, posts[-1], arrival.context))
            for error in (e for answer in found for e in answer.reply.real_errors):
                if header.one_way:
                    # 61968-100 cl. 4.5: nobody else is told, so it is kept here.
                    unit.record(
                        RefusalRow(
                            self._clock.now(), str(uuid4()), error.code, "VALIDATION_ERROR",
                            error.reason or "", error.details or "", header.source or "",
                            header.message_id or "",
                        )
                    )  # fmt: skip
            stored = unit.remember(header.source or "", keys, digest, posts, self._clock.now())
            return self._again(stored)

        return await self._ledger.run(work, sla.within.total_seconds())

    def acknowledgement(self, body: bytes, arrival: Arrival) -> Outgoing | None:
        """61968-100 cl. 5.2.5: at once, when the reply itself comes later; None: no such request."""
        if not arrival.reply_to or b"AsyncReplyFlag" not in body:
            return None
        try:
            message = self.read(body)
        except Refusal:
            return None
        if not isinstance(message, RequestMessage) or not message.header.async_reply:
            return None
        if message.header.one_way or message.header.reply_address == arrival.reply_to:
            return None
        reply = in_series(Reply(Result.PARTIAL), last=None)
        answer = self._response(message.header, Answer(reply))
        return self._post(arrival.reply_to, answer, arrival)

    def _again(self, posted: Iterable[Posted]) -> Treated:
        found = tuple(posted)
        bodies = [post.outgoing.body for post in found if post.outgoing.reply]
        return Treated(found, None, bodies[-1] if bodies else None)

    def _handler(self, request: RequestMessage) -> Callable[[RequestMessage, BusUnit], object]:
        header = request.header
        key = (header.verb, header.noun)
        handler = self._handlers.requests.get(key)
        if handler is None and key == (Verb.EXECUTE, OPERATION_SET_NOUN):
            return self._operations
        if handler is None:
            raise Refusal(
                Rule.NOT_HANDLED, f"nobody serves '{header.verb} {clip(header.noun)}' here"
            )
        return handler

    def _check_content(self, header: Header, payload: Payload | None) -> None:
        """61968-100 cl. 6.7: by the noun's schema, where one is configured."""
        if payload is None or payload.empty or payload.ids or payload.operation_set is not None:
            return
        rules = self._settings.nouns.get(header.noun)
        if (payload.format or "XML") != "XML":
            return
        compressed = payload.compressed is not None
        if not compressed and (rules is None or rules.schema is None):
            return
        parts = content(payload, limits=self._settings.reading.limits)
        for part in parts:
            if part.local_name != header.noun:
                raise Refusal(
                    Rule.ENVELOPE_NOUN,
                    f"the payload is a {clip(part.local_name)}, and the noun {clip(header.noun)}",
                )
            if rules is not None and rules.schema is not None:
                rules.schema.validate(part.element)

    def _execute(
        self,
        handler: Callable[[RequestMessage, BusUnit], object],
        request: RequestMessage,
        unit: BusUnit,
    ) -> tuple[list[Answer], EventMessage | None]:
        mark = unit.mark()
        try:
            found = answers(handler(request, unit), request.header.verb)
        except Refusal as refusal:
            unit.back(mark)
            return [Answer(failed(error_of(refusal)))], None
        except Exception as error:
            unit.back(mark)
            broken = Refusal(Rule.INTERNAL, "the service could not do this", repr(error))
            log.exception("a handler failed", refusal=broken.id, noun=request.header.noun)
            return [Answer(failed(error_of(broken)))], None
        event = event_of(request, self._stamp())
        if event is not None and event.payload and event.payload.operation_set is not None:
            good = {
                error.operation_id
                for answer in found
                for error in answer.reply.errors
                if error.operation_id is not None and error.code == "0.0"
            } | {a.reply.operation_id for a in found if not a.reply.real_errors}
            event = event_of_operations(event, frozenset(n for n in good if n is not None))
            return found, event
        if not succeeded(found):
            unit.back(mark)
            return found, None
        return found, event

    def _operations(self, request: RequestMessage, unit: BusUnit) -> object:
        """Each operation by the handler of its verb and noun."""
        operations = request.payload.operation_set if request.payload is not None else None
        if operations is None:
            raise Refusal(Rule.OPERATION_SET, "there is no OperationSet")

        def apply(operation: Operation) -> list[object]:
            noun, verb = operation.effective_noun, Verb(operation.verb or "")
            handler = self._handlers.requests.get((verb, noun))
            if handler is None:
                raise Refusal(Rule.NOT_HANDLED, f"nobody serves '{verb} {clip(noun)}' here")
            payload = Payload(() if operation.content is None else (operation.content,))
            self._check_content(replace(request.header, noun=noun), payload)
            header = replace(request.header, verb=verb, noun=noun)
            # How a handler is told that only elements go: see `element_operation`.
            options = (Pair(_ELEMENTS, "true"),) if operation.element_operation else ()
            single = RequestMessage(header, Request(options=options), payload)
            found = answers(handler(single, unit), verb)
            errors = [e for answer in found for e in answer.reply.real_errors]
            if errors:
                raise Refusal(
                    Rule.OPERATION_FAILED,
                    errors[0].reason or errors[0].code,
                    errors[0].details or "",
                )
            return [i for answer in found for i in answer.reply.ids]

        outcomes = execute(operations, apply, unit)  # type: ignore[arg-type]
        separate = _streaming(request)
        found = replies(outcomes, separate=separate)
        if not separate or len(found) == 1:
            return Answer(found[0])
        return Series(tuple(Answer(reply) for reply in found))

    # -- events (61968-100 cl. 6.8)

    async def event(self, body: bytes, arrival: Arrival) -> Treated:
        """Never answered: what is wrong is logged and kept, and the next one is taken."""
        message = None
        try:
            message = self.read(body)
            if not isinstance(message, EventMessage):
                raise Refusal(Rule.ENVELOPE_FORM, "only an EventMessage is taken here")
            header = message.header
            self._settings.guard.check(header, destination=arrival.context, now=self._clock.now())
            listener = self._handlers.events.get((header.verb, header.noun))
            if listener is None:
                return Treated()
            self._check_content(header, message.payload)
            event, digest, keys = message, hashlib.sha256(body).digest(), _keys(header)

            def work(unit: BusUnit) -> None:
                known = unit.handled(header.source or "", keys)
                if known is not None:
                    if known.digest != digest:
                        raise Refusal(
                            Rule.ENVELOPE_REPLAY, "another event came with this id before"
                        )
                    return
                listener(event, unit)
                unit.record(self._journal.came(event, body, arrival.context, arrival.destination))
                unit.remember(header.source or "", keys, digest, [], self._clock.now())

            sla = self._settings.sla(header.verb, header.noun)
            await self._ledger.run(work, sla.within.total_seconds())
        except Refusal as refusal:
            if refusal.rule is Rule.BUSY:
                raise
            return await self._not_heard(refusal, message, body, arrival)
        except Exception as error:
            broken = Refusal(Rule.INTERNAL, "a listener failed", repr(error))
            log.exception("a listener failed", refusal=broken.id)
            return await self._not_heard(broken, message, body, arrival)
        return Treated()

    async def _not_heard(
        self, refusal: Refusal, message: Known | None, body: bytes, arrival: Arrival
    ) -> Treated:
        row = self._journal.came(
            message, body, arrival.context, arrival.destination, refusal=refusal
        )
        await self._note(refusal, arrival, rows=[row])
        return Treated(dead=refusal)

    # -- what goes out

    def _stamp(self) -> Stamp:
        now = prevailing(self._clock.now(), self._settings.zone)
        return Stamp(str(uuid4()), now, self._settings.name)

    def _response(self, request: Header, answer: Answer) -> ResponseMessage:
        return response_to(request, answer.reply, self._stamp(), answer.payload)

    def _post(self, address: str, response: ResponseMessage, arrival: Arrival) -> Outgoing:
        message_id = response.header.message_id or ""
        return Outgoing(address, encode(response), message_id, arrival.correlation)

    def _posts(
        self, request: Header, arrival: Arrival, responses: Iterable[ResponseMessage]
    ) -> list[Outgoing]:
        # 61968-100 cl. 6.3.2: the transport's address for the transport, unless the reply comes later.
        address = arrival.reply_to
        if request.async_reply or not address:
            address = request.reply_address or arrival.reply_to
        if arrival.synchronous and not request.async_reply:
            address = ""
        elif not address:
            return []
        return [self._post(address, response, arrival) for response in responses]

    def _went(
        self, responses: Iterable[ResponseMessage], posts: Iterable[Outgoing], arrival: Arrival
    ) -> list[EnvelopeRow]:
        return [
            self._journal.goes(response, post, arrival.context)
            for response, post in zip(responses, posts, strict=False)
        ]

    def _event_post(self, event: EventMessage, context: str) -> Outgoing:
        name = self._settings.names.destination(context, event.header.verb, event.header.noun)
        return Outgoing(
            str(ReplyAddress(AddressKind.TOPIC, name)),
            encode(event),
            event.header.message_id or "",
            event.header.correlation_id or "",
            reply=False,
        )

    async def _note(
        self,
        refusal: Refusal,
        arrival: Arrival,
        message_id: str = "",
        rows: Sequence[EnvelopeRow] = (),
    ) -> None:
        log.warning(
            "refused an envelope",
            refusal=refusal.id,
            rule=refusal.rule.name,
            reason=refusal.message,
            destination=arrival.destination,
        )
        row = RefusalRow(
            self._clock.now(),
            refusal.id,
            refusal.rule.name,
            refusal.code,
            refusal.message,
            refusal.details,
            arrival.destination,
            message_id,
            refusal.rule in (Rule.ENVELOPE_REPLAY, Rule.ENVELOPE_STALE, Rule.ENVELOPE_CONTEXT),
        )

        def work(unit: BusUnit) -> None:
            for found in (*rows, row):
                unit.record(found)

        await self._ledger.run(work)


def element_operation(request: RequestMessage) -> bool:
    """61968-100 cl. 6.10.1: only what the payload names goes; the object stays."""
    options = request.request.options if request.request is not None else ()
    return any(o.name == _ELEMENTS and o.value == "true" for o in options)


def _keys(header: Header) -> list[str]:
    keys = []
    if header.message_id:
        keys.append(f"m:{header.message_id}")
    if header.replay_detection is not None:
        keys.append(f"n:{header.replay_detection.nonce}")
    return keys


def _streaming(request: RequestMessage) -> bool:
    options = request.request.options if request.request is not None else ()
    return any(o.name == "responseMode" and o.value == "Streaming" for o in options)
