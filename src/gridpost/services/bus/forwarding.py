"""Requests that are served elsewhere: a router by the header, and a proxy from the web to queues.

Neither changes an envelope unless its rule says so: client and server need not know the bus
(61968-100 cl. 5.3.1). Rules look at the header alone, so no payload is unpacked for them (cl. 5.3.2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from lxml import etree

from gridpost.core.amqp091 import Channel, Incoming, Properties
from gridpost.core.bus import BusUnit
from gridpost.core.envelope import (
    NAMESPACE,
    FaultMessage,
    Payload,
    RequestMessage,
    ResponseMessage,
    Verb,
    correlation_of,
    specific,
)
from gridpost.core.envelope_exchange import complete, error_of, failed, response_to
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.settings import ANY
from gridpost.wire.envelope import decode, encode, encode_unchecked
from gridpost.wire.envelope.transform import Treatment

if TYPE_CHECKING:
    from gridpost.services.bus.service import BusService

MADES = "mades:"
_NAMES = {"m": NAMESPACE}


@dataclass(frozen=True, slots=True)
class Target:
    address: str
    """`queue:NAME`, a URL of a generic web service, or `mades:CODE` of another party."""
    instance: str = ""
    """The code of the bus that serves it, if its state is to count."""


class HeaderRule:
    """An XPath over the header, `m:Source = 'EMS'`; it must be true."""

    def __init__(self, text: str) -> None:
        try:
            self._path = etree.XPath(f"boolean({text})", namespaces=_NAMES)
        except etree.XPathSyntaxError as error:
            raise Refusal(Rule.USAGE, f"'{text}' is no XPath: {error}") from None

    def holds(self, message: RequestMessage) -> bool:
        bare = encode_unchecked(RequestMessage(message.header))
        header = etree.fromstring(bare).find(f"{{{NAMESPACE}}}Header")
        return bool(header is not None and self._path(header))


@dataclass(frozen=True, slots=True)
class RouteRule:
    verb: str
    noun: str
    targets: tuple[Target, ...]
    when: HeaderRule | None = None
    treatment: Treatment = field(default_factory=Treatment)

    def meets(self, message: RequestMessage) -> bool:
        header = message.header
        return (
            self.verb in (ANY, header.verb)
            and self.noun in (ANY, header.noun)
            and (self.when is None or self.when.holds(message))
        )


class Caller(Protocol):
    async def call(self, url: str, envelope: bytes) -> bytes | None: ...


class Bridge(Protocol):
    """To other parties, through the endpoint."""

    async def send(self, code: str, envelope: bytes, correlation: str) -> None: ...


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
        self._rules = tuple(rules)
        self._caller = caller
        self._bridge = bridge
        self._proxy = proxy
        self._reply_queue = ""
        self._waiting: dict[str, asyncio.Queue[bytes]] = {}

    def keys(self) -> set[tuple[Verb, str]]:
        """What the router takes from queues: rules that name their verb and noun."""
        return {(Verb(r.verb), r.noun) for r in self._rules if ANY not in (r.verb, r.noun)}

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

    async def _target(self, rule: RouteRule) -> Target:
        """The first that lives; of several that live, the one with the least to do."""
        if not any(target.instance for target in rule.targets):
            return rule.targets[0]
        load: dict[str, int] = {}
        for instance in await self._service.instances():
            code = instance.name.partition("@")[0]
            load[code] = min(load.get(code, instance.load), instance.load)
        living = [t for t in rule.targets if not t.instance or t.instance in load]
        if not living:
            raise Refusal(Rule.NOT_HANDLED, "no instance that serves this is alive")
        return min(living, key=lambda target: load.get(target.instance, 0))

    # -- from the web

    async def web(self, message: RequestMessage, body: bytes, context: str) -> bytes | None:
        """The response of whoever serves it elsewhere; None: it is served here."""
        rule = self.rule(message)
        service, header = self._service, message.header
        here = (header.verb, header.noun) in service.handlers.requests
        if rule is None and (here or not self._proxy or header.noun == "OperationSet"):
            return None
        try:
            service.settings.guard.check(header, destination=context, now=service.clock.now())
            if rule is None:
                name = service.settings.names.destination(context, header.verb, header.noun)
                target = Target(f"queue:{name}")
            else:
                target, body = await self._target(rule), rule.treatment(body)
            if header.one_way or header.async_reply:
                await self._pass_on(target, message, body, header.reply_address or "", "")
                return encode(service.processor.answering.in_progress(message))
            return await self.ask(target, message, body)
        except Refusal as refusal:
            if refusal.rule is Rule.AMQP091_UNROUTED:
                refusal = Refusal(
                    Rule.NOT_HANDLED, f"nobody serves '{header.verb} {header.noun}' here"
                )
            reply = failed(error_of(refusal))
            return encode(response_to(header, reply, service.processor.answering.stamp()))

    async def ask(self, target: Target, message: RequestMessage, body: bytes) -> bytes:
        """One request, and everything that is replied to it as one response."""
        if target.address.startswith("http"):
            return await self._call(target, message, body)
        within = self._service.settings.sla(message.header.verb, message.header.noun).within
        key = str(uuid4())
        found = self._waiting[key] = asyncio.Queue[bytes]()
        answers: list[bytes] = []
        try:
            await self._pass_on(target, message, body, f"queue:{self._reply_queue}", key)
            async with asyncio.timeout(within.total_seconds()):
                while True:
                    answers.append(await found.get())
                    last = specific(decode(answers[-1]))
                    if not isinstance(last, ResponseMessage) or not last.reply.more_follow:
                        return _as_one(answers)
        except TimeoutError:
            raise Refusal(Rule.NO_REPLY, f"no reply within {within.total_seconds():g} s") from None
        finally:
            self._waiting.pop(key, None)

    async def _call(self, target: Target, message: RequestMessage, body: bytes) -> bytes:
        if self._caller is None:
            raise Refusal(Rule.NOT_HANDLED, "this bus calls no web services")
        found = await self._caller.call(target.address, body)
        return found or encode(self._service.processor.answering.in_progress(message))

    async def _pass_on(
        self, target: Target, message: RequestMessage, body: bytes, reply_to: str, key: str
    ) -> None:
        """With the address to which whoever serves it replies by itself."""
        service, header = self._service, message.header
        if target.address.startswith("http"):
            await self._call(target, message, body)
            return
        if target.address.startswith(MADES):
            await self._to_party(target, message, body, reply_to, key)
            return
        properties = Properties(
            content_type="application/xml",
            content_encoding="UTF-8",
            message_id=header.message_id,
            correlation_id=key or header.correlation_id,
            reply_to=reply_to.removeprefix("queue:") if reply_to.startswith("queue:") else None,
            expiration=service.settings.sla(header.verb, header.noun).within,
        )
        name = target.address.removeprefix("queue:")
        await service.post.put(body, properties, name)

    async def _to_party(
        self, target: Target, message: RequestMessage, body: bytes, reply_to: str, key: str
    ) -> None:
        if self._bridge is None:
            raise Refusal(Rule.NOT_HANDLED, "this bus has no endpoint")
        correlation = correlation_of(message.header)
        if not correlation:
            raise Refusal(
                Rule.ENVELOPE_FORM, "to another party: MessageID or CorrelationID is needed"
            )
        now = self._service.clock.now()
        if reply_to:

            def work(unit: BusUnit) -> None:
                unit.expect(correlation, reply_to, key or correlation, now)

            await self._service.ledger.run(work)
        await self._bridge.send(target.address.removeprefix(MADES), body, correlation)

    # -- from a queue

    async def queue(
        self, message: RequestMessage, incoming: Incoming, context: str, name: str
    ) -> bytes | bool | None:
        """False: served here. None: it went on, and is answered by others. Bytes: the response."""
        rule = self.rule(message)
        if rule is None:
            return False
        service, header = self._service, message.header
        try:
            service.settings.guard.check(header, destination=context, now=service.clock.now())
            target, body = await self._target(rule), rule.treatment(incoming.body)
            if target.address == f"queue:{name}":
                return False
            if target.address.startswith("http"):
                return await self._call(target, message, body)
            found = incoming.properties
            reply_to = f"queue:{found.reply_to}" if found.reply_to else header.reply_address or ""
            key = found.correlation_id or found.message_id or ""
            await self._pass_on(target, message, body, reply_to, key)
            return None
        except Refusal as refusal:
            if refusal.retryable and refusal.rule is not Rule.UNREACHABLE:
                raise
            reply = failed(error_of(refusal))
            return encode(response_to(header, reply, service.processor.answering.stamp()))


def _as_one(answers: list[bytes]) -> bytes:
    """A series, for a client that has room for one answer; a single one stays as it came."""
    if len(answers) == 1:
        return answers[0]
    found = [specific(decode(answer)) for answer in answers]
    last = found[-1]
    if isinstance(last, FaultMessage) or not isinstance(last, ResponseMessage):
        return answers[-1]
    parts = [one for one in found if isinstance(one, ResponseMessage)]
    errors = [error for one in parts for error in one.reply.real_errors]
    content = tuple(c for one in parts if one.payload is not None for c in one.payload.content)
    reply = complete([i for one in parts for i in one.reply.ids], errors)
    payload = Payload(content=content) if content else None
    return encode(replace(last, reply=reply, payload=payload))
