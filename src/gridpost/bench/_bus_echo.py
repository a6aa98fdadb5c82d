"""The yardstick of the bus: the same broker, TLS, queues, prefetch and body size, without XML or store."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gridpost.bench._capacity_site import SERVICE, rabbit
from gridpost.core.amqp091 import Incoming, Properties

QUEUE = "echo"
ARGUMENTS = {"x-queue-type": "quorum", "x-delivery-limit": 5, "x-message-ttl": 30_000}


async def _echo(folder: Path, url: str, prefetch: int, size: int) -> None:
    connection = await rabbit(folder, url, SERVICE).connect()
    requests, responses = await connection.channel(confirms=False), await connection.channel()
    await requests.declare_queue(QUEUE, arguments=ARGUMENTS)
    body = b"x" * size
    tasks: set[asyncio.Task[None]] = set()

    async def answer(incoming: Incoming) -> None:
        properties = Properties(correlation_id=incoming.properties.correlation_id)
        reply_to = incoming.properties.reply_to or ""
        await responses.publish(body, properties, routing_key=reply_to)
        await requests.ack(incoming.tag)

    def take(incoming: Incoming) -> None:
        task = asyncio.create_task(answer(incoming))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    await requests.consume(QUEUE, take, prefetch=prefetch)
    print("listening", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_echo(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
