"""A client of a bus over RabbitMQ: requests, replies and events, without knowing the bus behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from gridpost.core.amqp091 import Channel, Incoming, Properties, RabbitConnection, short
from gridpost.core.envelope import (
    EventMessage,
    FaultMessage,
    RequestMessage,
    ResponseMessage,
    correlation_of,
    specific,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.envelope import decode, encode

log = logging.getLogger(__name__)

Answered = ResponseMessage | FaultMessage
_PREFETCH = 64
"""Events that a durable subscription has at hand at a time."""


class Naming(Protocol):
    def exchange(self, context: str) -> str: ...

    def destination(self, context: str, verb: str, noun: str) -> str: ...


class DefaultNames:
    """61968-100 cl. 8.4.2."""

    def exchange(self, context: str) -> str:
        return context

    def destination(self, context: str, verb: str, noun: str) -> str:
        part = "EVENTS" if verb.endswith("ed") else "REQUESTS"
        return f"{context}.{part}.{noun}.{verb}"


class BusClient:
    """Open it on a connection; replies come to a queue of its own that ends with it."""

    def __init__(
        self,
        connection: RabbitConnection,
        context: str,
        *,
        names: Naming | None = None,
        within: timedelta = timedelta(seconds=30),
    ) -> None:
        self._connection = connection
        self._context = context
        self._names = names or DefaultNames()
        self._within = within
        self._channel: Channel | None = None
        self.reply_queue = ""
        self._waiting: dict[str, asyncio.Queue[Answered]] = {}
        self.unexpected = 0
        """Replies to nobody, and what a subscription could not use."""
        self._settling: set[asyncio.Future[None]] = set()

    async def open(self) -> BusClient:
        channel = self._channel = await self._connection.channel()
        self.reply_queue, _ = await channel.declare_queue(
            durable=False, exclusive=True, auto_delete=True
        )
        await channel.consume(self.reply_queue, self._reply, no_ack=True)
        return self

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    async def send(self, message: RequestMessage | EventMessage, *, reply: bool = False) -> None:
        """Returns when the broker has it; a refused or missing destination is an error."""
        channel = self._open()
        header = message.header
        name = self._names.destination(self._context, header.verb, header.noun)
        request = isinstance(message, RequestMessage)
        properties = Properties(
            content_type="application/xml",
            content_encoding="UTF-8",
            message_id=short(header.message_id),
            correlation_id=short(header.correlation_id),
            reply_to=self.reply_queue if reply else None,
            expiration=self._within if request else None,
        )
        await channel.publish(
            encode(message),
            properties,
            exchange=self._names.exchange(self._context),
            routing_key=name,
            mandatory=request,
        )

    async def call(self, request: RequestMessage) -> Answered:
        """One request and its reply; the first of several, if there are several."""
        async for answer in self.replies(request):
            return answer
        raise Refusal(Rule.NO_REPLY, "the exchange ended without a reply")

    async def replies(self, request: RequestMessage) -> AsyncIterator[Answered]:
        """All replies, until the last one is known to be the last (61968-100 cl. 6.3.4)."""
        key = correlation_of(request.header)
        if not key:
            raise Refusal(
                Rule.NO_REPLY, "without MessageID and CorrelationID no reply can be matched"
            )
        found = self._waiting[key] = asyncio.Queue()
        try:
            if request.header.async_reply and request.header.reply_address is None:
                address = f"queue:{self.reply_queue}"
                request = replace(request, header=replace(request.header, reply_address=address))
            await self.send(request, reply=True)
            while True:
                try:
                    async with asyncio.timeout(self._within.total_seconds()):
                        answer = await found.get()
                except TimeoutError:
                    raise Refusal(
                        Rule.NO_REPLY, f"no reply within {self._within.total_seconds():g} s"
                    ) from None
                yield answer
                if isinstance(answer, FaultMessage) or not answer.reply.more_follow:
                    return
        finally:
            self._waiting.pop(key, None)

    async def subscribe(
        self,
        take: Callable[[EventMessage], None],
        *,
        verb: str = "*",
        noun: str = "*",
        durable: str = "",
    ) -> None:
        """Events by verb and noun, `*` is any; with a name the subscription outlives this client.

        Of a durable one each event stays in its queue until `take` has returned: an event comes
        again after a crash, and once more when `take` raises. What fails twice, or is no event,
        is let go and counted in `unexpected`.
        """
        channel = self._open()
        if durable:
            queue, _ = await channel.declare_queue(durable)
        else:
            queue, _ = await channel.declare_queue(durable=False, exclusive=True, auto_delete=True)
        name = self._names.destination(self._context, "created", noun)
        pattern = name.removesuffix("created") + verb
        await channel.bind(queue, self._names.exchange(self._context), pattern)

        def settle(work: Coroutine[Any, Any, None]) -> None:
            task = asyncio.ensure_future(work)
            self._settling.add(task)
            task.add_done_callback(self._settled)

        def taken(incoming: Incoming) -> None:
            message = self._event(incoming)
            if message is None:
                self.unexpected += 1
            else:
                try:
                    take(message)
                except Exception:
                    log.exception("an event could not be taken: %s", message.header.message_id)
                    again = bool(durable) and not incoming.redelivered
                    self.unexpected += not again
                    if durable:
                        settle(channel.nack(incoming.tag, requeue=again))
                    return
            if durable:
                settle(channel.ack(incoming.tag))

        await channel.consume(queue, taken, prefetch=_PREFETCH, no_ack=not durable)

    def _event(self, incoming: Incoming) -> EventMessage | None:
        with suppress(Refusal):
            message = specific(decode(incoming.body))
            if isinstance(message, EventMessage):
                return message
        return None

    def _settled(self, task: asyncio.Future[None]) -> None:
        """Without a connection nothing can be settled; the broker gives it out again."""
        self._settling.discard(task)
        if not task.cancelled():
            task.exception()

    def _reply(self, incoming: Incoming) -> None:
        try:
            message = specific(decode(incoming.body))
        except Refusal:
            self.unexpected += 1
            return
        key = incoming.properties.correlation_id or ""
        if isinstance(message, ResponseMessage):
            key = message.header.correlation_id or key
        waiting = self._waiting.get(key)
        if waiting is None or not isinstance(message, ResponseMessage | FaultMessage):
            # Late, or nobody's: it does no harm.
            self.unexpected += 1
            return
        waiting.put_nowait(message)

    def _open(self) -> Channel:
        if self._channel is None:
            raise Refusal(Rule.USAGE, "the client is not open")
        return self._channel
