"""How benches ask through RabbitMQ: a private node, a closed loop of clients, and a fixed rate.

What is asked, and of whom, is the bench's own matter: it hands over one call for each client.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle
from pathlib import Path
from time import perf_counter

from gridpost.assembly.garbage import keep_what_is_made
from gridpost.bench import Measurement
from gridpost.bench._capacity_site import users, write_certificates
from gridpost.bench._rabbitmq import Node, NodePlan

Ask = Callable[[], Awaitable[object]]


def with_rabbitmq(work: Callable[[Path, str], Awaitable[Measurement]]) -> Measurement:
    """`work` gets a folder with certificates, and the URL of a node that knows their names."""
    folder = Path(
        tempfile.mkdtemp(prefix="gridpost-bench-", dir=os.environ.get("GRIDPOST_BENCH_DIR"))
    )
    node = None
    try:
        write_certificates(folder)
        node = Node(NodePlan(folder, users=users()))
        node.start()
        # The clients share a process that stands for many: its pauses are nobody's answer time.
        keep_what_is_made()
        return asyncio.run(_awaited(work(folder, node.url)))
    finally:
        if node is not None:
            node.kill()
        shutil.rmtree(folder)


async def _awaited(measuring: Awaitable[Measurement]) -> Measurement:
    return await measuring


async def closed_loop(clients: Sequence[Ask], warm_up: float, seconds: float) -> float:
    """Requests per second with each client asking again as soon as it is answered."""
    done = 0
    started = perf_counter() + warm_up
    end = started + seconds

    async def ask_on(ask: Ask) -> None:
        nonlocal done
        while (now := perf_counter()) < end:
            await ask()
            done += started <= now

    await asyncio.gather(*map(ask_on, clients))
    return done / (perf_counter() - started)


async def at_rate(clients: Sequence[Ask], rate: float, seconds: float) -> list[float]:
    """Seconds from when a request was due to its answer: a stall counts for all that it delays."""
    times: list[float] = []
    start = perf_counter()

    async def ask(client: Ask, due: float) -> None:
        await client()
        times.append(perf_counter() - due)

    async with asyncio.TaskGroup() as asking:
        for number, client in zip(range(int(rate * seconds)), cycle(clients), strict=False):
            due = start + number / rate
            wait = due - perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            asking.create_task(ask(client, due))
    return times
