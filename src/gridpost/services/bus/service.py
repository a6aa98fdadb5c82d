"""The bus on RabbitMQ: queues for requests, topics for events, dead letters, and the outbox.

Of each message: it is treated and committed, what came of it is published and confirmed, and only
then is it acknowledged. Whatever stops in between happens again, with the same outcome.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any

import structlog

from gridpost.core.amqp091 import Channel, Incoming, Properties, RabbitConnection
from gridpost.core.bus import BusLedger, Outgoing, Posted
from gridpost.core.envelope import EVENT_VERBS, OPERATION_SET_NOUN, Verb
from gridpost.core.envelope_exchange import AddressKind, ReplyAddress
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.handlers import Handler, Handlers, Listener
from gridpost.services.bus.metrics import BusMetrics
from gridpost.services.bus.processing import AnyPost, Arrival, Processor, Treated
from gridpost.services.bus.settings import BusSettings

log = structlog.get_logger(__name__)

CONTENT_TYPE = "application/xml"
_BATCH = 500
_RETRY_SECONDS = 1.0
WebCall = Callable[[str, bytes], Awaitable[None]]
"""Hands an envelope to a web service; a Refusal that may be tried again is tried again."""


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
        self._web = web
        self._step = step
        self._publishing: Channel | None = None
        self._consuming: Channel | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sent: asyncio.Queue[int] = asyncio.Queue()
        self._wake = asyncio.Event()
        self._under_way: set[int] = set()

    def handles(self, verb: str, noun: str) -> Callable[[Handler], Handler]:
        """`@service.handles("get", "MeterReadings")` before a function of request and transaction."""
        return self.handlers.handles(verb, noun)

    def listens(self, verb: str, noun: str) -> Callable[[Listener], Listener]:
        return self.handlers.listens(verb, noun)

    # -- the connection

    async def connected(self, connection: RabbitConnection) -> None:
        self._publishing = await connection.channel()
        consuming = self._consuming = await connection.channel(confirms=False)
        for context in sorted(self.settings.contexts):
            await self._declare(consuming, context)
        self._wake.set()

    def lost(self, refusal: Refusal) -> None:
        self._publishing = self._consuming = None
        log.warning("the bus has no broker", reason=refusal.message)

    async def pause(self) -> None:
        """Take nothing more; what is under way is finished."""
        if self._consuming is not None:
            await self._consuming.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=30)

    async def _declare(self, channel: Channel, context: str) -> None:
        names = self.settings.names
        exchange, dead = names.exchange(context), names.dead_letters(context)
        await channel.declare_exchange(exchange, "topic")
        await channel.declare_exchange(dead, "fanout")
        await channel.declare_queue(dead, arguments={"x-queue-type": self.settings.queue_type})
        await channel.bind(dead, dead)
        keys = set(self.handlers.requests) | set(self.handlers.events)
        if any(verb in (Verb.CREATE, Verb.CHANGE, Verb.DELETE) for verb, _ in keys):
            keys.add((Verb.EXECUTE, OPERATION_SET_NOUN))
        for verb, noun in sorted(keys):
            name = names.destination(context, verb, noun)
            event = verb in EVENT_VERBS
            queue = f"{name}@{self.settings.name}" if event else name
            await channel.declare_queue(queue, arguments=self._arguments(dead, verb, noun))
            await channel.bind(queue, exchange, name)
            await channel.consume(
                queue, self._taker(channel, context, name, event), prefetch=self.settings.prefetch
            )

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
        self, channel: Channel, context: str, name: str, event: bool
    ) -> Callable[[Incoming], None]:
        def take(incoming: Incoming) -> None:
            task = asyncio.create_task(self._treat(channel, incoming, context, name, event))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return take

    async def _treat(
        self, channel: Channel, incoming: Incoming, context: str, name: str, event: bool
    ) -> None:
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
            self._step("taken")
            if event:
                treated = await self.processor.event(incoming.body, arrival)
            else:
                acknowledgement = self.processor.acknowledgement(incoming.body, arrival)
                if acknowledgement is not None and not incoming.redelivered:
                    await self._publish([acknowledgement])
                treated = await self.processor.request(incoming.body, arrival)
            self._step("committed")
            await self._publish(treated.posts)
            self._step("published")
            await self._settle(channel, incoming.tag, treated)
            self._step("settled")
        except Refusal as refusal:
            # Ours to do again: the broker keeps it.
            log.warning("an envelope is taken again", reason=refusal.message, destination=name)
            if not channel.closed:
                await channel.nack(incoming.tag, requeue=True)
            return
        self.metrics.treated(event, treated.dead is not None, time.perf_counter() - started)

    async def _settle(self, channel: Channel, tag: int, treated: Treated) -> None:
        if treated.dead is not None:
            await channel.nack(tag, requeue=False)
        else:
            await channel.ack(tag)

    # -- sending

    async def _publish(self, posts: Iterable[AnyPost]) -> None:
        found = [post for post in posts if _outgoing(post).address]
        self._under_way |= {post.sequence for post in found if isinstance(post, Posted)}
        if len(found) == 1:
            await self._send(found[0])
        else:
            # Confirmed together; published in their order.
            await asyncio.gather(*(self._send(post) for post in found))

    async def _send(self, post: AnyPost) -> None:
        try:
            await self._deliver(_outgoing(post))
        finally:
            if isinstance(post, Posted):
                self._under_way.discard(post.sequence)
        if isinstance(post, Posted):
            self._sent.put_nowait(post.sequence)

    async def _deliver(self, outgoing: Outgoing) -> None:
        address = ReplyAddress.parse(outgoing.address)
        if address.kind is AddressKind.WEB:
            if self._web is None:
                await self._undeliverable(outgoing, "no web services are called by this bus")
                return
            await self._web(address.name, outgoing.body)
            return
        channel = self._publishing
        if channel is None:
            raise Refusal(Rule.AMQP091_UNREACHABLE, "the bus has no broker")
        properties = Properties(
            content_type=CONTENT_TYPE,
            content_encoding="UTF-8",
            message_id=outgoing.message_id or None,
            correlation_id=outgoing.correlation_id or None,
            timestamp=self.clock.now(),
        )
        try:
            if address.kind is AddressKind.TOPIC:
                exchange = self._exchange_of(address.name)
                await channel.publish(
                    outgoing.body,
                    properties,
                    exchange=exchange,
                    routing_key=address.name,
                    mandatory=False,
                )
            else:
                await channel.publish(outgoing.body, properties, routing_key=address.name)
        except Refusal as refusal:
            if refusal.rule is not Rule.AMQP091_UNROUTED:
                raise
            await self._undeliverable(outgoing, refusal.message)

    def _exchange_of(self, topic: str) -> str:
        for context in self.settings.contexts:
            if topic == context or topic.startswith(f"{context}."):
                return self.settings.names.exchange(context)
        raise Refusal(Rule.ENVELOPE_CONTEXT, f"the topic '{topic}' is in no context of this bus")

    async def _undeliverable(self, outgoing: Outgoing, reason: str) -> None:
        """A reply to nobody: kept with the dead letters, never lost and never tried for ever."""
        log.warning("nobody takes a reply", address=outgoing.address, reason=reason)
        channel = self._publishing
        if channel is None:
            raise Refusal(Rule.AMQP091_UNREACHABLE, "the bus has no broker")
        dead = self.settings.names.dead_letters(sorted(self.settings.contexts)[0])
        properties = Properties(
            headers={"x-undeliverable-to": outgoing.address},
            content_type=CONTENT_TYPE,
            message_id=outgoing.message_id or None,
            correlation_id=outgoing.correlation_id or None,
        )
        await channel.publish(outgoing.body, properties, exchange=dead, mandatory=False)

    # -- what goes on beside messages

    async def run(self) -> None:
        """Until cancelled: the outbox, what was sent, who is alive, and what may be forgotten."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._note_sent())
            group.create_task(self._empty_outbox())
            group.create_task(self._upkeep())

    async def _note_sent(self) -> None:
        while True:
            sequences = [await self._sent.get()]
            while not self._sent.empty() and len(sequences) < _BATCH:
                sequences.append(self._sent.get_nowait())
            try:
                await self.ledger.sent(sequences)
            except Refusal as refusal:
                # They are still unsent in the store, and go out once more.
                log.warning("the outbox could not be noted", reason=refusal.message)

    async def _empty_outbox(self) -> None:
        """What another process, or this one before it was stopped, has not sent."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                waiting = [
                    post
                    for post in await self.ledger.unsent(_BATCH)
                    if post.sequence not in self._under_way
                ]
                for post in waiting:
                    await self._publish([post])
            except Refusal as refusal:
                log.warning("the outbox waits", reason=refusal.message)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _upkeep(self) -> None:
        while True:
            now = self.clock.now()
            try:
                await self.ledger.alive(self.instance, now)
                await self.ledger.forget(now - self.settings.remember)
            except Refusal as refusal:
                log.warning("upkeep failed", reason=refusal.message)
            if self._publishing is not None:
                self._wake.set()
            await asyncio.sleep(self.settings.heartbeat.total_seconds())

    async def health(self) -> dict[str, Any]:
        since = self.clock.now() - 3 * self.settings.heartbeat
        instances = await self.ledger.instances(since)
        return {
            "ready": self._publishing is not None,
            "instances": [name for name, _ in instances],
        }

    def measure(self) -> None:
        self.metrics.under_way.set(len(self._tasks))

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


def _outgoing(post: AnyPost) -> Outgoing:
    return post.outgoing if isinstance(post, Posted) else post
