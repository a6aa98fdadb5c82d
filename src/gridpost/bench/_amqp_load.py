"""The load of the broker bench: one producer and one consumer in one process, the same for every broker."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gridpost.core.identifiers import ComponentCode, MessageType, new_message_id
from gridpost.core.instant import Instant
from gridpost.core.links import Outcome, Peer, ReceivedDelivery
from gridpost.core.message import InternalType, Metadata, SealedMessage
from gridpost.transports.amqp10 import AmqpClient, AmqpLimits, TlsCredentials
from gridpost.wire.mades.amqp_message import encode

SECONDS = 300.0


@dataclass(frozen=True)
class Load:
    """Where the messages go. Brokers name their queues differently."""

    port: int
    sender: TlsCredentials
    receiver: TlsCredentials
    target: str
    source: str


@dataclass(frozen=True)
class Result:
    """Half of what came in and what went out while the clock ran.

    These differ only where a queue holds messages already: its consumer may be ahead of the producer.
    """

    seconds: float
    messages: float

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds


def messages(count: int, size: int) -> list[bytes]:
    """Made before the clock starts: every id is new, the rest is the same."""
    now = datetime.now(UTC)
    name = new_message_id()
    metadata = Metadata(
        message_id=name,
        receiver_code=ComponentCode("E2"),
        message_type=MessageType("A01"),
        generated=Instant.of(now),
        expiration_time=Instant.of(now + timedelta(hours=6)),
        sender_code=ComponentCode("E1"),
        internal_type=InternalType.STANDARD_MESSAGE,
    )
    overhead = len(encode(SealedMessage(metadata, b""), None, now))
    body = bytes(max(0, size - overhead))
    template = encode(SealedMessage(metadata, body), None, now)
    return [template.replace(name.encode(), new_message_id().encode()) for _ in range(count)]


def pass_through(load: Load, batch: list[bytes]) -> Result:
    """Send all of them, and consume at least as many."""
    return asyncio.run(_pass_through(load, batch))


async def _pass_through(load: Load, batch: list[bytes]) -> Result:
    limits = AmqpLimits(max_connections=4)
    url = f"amqps://127.0.0.1:{load.port}"
    receiving = await AmqpClient(
        [url], container="receiver", tls=lambda: load.receiver, check=_anyone, limits=limits
    ).connect()
    sending = await AmqpClient(
        [url], container="sender", tls=lambda: load.sender, check=_anyone, limits=limits
    ).connect()
    arrived = asyncio.Event()
    wanted = len(batch)
    count = 0

    def take(delivery: ReceivedDelivery) -> None:
        nonlocal count
        count += 1
        delivery.accept()
        if count == wanted:
            arrived.set()

    producer = await sending.attach_producer(load.target)
    started = time.perf_counter()
    await receiving.attach_consumer(load.source, take, credit=500)
    accepted: list[asyncio.Future[Outcome]] = [producer.send(message) for message in batch]
    async with asyncio.timeout(SECONDS):
        outcomes = await asyncio.gather(*accepted)
        await arrived.wait()
    seconds = time.perf_counter() - started
    moved = (wanted + count) / 2
    refused = [outcome for outcome in outcomes if not outcome.taken]
    if refused:
        raise RuntimeError(f"{len(refused)} messages were refused: {refused[0]}")
    sending.close()
    receiving.close()
    await asyncio.gather(sending.lost, receiving.lost)
    return Result(seconds, moved)


async def _anyone(peer: Peer) -> None:
    """A bench trusts its own yardsticks."""
