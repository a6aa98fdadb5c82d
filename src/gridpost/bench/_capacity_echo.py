"""The yardstick of capacity: the same broker, TLS, prefetch and body sizes, without XML or ledger."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gridpost.bench._capacity_site import CLIENTS, NAMES, SERVICE, client_name, rabbit
from gridpost.core.amqp091 import Incoming, Properties
from gridpost.wire.cmm import CONTENT_TYPE

# As the service declares them with the configuration of the bench: both meet the same queues.
PRIVATE = {
    "x-expires": 600_000,
    "x-message-ttl": 60_000,
    "x-max-length-bytes": 64 * 1024 * 1024,
    "x-overflow": "drop-head",
}


async def _echo(folder: Path, url: str, prefetch: int, size: int) -> None:
    connection = await rabbit(folder, url, SERVICE).connect()
    requests, responses = await connection.channel(confirms=False), await connection.channel()
    await requests.declare_exchange(NAMES.response, "direct")
    await requests.declare_queue(
        NAMES.request_queue, durable=False, auto_delete=True, arguments={"x-message-ttl": 60_000}
    )
    for number in range(CLIENTS):
        user = client_name(number)
        queue = NAMES.response_queue(user)
        await requests.declare_exchange(NAMES.request(user), "fanout")
        await requests.bind(NAMES.request_queue, NAMES.request(user))
        await requests.declare_queue(queue, durable=False, arguments=PRIVATE)
        await requests.bind(queue, NAMES.response, user)
    body = b"x" * size
    tasks: set[asyncio.Task[None]] = set()

    async def answer(incoming: Incoming) -> None:
        properties = Properties(
            content_type=CONTENT_TYPE,
            persistent=False,
            correlation_id=incoming.properties.correlation_id,
        )
        user = NAMES.user_of(incoming.exchange) or ""
        await responses.publish(body, properties, exchange=NAMES.response, routing_key=user)
        await requests.ack(incoming.tag)

    def take(incoming: Incoming) -> None:
        task = asyncio.create_task(answer(incoming))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    await requests.consume(NAMES.request_queue, take, prefetch=prefetch)
    print("listening", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_echo(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
