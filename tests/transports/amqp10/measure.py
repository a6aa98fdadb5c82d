"""Messages per second through a server without a store, and what one costs its process.

    PYTHONPATH=src:tests python tests/transports/amqp10/measure.py [messages] [octets] [--profile]

Producer, server and consumer are processes of their own; the server's queue is in memory.
"""

from __future__ import annotations

import asyncio
import cProfile
import multiprocessing
import pstats
import resource
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

from gridpost.core.links import ReceivedDelivery
from gridpost.transports.amqp10 import (
    AmqpClient,
    AmqpLimits,
    AmqpServer,
    TlsCredentials,
)
from support.authority import Authority, Clock
from support.memory_broker import MemoryBroker

IN_FLIGHT = 400


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def serve(own: TlsCredentials, pipe: Connection, profile: bool) -> None:
    async def main() -> None:
        server = AmqpServer(container="B1", clock=Clock(), limits=AmqpLimits())
        port = await server.listen("127.0.0.1", 0, MemoryBroker(), tls=lambda: own)
        pipe.send(port)
        loop = asyncio.get_running_loop()
        while (question := await loop.run_in_executor(None, pipe.recv)) != "stop":
            if question == "cpu":
                pipe.send(cpu())
        await server.close()

    if not profile:
        asyncio.run(main())
        return
    profiler = cProfile.Profile()
    profiler.runcall(asyncio.run, main())
    pstats.Stats(profiler).sort_stats("tottime").print_stats(35)


def produce(own: TlsCredentials, port: int, messages: int, octets: int, pipe: Connection) -> None:
    async def main() -> None:
        client = AmqpClient([f"amqps://127.0.0.1:{port}"], container="E1", tls=lambda: own)
        connection = await client.connect()
        producer = await connection.attach_producer("E2")
        body = b"x" * octets
        room = asyncio.Semaphore(IN_FLIGHT)

        def done(future: Any) -> None:
            room.release()

        began = cpu()
        for _ in range(messages):
            await room.acquire()
            producer.send(b"\x00\x53\x70\x45", body).add_done_callback(done)
        for _ in range(IN_FLIGHT):
            await room.acquire()
        pipe.send(cpu() - began)
        connection.close()
        await connection.lost

    asyncio.run(main())


def consume(own: TlsCredentials, port: int, messages: int, pipe: Connection) -> None:
    async def main() -> None:
        client = AmqpClient([f"amqps://127.0.0.1:{port}"], container="E2", tls=lambda: own)
        connection = await client.connect()
        done = asyncio.Event()
        count = 0

        def take(delivery: ReceivedDelivery) -> None:
            nonlocal count
            count += 1
            delivery.accept()
            if count == messages:
                done.set()

        await connection.attach_consumer("E2", take, credit=500)
        pipe.send("ready")
        began = cpu()
        await done.wait()
        pipe.send(cpu() - began)
        connection.close()
        await connection.lost

    asyncio.run(main())


def main() -> None:
    numbers = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    messages = numbers[0] if numbers else 50_000
    octets = numbers[1] if len(numbers) > 1 else 1024
    profile = "--profile" in sys.argv
    authority = Authority()
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe() for _ in range(3)]
    (server, server_end), (producer, producer_end), (consumer, consumer_end) = pipes
    own = authority.credentials("B1")
    serving = context.Process(target=serve, args=(own, server_end, profile))
    serving.start()
    port = server.recv()
    taking = context.Process(
        target=consume, args=(authority.credentials("E2"), port, messages, consumer_end)
    )
    taking.start()
    consumer.recv()
    server.send("cpu")
    before, began = server.recv(), time.perf_counter()
    sending = context.Process(
        target=produce, args=(authority.credentials("E1"), port, messages, octets, producer_end)
    )
    sending.start()
    consumer_cpu, producer_cpu = consumer.recv(), producer.recv()
    seconds = time.perf_counter() - began
    server.send("cpu")
    server_cpu = server.recv() - before
    server.send("stop")
    for process in (sending, taking, serving):
        process.join()
    print(
        f"{messages} messages of {octets} octets: {messages / seconds:,.0f}/s;"
        f" CPU per message: server {server_cpu / messages * 1e6:.1f} us,"
        f" producer {producer_cpu / messages * 1e6:.1f} us,"
        f" consumer {consumer_cpu / messages * 1e6:.1f} us"
    )


if __name__ == "__main__":
    main()
