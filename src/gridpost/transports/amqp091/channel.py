"""A channel: each port of `core.amqp091.Channel` is one method of the protocol, and nothing is repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from aiormq.abc import ChannelFrame
from aiormq.exceptions import ChannelInvalidStateError

from gridpost.core.amqp091 import Incoming, Properties, Publication, QueueCounts
from gridpost.core.refusal import Refusal
from gridpost.transports.amqp091 import frames
from gridpost.transports.amqp091.confirms import Confirms
from gridpost.transports.amqp091.faults import refusing
from gridpost.transports.amqp091.properties import from_library, to_library

_LOOK_EVERY: Final = 32
"""Publications between looks whether the socket takes more."""


class Amqp091Channel:
    """core.amqp091.Channel."""

    def __init__(self, channel: Any, under: Any, confirms: bool = True) -> None:
        self._channel = channel
        self._confirms = confirms
        self._published = 0
        self._name, self._numbered = f"{uuid4().hex}-", 0
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
        with refusing(f"publishing to '{routing_key or exchange}'"):
            await self._under.basic_publish(
                body,
                exchange=exchange,
                routing_key=routing_key,
                properties=to_library(properties, message_id),
                mandatory=mandatory,
                # Whoever wants a confirm waits for that; looking at the socket now and then is enough.
                wait=self._published % _LOOK_EVERY == 0,
            )

    async def publish_all(self, publications: Sequence[Publication]) -> list[Refusal | None]:
        under = self._under
        ids = [each.properties.message_id or self._next_id() for each in publications]
        octets = b"".join(
            [
                frames.publication(under.number, each, message_id, under.max_content_size)
                for each, message_id in zip(publications, ids, strict=True)
            ]
        )
        with refusing("publishing"):
            if not self._confirms:
                await self._write(octets, until_taken=True)
                return [None] * len(publications)
            confirms = await self._expect_confirms(ids, octets)
        return await confirms.told(
            [f"publishing to '{each.routing_key or each.exchange}'" for each in publications]
        )

    async def _expect_confirms(self, ids: Sequence[str], octets: bytes) -> Confirms:
        """The library resolves these by the number of a publication, and by its id when it returns."""
        under = self._under
        # Numbers follow the order on the wire: nobody publishes in between.
        async with under.lock:
            first = under.delivery_tag + 1
            confirms = Confirms(under, first, ids)
            under.delivery_tag += len(ids)
            try:
                await self._write(octets)
            except BaseException:
                # RabbitMQ has seen none of them, and counts only what it sees.
                under.delivery_tag -= len(ids)
                confirms.forget()
                raise
        return confirms

    def _next_id(self) -> str:
        """Unique: the library joins a returned message to its publication by it."""
        if not self._confirms:
            return ""
        self._numbered += 1
        return f"{self._name}{self._numbered}"

    async def _write(self, octets: bytes, *, until_taken: bool = False) -> None:
        """Or nothing of it, if it raises."""
        under = self._under
        if under.is_closed:
            raise ChannelInvalidStateError(f"{under!r} closed")
        taken = under.create_future() if until_taken else None
        await under.write_queue.put(ChannelFrame(octets, should_close=False, drain_future=taken))
        if taken is not None:
            await taken

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
            take(from_library(delivered))

        tag = f"gridpost-{uuid4().hex}"
        if cancelled is not None:
            self._cancelled[tag] = cancelled
        with refusing(f"consuming from '{queue}'"):
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
        with refusing("ending a consumer"):
            await self._under.basic_cancel(consumer)

    async def get(self, queue: str) -> Incoming | None:
        with refusing(f"reading '{queue}'"):
            delivered = await self._under.basic_get(queue)
        if getattr(delivered.delivery, "delivery_tag", None) is None:
            return None
        return from_library(delivered)

    async def ack(self, tag: int, *, multiple: bool = False) -> None:
        with refusing("acknowledging"):
            await self._under.basic_ack(tag, multiple=multiple, wait=False)

    async def ack_all(self, tags: Sequence[int]) -> None:
        with refusing("acknowledging"):
            await self._write(frames.acknowledgements(self._under.number, tags))

    async def nack(self, tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        with refusing("giving back"):
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
        with refusing(f"declaring the queue '{queue}'"):
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
        with refusing(f"deleting the queue '{queue}'"):
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
        with refusing(f"declaring the exchange '{exchange}'"):
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
        with refusing(f"binding '{queue}' to '{exchange}'"):
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
        with refusing(f"unbinding '{queue}' from '{exchange}'"):
            await self._under.queue_unbind(
                queue, exchange, routing_key, arguments=dict(arguments) if arguments else None
            )

    async def close(self) -> None:
        with suppress(Exception):
            await self._channel.close()
