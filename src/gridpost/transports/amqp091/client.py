"""Connections to RabbitMQ: TLS, EXTERNAL or a password, confirms, and trying again when one is lost.

aio-pika speaks the protocol; here its errors become refusals and its callbacks the ports of
`core.amqp091`. Nothing is repeated behind the caller's back: after a loss it gets a new connection
and decides itself what of its work has to be done again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit
from uuid import uuid4

import aio_pika
from aio_pika.connection import make_url
from aiormq import exceptions, spec

from gridpost.core.amqp091 import (
    Incoming,
    Properties,
    QueueCounts,
    RabbitClient,
    RabbitConnection,
)
from gridpost.core.refusal import Refusal, Rule

log = logging.getLogger("gridpost.rabbitmq")

_RULES: Final[tuple[tuple[type[BaseException], Rule], ...]] = (
    (exceptions.ChannelNotFoundEntity, Rule.AMQP091_NOT_FOUND),
    (exceptions.ChannelAccessRefused, Rule.AMQP091_DENIED),
    (exceptions.ChannelLockedResource, Rule.AMQP091_LOCKED),
    (exceptions.PublishError, Rule.AMQP091_UNROUTED),
    (exceptions.DeliveryError, Rule.AMQP091_NOT_CONFIRMED),
    (exceptions.ChannelPreconditionFailed, Rule.AMQP091_FAILED),
    (exceptions.AuthenticationError, Rule.AMQP091_DENIED),
    (exceptions.ProbableAuthenticationError, Rule.AMQP091_DENIED),
    (exceptions.ConnectionClosed, Rule.AMQP091_UNREACHABLE),
    (exceptions.ChannelInvalidStateError, Rule.AMQP091_UNREACHABLE),
    (exceptions.AMQPConnectionError, Rule.AMQP091_UNREACHABLE),
    # Without a reason of its own: it went with its connection.
    (exceptions.AMQPChannelError, Rule.AMQP091_UNREACHABLE),
    (exceptions.AMQPError, Rule.AMQP091_UNREACHABLE),
    (OSError, Rule.AMQP091_UNREACHABLE),
    (EOFError, Rule.AMQP091_UNREACHABLE),
    (TimeoutError, Rule.AMQP091_UNREACHABLE),
    (RuntimeError, Rule.AMQP091_UNREACHABLE),
)
# A blocked connection is told at once; this only has to be longer than a turn of the loop.
_LOOK: Final = 0.01
_LOOK_EVERY: Final = 32
_GOODBYE: Final = 2.0
_PERSISTENT: Final = 2
_MILLISECOND: Final = timedelta(milliseconds=1)


def _refusal(error: BaseException, what: str) -> Refusal:
    for kind, rule in _RULES:
        if isinstance(error, kind):
            text = str(error) or type(error).__name__
            return Refusal(rule, f"RabbitMQ, {what}: {text}")
    raise error


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Errors of the library as refusals; a cancelled channel is a lost one."""
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise Refusal(Rule.AMQP091_UNREACHABLE, f"RabbitMQ, {what}: the channel ended") from None
    except Refusal:
        raise
    except Exception as error:
        raise _refusal(error, what) from error


