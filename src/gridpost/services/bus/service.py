"""The bus on RabbitMQ: queues for requests, topics for events, dead letters, and the outbox.

Of each message: it is treated and committed, what came of it is published and confirmed, and only
then is it acknowledged. Whatever stops in between happens again, with the same outcome.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import structlog
from lxml import etree

from gridpost.core.amqp091 import Channel, Incoming, RabbitConnection
from gridpost.core.bus import BusLedger, Instance, Outgoing
from gridpost.core.envelope import (
    EVENT_VERBS,
    OPERATION_SET_NOUN,
    EventMessage,
    FaultMessage,
    RequestMessage,
    Verb,
)
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.answering import Arrival
from gridpost.services.bus.forwarding import Forwarder
from gridpost.services.bus.handlers import Handler, Handlers, Listener
from gridpost.services.bus.journalling import Known
from gridpost.services.bus.metrics import BusMetrics
from gridpost.services.bus.posting import CLAIM, Post, WebCall
from gridpost.services.bus.processing import Processor, Treated, message_id_of
from gridpost.services.bus.settings import BusSettings
from gridpost.services.bus.subscribers import Subscriber
from gridpost.services.settling import Settling
from gridpost.wire.envelope import Fragment, amqp10, content, parts

log = structlog.get_logger(__name__)


class BusService:
    """Register handlers, then `connected` with every connection that there is."""

    def __init__(
        self,
        settings: BusSettings,
        ledger: BusLedger,
        clock: Clock,
        metrics: BusMetrics,
        *,
        web: WebCall | None = None,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`step` is told between any two steps of a message: tests stop the process there."""
        self.settings = settings
        self.handlers = Handlers()
        self.ledger = ledger
        self.clock = clock
        self.metrics = metrics
        self.processor = Processor(settings, self.handlers, ledger, clock)
        self.instance = f"{settings.name}@{socket.gethostname()}:{os.getpid()}"
        self.forwarder: Forwarder | None = None
        self.subscribers: tuple[Subscriber, ...] = ()
        self.waiting_for: Callable[[], str] = lambda: "RabbitMQ"
        """What is missing while there is no broker, in words."""
        self.post = Post(settings, ledger, clock, web)
        self.step = step
        self._consuming: Channel | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._others: frozenset[str] = frozenset()

    def handles(self, verb: str, noun: str) -> Callable[[Handler], Handler]:
        """`@service.handles("get", "MeterReadings")` before a function of request and transaction."""
        return self.handlers.handles(verb, noun)

    def listens(self, verb: str, noun: str) -> Callable[[Listener], Listener]:
        return self.handlers.listens(verb, noun)

    # -- payloads, for handlers

    def content(self, message: RequestMessage | EventMessage) -> Sequence[Fragment]:
        """The XML of a payload, up to `limits.message_bytes` of it."""
        payload = message.payload
        return () if payload is None else content(payload, limits=self.settings.reading.limits)

    def parts(self, message: RequestMessage | EventMessage) -> Iterator[etree._Element]:
        """The children of a payload one after the other, up to `limits.payload_bytes` of them."""
        if message.payload is not None:
            yield from parts(
                message.payload,
                noun=message.header.noun,
                limit=self.settings.max_unpacked,
                limits=self.settings.reading.limits,
            )

    # -- the connection

    async def connected(self, connection: RabbitConnection) -> None:
        try:
            await self._prepare(connection)
        except BaseException:
            # A broker that is not ready yet: what was begun on this connection goes with it.
            self.post.channel = self._consuming = None
            raise
        self.post.wake()

    async def _prepare(self, connection: RabbitConnection) -> None:
        self.post.channel = await connection.channel()
        consuming = self._consuming = await connection.channel(confirms=False)
        if self.forwarder is not None:
            await self.forwarder.connected(consuming)
        settling = Settling(consuming)
        for context in sorted(self.settings.contexts):
            await self._declare(consuming, settling, context)
            for subscriber in self.subscribers:
                await self._subscribe(consuming, settling, context, subscriber)

    def lost(self, refusal: Refusal) -> None:
        self.post.channel = self._consuming = None
        log.warning("the bus has no broker", reason=refusal.message)

    async def pause(self) -> None:
        """Take nothing more; what is under way is finished."""
        if self._consuming is not None:
            await self._consuming.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=30)
        self.post.stop()

    async def _declare(self, channel: Channel, settling: Settling, context: str) -> None:
        names = self.settings.names
        exchange, dead = names.exchange(context), names.dead_letters(context)
        await channel.declare_exchange(exchange, "topic")
        await channel.declare_exchange(dead, "fanout")
        await channel.declare_queue(dead, arguments={"x-queue-type": self.settings.queue_type})
        await channel.bind(dead, dead)
        keys = set(self.handlers.requests) | set(self.handlers.events)
        if self.forwarder is not None:
            keys |= self.forwarder.keys()
        if any(verb in (Verb.CREATE, Verb.CHANGE, Verb.DELETE) for verb, _ in keys):
            keys.add((Verb.EXECUTE, OPERATION_SET_NOUN))
        for verb, noun in sorted(keys):
            name = names.destination(context, verb, noun)
            event = verb in EVENT_VERBS
            queue = f"{name}@{self.settings.name}" if event else name
            await channel.declare_queue(queue, arguments=self._arguments(dead, verb, noun))
            await channel.bind(queue, exchange, name)
            await channel.consume(
                queue, self._taker(settling, context, name, event), prefetch=self.settings.prefetch
            )

    async def _subscribe(
        self, channel: Channel, settling: Settling, context: str, subscriber: Subscriber
    ) -> None:
        """One queue for each: nobody waits for another, and one at a time keeps their order."""
        names = self.settings.names
        queue = f"{context}.SUBSCRIBER.{subscriber.name}"
        arguments = {
            "x-queue-type": self.settings.queue_type,
            "x-dead-letter-exchange": names.dead_letters(context),
        }
        await channel.declare_queue(queue, arguments=arguments)
        pattern = names.pattern(context, subscriber.verb, subscriber.noun)
        await channel.bind(queue, names.exchange(context), pattern)

        def take(incoming: Incoming) -> None:
            handing_on = self._hand_on(settling, incoming, context, subscriber)
            self._begin(handing_on, settling, incoming, queue)

        await channel.consume(queue, take, prefetch=1)

    async def _hand_on(
        self, settling: Settling, incoming: Incoming, context: str, to: Subscriber
    ) -> None:
        body = _from_amqp10(incoming).body
        self.step("event taken")
        refusal = await to.take(body)
        self.step("event delivered")
        try:
            await self._note_delivery(body, context, to, refusal)
        except Refusal as unwritten:
            # What is not in the journal was not delivered: once more.
            log.warning("an event is delivered again", subscriber=to.name, reason=unwritten.message)
            if not settling.closed:
                await settling.nack(incoming.tag, requeue=True)
            return
        self.step("event noted")
        if not settling.closed:
            if refusal is None:
                await settling.ack(incoming.tag)
            else:
                await settling.nack(incoming.tag, requeue=False)

    async def _note_delivery(
        self, body: bytes, context: str, to: Subscriber, refusal: Refusal | None
    ) -> None:
        journal = self.processor.journal
        message = self._known(body)
        place = f"subscriber:{to.name}"
        row = journal.goes(message, body, context, place, refusal=refusal)
        if refusal is None:
            await journal.note(row)
        else:
            await journal.refused(refusal, place, message_id_of(message), row)

    def _known(self, body: bytes) -> Known | None:
        try:
            return self.processor.read(body)
        except Refusal:
            return None

    async def heard(self, url: str, answer: bytes) -> None:
        """What a web service said to this bus."""
        journal, message = self.processor.journal, self._known(answer)
        header = None if message is None or isinstance(message, FaultMessage) else message.header
        context = (header.context if header is not None else None) or ""
        await journal.note(journal.came(message, answer, context, url))

    def _arguments(self, dead: str, verb: str, noun: str) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "x-queue-type": self.settings.queue_type,
            "x-dead-letter-exchange": dead,
        }
        if self.settings.queue_type == "quorum":
            arguments["x-delivery-limit"] = self.settings.delivery_limit
        if verb not in EVENT_VERBS:
            # 61968-100 cl. 6.14: nobody waits any longer for it, so it is not executed any more.
            within = self.settings.sla(verb, noun).within
            arguments["x-message-ttl"] = within // timedelta(milliseconds=1)
        return arguments

    # -- one message

    def _taker(
        self, settling: Settling, context: str, name: str, event: bool
    ) -> Callable[[Incoming], None]:
        def take(incoming: Incoming) -> None:
            treating = self._treat(settling, incoming, context, name, event)
            self._begin(treating, settling, incoming, name)

        return take

    def _begin(
        self, work: Coroutine[Any, Any, None], settling: Settling, incoming: Incoming, place: str
    ) -> None:
        settling.took(incoming.tag)
        task = asyncio.create_task(self._safely(work, settling, incoming, place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _safely(
        self, work: Coroutine[Any, Any, None], settling: Settling, incoming: Incoming, place: str
    ) -> None:
        """Our own mistake must not keep a message from everybody: once more, then a dead letter."""
        try:
            await work
        except Exception:
            log.exception("an envelope could not be treated", destination=place)
            with suppress(Refusal):
                if not settling.closed:
                    await settling.nack(incoming.tag, requeue=not incoming.redelivered)

    async def _treat(
        self, settling: Settling, incoming: Incoming, context: str, name: str, event: bool
    ) -> None:
        incoming = _from_amqp10(incoming)
        found = incoming.properties
        deadline = None
        if found.expiration is not None and not event:
            deadline = time.monotonic() + found.expiration.total_seconds()
        arrival = Arrival(
            context,
            name,
            f"queue:{found.reply_to}" if found.reply_to else "",
            found.correlation_id or found.message_id or "",
            deadline,
        )
        started = time.perf_counter()
        try:
            self.step("taken")
            if CLAIM in (found.headers or {}):
                incoming = await self._redeemed(incoming)
            if not event and await self._forwarded(settling, incoming, context, name):
                return
            if event:
                treated = await self.processor.event(incoming.body, arrival)
            else:
                if not incoming.redelivered:
                    await self._acknowledge(incoming.body, arrival)
                treated = await self.processor.request(incoming.body, arrival)
            self.step("committed")
            await self.post.publish(treated.posts)
            self.step("published")
            await self._settle(settling, incoming.tag, treated)
            self.step("settled")
        except Refusal as refusal:
            # Ours to do again: the broker keeps it.
            log.warning("an envelope is taken again", reason=refusal.message, destination=name)
            if not settling.closed:
                await settling.nack(incoming.tag, requeue=True)
            return
        self.metrics.treated(event, treated.dead is not None, time.perf_counter() - started)

    async def _acknowledge(self, body: bytes, arrival: Arrival) -> None:
        acknowledgement = await self.processor.acknowledgement(body, arrival)
        if acknowledgement is not None:
            await self.post.publish([acknowledgement])

    async def _redeemed(self, incoming: Incoming) -> Incoming:
        if self.post.claims is None:
            raise Refusal(Rule.INCONSISTENT_CONFIGURATION, "a claim came, and there are no claims")
        claim = str((incoming.properties.headers or {})[CLAIM])
        return replace(incoming, body=await self.post.claims.redeem(claim))

    async def _forwarded(
        self, settling: Settling, incoming: Incoming, context: str, name: str
    ) -> bool:
        if self.forwarder is None or not self.forwarder.routes:
            return False
        try:
            message = self.processor.read(incoming.body)
        except Refusal:
            return False
        if not isinstance(message, RequestMessage):
            return False
        passed = await self.forwarder.queue(message, incoming, context, name)
        if passed is None:
            return False
        found = incoming.properties
        if passed.answer is not None:
            correlation = found.correlation_id or found.message_id or ""
            post = Outgoing(f"queue:{found.reply_to}", passed.answer, "", correlation)
            await self.post.publish([post])
        self.step("route answered")
        if passed.dead:
            await settling.nack(incoming.tag, requeue=False)
        else:
            await settling.ack(incoming.tag)
        return True

    async def _settle(self, settling: Settling, tag: int, treated: Treated) -> None:
        if treated.dead is not None:
            await settling.nack(tag, requeue=False)
        else:
            await settling.ack(tag)

    # -- what goes on beside messages

    async def run(self) -> None:
        """Until cancelled: the outbox, what was sent, who is alive, and what may be forgotten."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.post.note_sent())
            group.create_task(self.post.empty_outbox())
            group.create_task(self._upkeep())

    async def _upkeep(self) -> None:
        while True:
            now = self.clock.now()
            try:
                await self.ledger.alive(self.instance, now, len(self._tasks))
                await self.ledger.forget(now - self.settings.remember)
                living = frozenset(i.name for i in await self.instances())
                if self._others - living:
                    self.post.wake(take_over=True)
                self._others = living
            except Refusal as refusal:
                log.warning("upkeep failed", reason=refusal.message)
            if self.post.channel is not None:
                self.post.wake()
            await asyncio.sleep(self.settings.heartbeat.total_seconds())

    async def instances(self) -> Sequence[Instance]:
        """61968-100 cl. 6.15: the processes of every bus on this store that are alive."""
        return await self.ledger.instances(self.clock.now() - 3 * self.settings.heartbeat)

    async def health(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "ready": self.post.channel is not None,
            "instances": [instance.name for instance in await self.instances()],
        }
        if self.post.channel is None:
            found["waiting_for"] = self.waiting_for()
        return found

    async def living(self) -> list[dict[str, Any]]:
        return [
            {"name": one.name, "seen": one.seen.isoformat(), "load": one.load}
            for one in await self.instances()
        ]

    @property
    def under_way(self) -> int:
        """Envelopes that this process treats now."""
        return len(self._tasks)

    def measure(self) -> None:
        self.metrics.under_way.set(self.under_way)

    def interface(self) -> list[dict[str, str]]:
        """61968-100 cl. 8.2: what this service takes, for people."""
        return [
            {
                "verb": verb,
                "noun": noun,
                "destination": self.settings.names.destination(c, verb, noun),
            }
            for c in sorted(self.settings.contexts)
            for verb, noun in sorted({*self.handlers.requests, *self.handlers.events})
        ]


def _from_amqp10(incoming: Incoming) -> Incoming:
    """What a client of AMQP 1.0 sent, as if it had come by AMQP 0-9-1."""
    found = incoming.properties
    body = incoming.body
    if found.type == amqp10.TYPE:
        # What cannot be read is answered like anything else that is no envelope.
        with suppress(Refusal):
            body = amqp10.body_of(body)
    reply_to = amqp10.queue_of(found.reply_to) if found.reply_to else None
    if body is incoming.body and reply_to == found.reply_to:
        return incoming
    return replace(incoming, body=body, properties=replace(found, reply_to=reply_to))
