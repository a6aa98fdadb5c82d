"""What the bus does with one envelope, whichever way it came: once, and in one transaction.

The law of this file: nothing is sent that is not stored, and nothing is done twice. Whoever calls
sends what comes back and only then lets go of the message that it had.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from uuid import uuid4

import structlog

from gridpost.core.bus import BusLedger, BusUnit, Outgoing, Posted
from gridpost.core.envelope import (
    OPERATION_SET_NOUN,
    EventMessage,
    FaultMessage,
    Header,
    RequestMessage,
    ResponseMessage,
    Verb,
    specific,
)
from gridpost.core.envelope_exchange import (
    complete,
    error_of,
    event_of,
    event_of_operations,
    failed,
    fault,
)
from gridpost.core.identifiers import clip
from gridpost.core.journal import EnvelopeRow, RefusalRow
from gridpost.core.ports import Clock
from gridpost.core.refusal import Fault, Refusal, Rule
from gridpost.services.bus.answering import Answering, Arrival, check_content
from gridpost.services.bus.handlers import Answer, Handlers, answers, joined, succeeded
from gridpost.services.bus.journalling import EnvelopeJournal, Known
from gridpost.services.bus.operations import run_operations
from gridpost.services.bus.settings import BusSettings
from gridpost.wire.envelope import decode, encode

log = structlog.get_logger(__name__)

AnyPost = Posted | Outgoing


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
        self.journal = EnvelopeJournal(settings, ledger, clock)
        self.answering = Answering(settings, clock, self.journal)

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
            place = arrival.reply_to or arrival.destination
            await self.journal.refused(
                refusal,
                arrival.destination,
                "",
                self.journal.came(
                    None, body, arrival.context, arrival.destination, refusal=refusal
                ),
                self.journal.goes(told, post.body, arrival.context, place),
            )
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
            self.journal.came(
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
            await self.journal.refused(refusal, arrival.destination, header.message_id or "", *rows)
            return Treated(dead=refusal)
        response = self.answering.response(header, Answer(failed(error_of(refusal))))
        posts = self.answering.posts(header, arrival, [response])
        rows += self.answering.went([response], posts, arrival)
        await self.journal.refused(refusal, arrival.destination, header.message_id or "", *rows)
        # Nobody can be told, so the operator finds it.
        dead = None if posts or arrival.synchronous else refusal
        return Treated(tuple(posts), dead, posts[-1].body if posts else encode(response))

    async def _serve(
        self, request: RequestMessage, body: bytes, arrival: Arrival, begun: float
    ) -> Treated:
        header = request.header
        self._guard(header, arrival)
        handler = self._handler(request)
        check_content(self._settings, header, request.payload)
        if header.context is None:
            request = replace(request, header=replace(header, context=arrival.context))
        sla = self._settings.sla(header.verb, header.noun)
        keys = keys_of(header)
        digest = hashlib.sha256(body).digest()

        def work(unit: BusUnit) -> Treated:
            known = unit.handled(header.source or "", keys)
            if known is not None:
                if known.digest != digest:
                    raise Refusal(
                        Rule.ENVELOPE_REPLAY,
                        "another message came with this MessageID or nonce before",
                    )
                took = timedelta(seconds=time.monotonic() - begun)
                self._note_again(unit, request, body, arrival, known.posted, took)
                return self._again(known.posted)
            if arrival.deadline is not None and time.monotonic() > arrival.deadline:
                raise Refusal(Rule.REQUEST_EXPIRED, "the request waited longer than it may take")
            found, event = self._execute(handler, request, unit)
            if arrival.synchronous and not header.async_reply:
                found = joined(found)
            responses = [self.answering.response(request.header, answer) for answer in found]
            posts = (
                [] if header.one_way else self.answering.posts(request.header, arrival, responses)
            )
            unit.record(
                self.journal.came(
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
                for row in self.answering.went(responses, posts, arrival):
                    unit.record(row)
            if event is not None:
                posts.append(self.answering.event_post(event, arrival.context))
                unit.record(
                    self.journal.goes(event, posts[-1].body, arrival.context, posts[-1].address)
                )
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

    def _guard(self, header: Header, arrival: Arrival) -> None:
        self._settings.guard.check(
            header, destination=arrival.context, now=self._clock.now(), own=arrival.own
        )

    def admit(self, message: RequestMessage, context: str) -> None:
        """Of a request that is done later: what can be refused at once."""
        self._settings.guard.check(message.header, destination=context, now=self._clock.now())
        self._handler(message)
        check_content(self._settings, message.header, message.payload)

    async def acknowledgement(self, body: bytes, arrival: Arrival) -> Outgoing | None:
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
        try:
            self.admit(message, arrival.context)
        except Refusal:
            return None  # the refusal itself comes at once
        said = self.answering.in_progress(message)
        post = self.answering.post(arrival.reply_to, said, arrival)
        await self.journal.note(
            self.journal.goes(said, post.body, arrival.context, arrival.reply_to)
        )
        return post

    def _note_again(
        self,
        unit: BusUnit,
        message: Known,
        body: bytes,
        arrival: Arrival,
        posted: Iterable[Posted] = (),
        took: timedelta | None = None,
    ) -> None:
        place = arrival.destination
        unit.record(self.journal.again(message, body, arrival.context, place, took))
        for outgoing in (post.outgoing for post in posted):
            said, to = self.read(outgoing.body), outgoing.address or place
            unit.record(self.journal.goes(said, outgoing.body, arrival.context, to))

    def _again(self, posted: Iterable[Posted]) -> Treated:
        found = tuple(posted)
        bodies = [post.outgoing.body for post in found if post.outgoing.reply]
        return Treated(found, None, bodies[-1] if bodies else None)

    def _handler(self, request: RequestMessage) -> Callable[[RequestMessage, BusUnit], object]:
        header = request.header
        key = (header.verb, header.noun)
        handler = self._handlers.requests.get(key)
        if handler is None and key == (Verb.EXECUTE, OPERATION_SET_NOUN):
            return lambda message, unit: run_operations(
                message, unit, self._handlers, partial(check_content, self._settings)
            )
        if handler is None:
            raise Refusal(
                Rule.NOT_HANDLED, f"nobody serves '{header.verb} {clip(header.noun)}' here"
            )
        return handler

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
        event = event_of(request, self.answering.stamp())
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
        return found, event if any(answer.changed for answer in found) else None

    # -- events (61968-100 cl. 6.8)

    async def event(self, body: bytes, arrival: Arrival) -> Treated:
        """Never answered: what is wrong is logged and kept, and the next one is taken."""
        message = None
        try:
            message = self.read(body)
            if not isinstance(message, EventMessage):
                raise Refusal(Rule.ENVELOPE_FORM, "only an EventMessage is taken here")
            header = message.header
            self._guard(header, arrival)
            listener = self._handlers.events.get((header.verb, header.noun))
            if listener is None:
                raise Refusal(
                    Rule.NOT_HANDLED, f"nobody listens to '{header.verb} {clip(header.noun)}' here"
                )
            check_content(self._settings, header, message.payload)
            event, digest, keys = message, hashlib.sha256(body).digest(), keys_of(header)

            def work(unit: BusUnit) -> None:
                known = unit.handled(header.source or "", keys)
                if known is not None:
                    if known.digest != digest:
                        raise Refusal(
                            Rule.ENVELOPE_REPLAY, "another event came with this id before"
                        )
                    self._note_again(unit, event, body, arrival)
                    return
                listener(event, unit)
                unit.record(self.journal.came(event, body, arrival.context, arrival.destination))
                unit.remember(header.source or "", keys, digest, [], self._clock.now())

            sla = self._settings.sla(header.verb, header.noun)
            await self._ledger.run(work, sla.within.total_seconds())
        except Refusal as refusal:
            if refusal.rule is Rule.BUSY:
                raise
            return await self.not_taken(refusal, message, body, arrival)
        except Exception as error:
            broken = Refusal(Rule.INTERNAL, "a listener failed", repr(error))
            log.exception("a listener failed", refusal=broken.id)
            return await self.not_taken(broken, message, body, arrival)
        return Treated()

    async def publish(self, body: bytes, arrival: Arrival) -> Treated:
        """61968-100 Annex D, PublishEvent: stored first, then told to everybody who listens."""
        message = None
        try:
            message = self.read(body)
            if not isinstance(message, EventMessage):
                raise Refusal(Rule.ENVELOPE_FORM, "only an EventMessage is published here")
        except Refusal as refusal:
            told = fault(refusal)
            treated = await self.not_taken(refusal, message, body, arrival, told)
            return replace(treated, response=encode(told))
        header = message.header
        event, digest = message, hashlib.sha256(body).digest()
        # Not the keys of an event that comes in: this bus may listen to what it publishes.
        keys = [f"p:{key}" for key in keys_of(header)]
        done = self.answering.response(header, Answer(complete()))
        try:
            self._guard(header, arrival)
            check_content(self._settings, header, message.payload)

            def work(unit: BusUnit) -> tuple[Posted, ...]:
                known = unit.handled(header.source or "", keys)
                if known is not None:
                    if known.digest != digest:
                        raise Refusal(
                            Rule.ENVELOPE_REPLAY, "another event came with this id before"
                        )
                    self._note_again(unit, event, body, arrival, known.posted)
                    unit.record(self._told(done, arrival))
                    return known.posted
                post = replace(self.answering.event_post(event, arrival.context), body=body)
                unit.record(self.journal.came(event, body, arrival.context, arrival.destination))
                unit.record(self.journal.goes(event, body, arrival.context, post.address))
                unit.record(self._told(done, arrival))
                return unit.remember(header.source or "", keys, digest, [post], self._clock.now())

            return Treated(await self._ledger.run(work), None, encode(done))
        except Refusal as refusal:
            if refusal.rule is Rule.BUSY:
                raise
            response = self.answering.response(header, Answer(failed(error_of(refusal))))
            await self.not_taken(refusal, message, body, arrival, response)
            return Treated(response=encode(response))

    def _told(self, said: Known, arrival: Arrival) -> EnvelopeRow:
        """An answer in the exchange itself."""
        return self.journal.goes(said, encode(said), arrival.context, arrival.destination)

    async def not_taken(
        self,
        refusal: Refusal,
        message: Known | None,
        body: bytes,
        arrival: Arrival,
        told: Known | None = None,
    ) -> Treated:
        """`told`: what is answered in the exchange itself."""
        place = arrival.destination
        rows = [self.journal.came(message, body, arrival.context, place, refusal=refusal)]
        if told is not None:
            rows.append(self._told(told, arrival))
        await self.journal.refused(refusal, place, message_id_of(message), *rows)
        return Treated(dead=refusal)


def message_id_of(message: Known | None) -> str:
    if message is None or isinstance(message, FaultMessage):
        return ""
    return message.header.message_id or ""


def keys_of(header: Header) -> list[str]:
    """What a message is known by when it comes again."""
    keys = []
    if header.message_id:
        keys.append(f"m:{header.message_id}")
    if header.replay_detection is not None:
        keys.append(f"n:{header.replay_detection.nonce}")
    return keys
