"""How fast the bus answers a request over RabbitMQ, beside an echo over the same broker.

Bus, echo and clients are processes of their own against one private RabbitMQ with TLS and quorum
queues, with the same client, prefetch, confirms and body sizes; the echo answers and acknowledges
each message by itself, as a plain consumer does. Every request to the bus has ids of its own, is
checked, answered from SQL, remembered and journalled.
Rate: clients in a closed loop. p99: both at a quarter of the echo's rate, in turns.
What exists when the clients begin is not searched for garbage in their process any more (since
2026-11-18), for echo and bus alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from uuid import uuid4

from gridpost.bench import Measurement
from gridpost.bench._asking import Ask, with_rabbitmq
from gridpost.bench._beside_echo import BesideEcho
from gridpost.bench._bus_echo import QUEUE
from gridpost.bench._capacity_site import (
    SERVICE,
    client_name,
    process,
    rabbit,
    wait_for_line,
)
from gridpost.core.amqp091 import Channel, Incoming, Properties
from gridpost.envelope import ResponseMessage, Result, Sender, decode, encode

CLIENTS = 50
PREFETCH = 64
WARM_UP, SECONDS, ROUNDS = 1.0, 5.0, 3
NOUN = "MeterReadings"
Asking = Callable[[Sequence[Ask]], Awaitable[None]]
_COMMAND = "from gridpost.cli import main; main()"
_TARGET = f"TESTING.REQUESTS.{NOUN}.get"


def measure() -> Measurement:
    return with_rabbitmq(_measure)


class _Load:
    """Requests that are under way on one channel."""

    def __init__(self, channel: Channel, reply_to: str, target: str) -> None:
        self._channel, self._reply_to, self._target = channel, reply_to, target
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._numbers = count()

    def take(self, incoming: Incoming) -> None:
        waiting = self._waiting.pop(incoming.properties.correlation_id or "", None)
        if waiting is not None and not waiting.done():
            waiting.set_result(incoming.body)

    async def ask(self, body: bytes) -> bytes:
        key = str(next(self._numbers))
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[key] = answer
        properties = Properties(reply_to=self._reply_to, correlation_id=key)
        await self._channel.publish(body, properties, routing_key=self._target)
        return await answer


def _bodies() -> Callable[[], bytes]:
    """Requests that differ in their ids alone: making them costs the client next to nothing."""
    made = encode(
        Sender("BENCH", "TESTING", replay_detection=False).request("get", NOUN, ids=["m1"])
    )
    first = made.index(b"<MessageID>") + len(b"<MessageID>")
    head, tail = made[:first], made[first + 36 :]
    return lambda: head + str(uuid4()).encode() + tail


def _configuration(folder: Path, url: str) -> Path:
    file = folder / "bus.toml"
    file.write_text(
        f"""component = "bus"
code = "MDM"
home = "bus"
contexts = ["TESTING"]
[rabbitmq]
urls = ["{url}"]
roots = "root.pem"
certificate = "{SERVICE}.pem"
key = "key.pem"
[limits]
prefetch = {PREFETCH}
[operations]
port = 0
"""
    )
    return file


async def _measure(folder: Path, url: str) -> Measurement:
    configuration, body = _configuration(folder, url), _bodies()

    async def bus(work: Callable[[_Load], Awaitable[float]]) -> float:
        arguments = ("-c", _COMMAND, "bus", "run", "--config", str(configuration))
        with process(folder, "bus", *arguments):
            await asyncio.to_thread(wait_for_line, folder, "bus", "serving")
            return await _with_load(folder, url, _TARGET, work)

    async def size(load: _Load) -> float:
        data = await load.ask(body())
        answer = decode(data)
        # Nobody has readings of this meter: the whole way, and a small answer.
        if not isinstance(answer, ResponseMessage) or answer.reply.result is not Result.FAILED:
            raise RuntimeError(f"the bus does not answer: {answer}")
        return float(len(data))

    answer_size = int(await bus(size))

    async def echo(work: Callable[[_Load], Awaitable[float]]) -> float:
        arguments = (str(folder), url, str(PREFETCH), str(answer_size))
        with process(folder, "echo", "-m", "gridpost.bench._bus_echo", *arguments):
            await asyncio.to_thread(wait_for_line, folder, "echo", "listening")
            return await _with_load(folder, url, QUEUE, work)

    beside = BesideEcho(1 / 4, WARM_UP, SECONDS)
    for _ in range(ROUNDS):
        # In turns, so that both see the same machine.
        for side, ask in ((echo, beside.ask_echo), (bus, beside.ask_service)):

            async def both(load: _Load, ask: Asking = ask) -> float:
                await ask([lambda: load.ask(body())] * CLIENTS)
                return 0.0

            await side(both)
    return Measurement(
        {name: round(value, 3) for name, value in beside.figures().items()},
        {name: round(value, 3) for name, value in beside.ratios().items()},
    )


async def _with_load(
    folder: Path, url: str, target: str, work: Callable[[_Load], Awaitable[float]]
) -> float:
    connection = await rabbit(folder, url, client_name(0)).connect()
    try:
        channel = await connection.channel()
        queue, _ = await channel.declare_queue(durable=False, exclusive=True, auto_delete=True)
        load = _Load(channel, queue, target)
        await channel.consume(queue, load.take, no_ack=True)
        return await work(load)
    finally:
        await connection.close()
