"""Requests that are served elsewhere: a router by the header, and a proxy from the web to queues.

Neither changes an envelope unless its rule says so: client and server need not know the bus
(61968-100 cl. 5.3.1). What is passed on is in the journal before it goes, what is answered before
it is given.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import uuid4

import structlog

from gridpost.core.amqp091 import Channel, Incoming, Properties, short
from gridpost.core.bus import BusUnit, Outgoing, Posted
from gridpost.core.envelope import (
    OPERATION_SET_NOUN,
    RequestMessage,
    ResponseMessage,
    Verb,
    correlation_of,
    specific,
)
from gridpost.core.envelope_exchange import error_of, failed, response_to
from gridpost.core.journal import EnvelopeRow
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.handlers import as_one
from gridpost.services.bus.journalling import Known
from gridpost.services.bus.processing import keys_of
from gridpost.services.bus.routing import RouteRule, Target, chosen
from gridpost.services.bus.settings import ANY
from gridpost.wire.envelope import decode, encode

if TYPE_CHECKING:
    from gridpost.services.bus.service import BusService

T = TypeVar("T")
log = structlog.get_logger(__name__)


class Caller(Protocol):
    async def call(self, url: str, envelope: bytes) -> bytes | None: ...


class Bridge(Protocol):
    """To other parties, through the endpoint."""

    async def send(self, code: str, envelope: bytes, correlation: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Trip:
    """A request on its way through, as it came."""

    message: RequestMessage
    body: bytes
    context: str
    place: str
    own: bool = False
    """Did an adapter of this bus write it?"""
    begun: float = field(default_factory=time.monotonic)

    @property
    def alone(self) -> bool:
        """Does nobody wait for its reply in the exchange in which it came?"""
        return self.message.header.one_way or bool(self.message.header.async_reply)


@dataclass(frozen=True, slots=True)
class Passed:
    """It went elsewhere; None: whoever sent it is told nothing now."""

    answer: bytes | None = None
    dead: bool = False
    """Nobody took it: it is for the dead letters."""


class Forwarder:
    def __init__(
        self,
        service: BusService,
        rules: Sequence[RouteRule],
        *,
        caller: Caller | None = None,
        bridge: Bridge | None = None,
        proxy: bool = True,
    ) -> None:
        """`proxy`: what comes by the web and nobody serves here goes to the queue of its name."""
        self._service = service
        self._journal = service.processor.journal
        self._rules = tuple(rules)
        self._caller = caller
        self._bridge = bridge
        self._proxy = proxy
        self._reply_queue = ""
        self._waiting: dict[str, asyncio.Queue[bytes]] = {}

    def keys(self) -> set[tuple[Verb, str]]:
        """What the router takes from queues: rules that name their verb and noun."""
        return {(Verb(r.verb), r.noun) for r in self._rules if ANY not in (r.verb, r.noun)}

    @property
    def routes(self) -> bool:
        """Is there any rule at all?"""
        return bool(self._rules)

    async def connected(self, channel: Channel) -> None:
        self._reply_queue, _ = await channel.declare_queue(
            durable=False, exclusive=True, auto_delete=True
        )
        await channel.consume(self._reply_queue, self._reply, no_ack=True)

    def _reply(self, incoming: Incoming) -> None:
        waiting = self._waiting.get(incoming.properties.correlation_id or "")
        if waiting is not None:
            waiting.put_nowait(incoming.body)

    def rule(self, message: RequestMessage) -> RouteRule | None:
        return next((rule for rule in self._rules if rule.meets(message)), None)

    # -- from the web

    async def web(
        self, message: RequestMessage, body: bytes, context: str, place: str, own: bool = False
    ) -> Passed | None:
        """None: it is served here."""
        rule = self.rule(message)
        service, header = self._service, message.header
        here = (header.verb, header.noun) in service.handlers.requests
        if rule is None and (here or not self._proxy or header.noun == OPERATION_SET_NOUN):
            return None
        trip = Trip(message, body, context, place, own)
        try:
            target, body = await self._chosen(rule, trip)
            if not trip.alone:
                return await self._answered(trip, place, await self._ask(trip, target, body))
            await self._pass_on(trip, target, body, header.reply_address or "", "")
            if header.one_way:
                return await self._answered(trip, place, None)
            progress = encode(service.processor.answering.in_progress(message))
            return await self._answered(trip, place, progress)
        except Refusal as refusal:
            if refusal.rule is Rule.AMQP091_UNROUTED:
                refusal = Refusal(
                    Rule.NOT_HANDLED, f"nobody serves '{header.verb} {header.noun}' here"
                )
            passed = await self._refused(trip, place, refusal)
            if passed.dead:
                dead = Outgoing(place, trip.body, header.message_id or "")
                await service.post.bury(dead, refusal.message)
            return passed

    async def _chosen(self, rule: RouteRule | None, trip: Trip) -> tuple[Target, bytes]:
        service, header = self._service, trip.message.header
        service.settings.guard.check(
            header, destination=trip.context, now=service.clock.now(), own=trip.own
        )
        if rule is None:
            name = service.settings.names.destination(trip.context, header.verb, header.noun)
            return Target(f"queue:{name}"), trip.body
        living = await service.instances() if rule.by_instance else ()
        return chosen(rule, living), rule.treatment(trip.body)

    # -- from a queue

    async def queue(
        self, message: RequestMessage, incoming: Incoming, context: str, name: str
    ) -> Passed | None:
        """None: it is served here."""
        rule = self.rule(message)
        if rule is None:
            return None
        trip = Trip(message, incoming.body, context, name)
        found = incoming.properties
        reply_to = f"queue:{found.reply_to}" if found.reply_to else ""
        try:
            target, body = await self._chosen(rule, trip)
            if target.address == f"queue:{name}":
                return None
            if target.web and not trip.alone:
                answer = await self._ask(trip, target, body)
                return await self._answered(trip, reply_to, answer)
            key = found.correlation_id or found.message_id or ""
            to = reply_to or message.header.reply_address or ""
            await self._pass_on(trip, target, body, to, key)
            progress = None
            if target.web and not message.header.one_way:
                progress = encode(self._service.processor.answering.in_progress(message))
            return await self._answered(trip, reply_to, progress)
        except Refusal as refusal:
            if refusal.retryable and refusal.rule is not Rule.UNREACHABLE:
                raise
            return await self._refused(trip, reply_to, refusal)

    # -- to others

    async def _ask(self, trip: Trip, target: Target, body: bytes) -> bytes:
        """One request, and everything that is replied to it as one response.

        Where the end of a series does not come in time, the answer is what did (61968-100 cl. 6.3.4:
        a server that cannot say which reply is the last one never says so).
        """
        header = trip.message.header
        within = self._service.settings.sla(header.verb, header.noun).within.total_seconds()
        answers: list[bytes] = []
        try:
            async with asyncio.timeout(within):
                if target.web:
                    return await self._call(trip, target, body)
                await self._ask_queue(trip, target, body, answers)
        except TimeoutError:
            if not answers:
                rule = Rule.UNREACHABLE if target.web else Rule.NO_REPLY
                raise Refusal(rule, f"no reply within {within:g} s") from None
            log.info("a series has no end", place=trip.place, parts=len(answers))
        return as_one(answers)

    async def _ask_queue(
        self, trip: Trip, target: Target, body: bytes, answers: list[bytes]
    ) -> None:
        """Into `answers`, as they come, until the last one."""
        key = str(uuid4())
        found = self._waiting[key] = asyncio.Queue[bytes]()
        try:
            await self._pass_on(trip, target, body, f"queue:{self._reply_queue}", key)
            while True:
                answers.append(await found.get())
                last = specific(decode(answers[-1]))
                if not target.party:
                    await self._journal.note(
                        self._journal.came(last, answers[-1], trip.context, target.address)
                    )
                if not isinstance(last, ResponseMessage) or not last.reply.more_follow:
                    return
        finally:
            self._waiting.pop(key, None)

    async def _call(self, trip: Trip, target: Target, body: bytes) -> bytes:
        caller = self._caller
        if caller is None:
            raise Refusal(Rule.NOT_HANDLED, "this bus calls no web services")
        await self._journal.note(self._out(trip, target, body))
        found = await self._tried(trip, lambda: caller.call(target.address, body))
        return found or encode(self._service.processor.answering.in_progress(trip.message))

    async def _tried(self, trip: Trip, attempt: Callable[[], Awaitable[T]]) -> T:
        """Again while there is time: the request expires with its service level."""
        header, settings = trip.message.header, self._service.settings
        end = trip.begun + settings.sla(header.verb, header.noun).within.total_seconds()
        pauses = iter(settings.retries)
        while True:
            try:
                return await attempt()
            except Refusal as refusal:
                pause = next(pauses, None)
                if pause is None or time.monotonic() + pause > end or not refusal.retryable:
                    raise
                log.info("a target waits", place=trip.place, reason=refusal.message)
                await asyncio.sleep(pause)

    async def _pass_on(
        self, trip: Trip, target: Target, body: bytes, reply_to: str, key: str
    ) -> None:
        """With the address to which whoever serves it replies by itself."""
        if target.web:
            await self._post(trip, target, body)
        elif target.party:
            await self._to_party(trip, target, body, reply_to, key)
        else:
            await self._put(trip, target, body, reply_to, key)
        self._service.step("route passed on")

    async def _put(self, trip: Trip, target: Target, body: bytes, reply_to: str, key: str) -> None:
        service, header = self._service, trip.message.header
        await self._journal.note(self._out(trip, target, body))
        service.step("route written")
        properties = Properties(
            content_type="application/xml",
            content_encoding="UTF-8",
            message_id=short(header.message_id),
            correlation_id=key or short(header.correlation_id),
            reply_to=reply_to.removeprefix("queue:") if reply_to.startswith("queue:") else None,
            expiration=service.settings.sla(header.verb, header.noun).within,
        )
        await service.post.put(body, properties, target.address.removeprefix("queue:"))

    async def _post(self, trip: Trip, target: Target, body: bytes) -> None:
        """It is kept in the outbox, and called until somebody takes it or it is a dead letter."""
        service, header = self._service, trip.message.header
        keys, digest = [f"f:{k}" for k in keys_of(header)], hashlib.sha256(trip.body).digest()
        outgoing = Outgoing(target.address, body, header.message_id or "", reply=False)

        def work(unit: BusUnit) -> tuple[Posted, ...]:
            known = unit.handled(header.source or "", keys)
            if known is not None:
                if known.digest != digest:
                    raise Refusal(
                        Rule.ENVELOPE_REPLAY,
                        "another message came with this MessageID or nonce before",
                    )
                # The outbox has it, or it was taken already.
                return ()
            unit.record(self._out(trip, target, body))
            now = service.clock.now()
            return unit.remember(header.source or "", keys, digest, [outgoing], now)

        posts = await service.ledger.run(work)
        service.step("route written")
        await service.post.publish(posts)

    async def _to_party(
        self, trip: Trip, target: Target, body: bytes, reply_to: str, key: str
    ) -> None:
        bridge = self._bridge
        if bridge is None:
            raise Refusal(Rule.NOT_HANDLED, "this bus has no endpoint")
        correlation = correlation_of(trip.message.header)
        if not correlation:
            raise Refusal(
                Rule.ENVELOPE_FORM, "to another party: MessageID or CorrelationID is needed"
            )
        now = self._service.clock.now()

        def work(unit: BusUnit) -> None:
            if reply_to:
                unit.expect(correlation, reply_to, key or correlation, now)
            unit.record(self._out(trip, target, body))

        await self._service.ledger.run(work)
        self._service.step("route written")
        await self._tried(trip, lambda: bridge.send(target.party, body, correlation))

    # -- what is written down and said

    def _out(self, trip: Trip, target: Target, body: bytes) -> EnvelopeRow:
        return self._journal.goes(trip.message, body, trip.context, target.address)

    def _came(
        self, trip: Trip, answer: Known | None = None, refusal: Refusal | None = None
    ) -> EnvelopeRow:
        header = trip.message.header
        return self._journal.came(
            trip.message,
            trip.body,
            trip.context,
            trip.place,
            refusal=refusal,
            said=answer,
            elapsed=timedelta(seconds=time.monotonic() - trip.begun),
            limit=self._service.settings.sla(header.verb, header.noun).within,
        )

    async def _answered(self, trip: Trip, to: str, answer: bytes | None) -> Passed:
        """`to` empty: nobody is told, whatever the answer."""
        if answer is None or not to:
            await self._journal.note(self._came(trip))
            return Passed()
        said = specific(decode(answer))
        await self._journal.note(
            self._came(trip, said), self._journal.goes(said, answer, trip.context, to)
        )
        return Passed(answer)

    async def _refused(self, trip: Trip, to: str, refusal: Refusal) -> Passed:
        header = trip.message.header
        row, number = self._came(trip, refusal=refusal), header.message_id or ""
        if header.one_way or not to:
            # 61968-100 cl. 4.5: nobody else is told, so it is kept here.
            await self._journal.refused(refusal, trip.place, number, row)
            return Passed(dead=True)
        said = self._failure(trip.message, refusal)
        answer = encode(said)
        went = self._journal.goes(said, answer, trip.context, to)
        await self._journal.refused(refusal, trip.place, number, row, went)
        return Passed(answer, dead=refusal.rule is Rule.UNREACHABLE)

    def _failure(self, message: RequestMessage, refusal: Refusal) -> ResponseMessage:
        stamp = self._service.processor.answering.stamp()
        return response_to(message.header, failed(error_of(refusal)), stamp)

    async def returned(self, outgoing: Outgoing, answer: bytes | None, why: str) -> None:
        """What came of a request in the outbox: a reply that is not asked for later goes where
        replies go (61968-100 cl. 5.2.5), and so does the failure to reach anybody."""
        request = specific(decode(outgoing.body))
        if not isinstance(request, RequestMessage) or request.header.one_way:
            return
        said = None if answer is None else specific(decode(answer))
        if why:
            said = self._failure(request, Refusal(Rule.UNREACHABLE, why))
        address = request.header.reply_address
        if not address or said is None:
            return
        if isinstance(said, ResponseMessage) and said.reply.more_follow:
            return
        body = encode(said) if answer is None else answer
        number = said.header.message_id if isinstance(said, ResponseMessage) else ""
        correlation = correlation_of(request.header) or ""
        post = Outgoing(address, body, number or "", correlation)

        def work(unit: BusUnit) -> tuple[Posted, ...]:
            context = request.header.context or ""
            unit.record(self._journal.goes(said, body, context, address))
            return unit.remember("", (), b"", [post], self._service.clock.now())

        await self._service.post.publish(await self._service.ledger.run(work))