def _to_library(properties: Properties, message_id: str | None) -> spec.Basic.Properties:
    expiration = properties.expiration
    return spec.Basic.Properties(
        headers=dict(properties.headers),
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        delivery_mode=_PERSISTENT if properties.persistent else 1,
        priority=properties.priority,
        correlation_id=properties.correlation_id,
        reply_to=properties.reply_to,
        expiration=None if expiration is None else str(expiration // _MILLISECOND),
        message_id=message_id,
        timestamp=properties.timestamp,
        message_type=properties.type,
        user_id=properties.user_id,
        app_id=properties.app_id,
    )


def _from_library(delivered: Any) -> Incoming:
    found, frame = delivered.header.properties, delivered.delivery
    expiration, timestamp = found.expiration, found.timestamp
    if isinstance(timestamp, int | float):
        timestamp = datetime.fromtimestamp(timestamp, UTC)
    return Incoming(
        frame.delivery_tag,
        delivered.body,
        Properties(
            headers=found.headers or {},
            content_type=found.content_type,
            content_encoding=found.content_encoding,
            persistent=found.delivery_mode == _PERSISTENT,
            priority=found.priority,
            correlation_id=found.correlation_id,
            reply_to=found.reply_to,
            expiration=timedelta(milliseconds=int(expiration)) if expiration else None,
            message_id=found.message_id,
            timestamp=timestamp,
            type=found.message_type,
            user_id=found.user_id,
            app_id=found.app_id,
        ),
        frame.exchange or "",
        frame.routing_key or "",
        bool(frame.redelivered),
        getattr(frame, "consumer_tag", None) or "",
    )


class Amqp091Channel:
    """core.amqp091.Channel."""

    def __init__(self, channel: Any, under: Any, confirms: bool = True) -> None:
        self._channel = channel
        self._confirms = confirms
        self._published = 0
        self._under = under
        self._cancelled: dict[str, Callable[[], None]] = {}
        self._prefetch = asyncio.Lock()
        under.on_consumer_cancel_callbacks.add(self._on_cancel)

    @property
    def closed(self) -> bool:
        return bool(self._channel.is_closed)

    async def publish(
        self,
        body: bytes,
        properties: Properties,
        *,
        exchange: str = "",
        routing_key: str = "",
        mandatory: bool = True,
    ) -> None:
        self._published += 1
        # The library joins a returned message to its publication by this id: it must be unique.
        message_id = properties.message_id or (uuid4().hex if self._confirms else None)
        with _refusing(f"publishing to '{routing_key or exchange}'"):
            await self._under.basic_publish(
                body,
                exchange=exchange,
                routing_key=routing_key,
                properties=_to_library(properties, message_id),
                mandatory=mandatory,
                # Without confirms the socket gives the pace: looking at it now and then is enough.
                wait=self._confirms or self._published % _LOOK_EVERY == 0,
            )

    async def consume(
        self,
        queue: str,
        take: Callable[[Incoming], None],
        *,
        prefetch: int = 0,
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: Mapping[str, Any] | None = None,
        cancelled: Callable[[], None] | None = None,
    ) -> str:
        def on_message(delivered: Any) -> None:
            take(_from_library(delivered))

        tag = f"gridpost-{uuid4().hex}"
        if cancelled is not None:
            self._cancelled[tag] = cancelled
        with _refusing(f"consuming from '{queue}'"):
            async with self._prefetch:
                if not no_ack:
                    await self._under.basic_qos(prefetch_count=prefetch)
                await self._under.basic_consume(
                    queue,
                    on_message,
                    no_ack=no_ack,
                    exclusive=exclusive,
                    arguments=dict(arguments) if arguments else None,
                    consumer_tag=tag,
                )
        return tag

    def _on_cancel(self, frame: Any) -> None:
        told = self._cancelled.pop(frame.consumer_tag, None)
        if told is not None:
            told()

    async def cancel(self, consumer: str) -> None:
        self._cancelled.pop(consumer, None)
        with _refusing("ending a consumer"):
            await self._under.basic_cancel(consumer)

    async def get(self, queue: str) -> Incoming | None:
        with _refusing(f"reading '{queue}'"):
            delivered = await self._under.basic_get(queue)
        if getattr(delivered.delivery, "delivery_tag", None) is None:
            return None
        return _from_library(delivered)

    async def ack(self, tag: int, *, multiple: bool = False) -> None:
        with _refusing("acknowledging"):
            await self._under.basic_ack(tag, multiple=multiple, wait=False)

    async def nack(self, tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        with _refusing("giving back"):
            await self._under.basic_nack(tag, multiple=multiple, requeue=requeue, wait=False)

    async def declare_queue(
        self,
        queue: str = "",
        *,
        passive: bool = False,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> tuple[str, QueueCounts]:
        with _refusing(f"declaring the queue '{queue}'"):
            found = await self._under.queue_declare(
                queue,
                passive=passive,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=dict(arguments) if arguments else None,
            )
        return found.queue, QueueCounts(found.message_count or 0, found.consumer_count or 0)

    async def delete_queue(self, queue: str) -> None:
        with _refusing(f"deleting the queue '{queue}'"):
            await self._under.queue_delete(queue)

    async def declare_exchange(
        self,
        exchange: str,
        kind: str,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        with _refusing(f"declaring the exchange '{exchange}'"):
            await self._under.exchange_declare(
                exchange,
                exchange_type=kind,
                durable=durable,
                auto_delete=auto_delete,
                arguments=dict(arguments) if arguments else None,
            )

    async def bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        with _refusing(f"binding '{queue}' to '{exchange}'"):
            await self._under.queue_bind(
                queue, exchange, routing_key, arguments=dict(arguments) if arguments else None
            )

    async def unbind(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        with _refusing(f"unbinding '{queue}' from '{exchange}'"):
            await self._under.queue_unbind(
                queue, exchange, routing_key, arguments=dict(arguments) if arguments else None
            )

    async def close(self) -> None:
        with suppress(Exception):
            await self._channel.close()


class Amqp091Connection:
    """core.amqp091.RabbitConnection."""

    def __init__(self, connection: Any, address: str) -> None:
        self.address = address
        self.lost: asyncio.Future[Refusal] = asyncio.get_running_loop().create_future()
        self._connection = connection
        self._transport = connection.transport
        connection.close_callbacks.add(self._on_lost)

    @property
    def version(self) -> tuple[int, ...]:
        text = self._transport.connection.server_properties.get("version", "0")
        parts = str(text).split("-")[0].split(".")
        return tuple(int(part) for part in parts if part.isdigit())

    async def channel(self, *, confirms: bool = True) -> Amqp091Channel:
        with _refusing("opening a channel"):
            opened = self._connection.channel(
                publisher_confirms=confirms, on_return_raises=confirms
            )
            await opened.initialize()
            return Amqp091Channel(opened, await opened.get_underlay_channel(), confirms)

    async def blocked(self) -> bool:
        try:
            async with asyncio.timeout(_LOOK):
                await self._transport.ready()
        except TimeoutError:
            return True
        return False

    async def close(self) -> None:
        with suppress(Exception):
            await self._connection.close()
        with suppress(TimeoutError):
            # The library tells its listeners in a task of its own.
            async with asyncio.timeout(_GOODBYE):
                await self._transport.close_callback.wait()
        self._on_lost(self._connection, None)

    def _on_lost(self, _: Any, error: BaseException | None) -> None:
        if not self.lost.done():
            why = "closed" if error is None else str(error) or type(error).__name__
            self.lost.set_result(
                Refusal(
                    Rule.AMQP091_UNREACHABLE, f"the connection to RabbitMQ at {self.address}: {why}"
                )
            )


@dataclass(frozen=True, slots=True)
class Amqp091Tls:
    """Files of a client: read again for each connection, so that renewed ones count."""

    roots: Path
    certificate: Path | None = None
    """With a key: EXTERNAL, the user is the certificate's common name."""
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(self.roots))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate is not None:
            context.load_cert_chain(str(self.certificate), str(self.key or self.certificate))
        return context


class Amqp091Client:
    """core.amqp091.RabbitClient."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        virtual_host: str = "/",
        tls: Callable[[], ssl.SSLContext] | None = None,
        user: str = "",
        password: str = "",
        heartbeat: int = 10,
        timeout: float = 15,
        name: str = "gridpost",
    ) -> None:
        """`urls` are `amqps://host:port` (or `amqp://`, where the network is trusted).

        Without a password the certificate says who we are (SASL EXTERNAL), whatever the user is.
        """
        self._urls = tuple(urls)
        self._virtual_host = virtual_host
        self._tls = tls
        self._user = user
        self._password = password
        self._heartbeat = heartbeat
        self._timeout = timeout
        self._name = name

    async def connect(self, purpose: str = "") -> Amqp091Connection:
        refusals = []
        for url in self._urls:
            try:
                return await self._connect(url, purpose)
            except Refusal as refusal:
                refusals.append(refusal)
        denied = [r for r in refusals if r.rule is not Rule.AMQP091_UNREACHABLE]
        raise (denied or refusals)[-1]

    def keep(
        self,
        work: Callable[[RabbitConnection], Awaitable[None]],
        *,
        purpose: str = "",
        lost: Callable[[Refusal], None] | None = None,
    ) -> Amqp091Keeper:
        return Amqp091Keeper(self, work, purpose=purpose, lost=lost)

    async def _connect(self, url: str, purpose: str) -> Amqp091Connection:
        parts = urlsplit(url)
        query = {
            "heartbeat": str(self._heartbeat),
            "name": f"{self._name} {purpose}".strip(),
        }
        if not self._password:
            query["auth"] = "external"
        context = None
        if parts.scheme == "amqps":
            if self._tls is None:
                raise Refusal(Rule.USAGE, f"'{url}' needs TLS, and no certificates are configured")
            context = self._tls()
        secret = f":{quote(self._password, safe='')}" if self._password else ""
        login = f"{quote(self._user, safe='')}{secret}@"
        port = parts.port or (5671 if context else 5672)
        address = f"{parts.hostname}:{port}"
        target = (
            f"{parts.scheme}://{login if self._user else ''}{parts.hostname}:{port}/"
            f"{quote(self._virtual_host, safe='')}?"
            + "&".join(f"{key}={quote(value)}" for key, value in query.items())
        )
        with _refusing(f"connecting to {address}"):
            connection = aio_pika.Connection(make_url(target), ssl_context=context)
            try:
                await connection.connect(timeout=self._timeout)
            except BaseException:
                # Not closed, it would try to close itself when it is collected, in any loop.
                await connection.close()
                raise
        return Amqp091Connection(connection, address)


class Amqp091Keeper:
    """core.amqp091.ConnectionKeeper."""

    def __init__(
        self,
        client: RabbitClient,
        work: Callable[[RabbitConnection], Awaitable[None]],
        *,
        purpose: str = "",
        lost: Callable[[Refusal], None] | None = None,
        first: float = 0.2,
        most: float = 10.0,
    ) -> None:
        self.connection: RabbitConnection | None = None
        self.why: Refusal | None = None
        self._client = client
        self._work = work
        self._purpose = purpose
        self._lost = lost
        self._first, self._most = first, most
        self._task: asyncio.Task[None] | None = None

    async def start(self, *, insist: bool = True) -> None:
        try:
            await self._open()
        except Refusal as refusal:
            if insist or refusal.rule is not Rule.AMQP091_UNREACHABLE:
                raise
            self.why = refusal
            log.warning("RabbitMQ does not answer", extra={"reason": refusal.message})
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self.connection is not None:
            await self.connection.close()
            self.connection = None

    async def _open(self) -> None:
        connection = await self._client.connect(self._purpose)
        try:
            await self._work(connection)
        except BaseException:
            await connection.close()
            raise
        self.connection, self.why = connection, None
        log.info("connected to RabbitMQ", extra={"address": connection.address})

    async def _run(self) -> None:
        while True:
            if self.connection is not None:
                refusal = await asyncio.shield(self.connection.lost)
                self.connection, self.why = None, refusal
                log.warning("lost RabbitMQ", extra={"reason": refusal.message})
                if self._lost is not None:
                    self._lost(refusal)
            for failures in count():
                wait = min(self._most, self._first * 2.0 ** min(failures, 16))
                # Not everybody at once when it comes back.
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))
                try:
                    await self._open()
                    break
                except Refusal as again:
                    self.why = again
                    log.warning("RabbitMQ does not answer", extra={"reason": again.message})
