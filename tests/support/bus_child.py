"""Buses in processes of their own that end themselves, without a word, at one step of a message."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry

from gridpost.assembly.bus import open_ledger
from gridpost.assembly.bus_bridge import MadesBridge
from gridpost.assembly.bus_configuration import read_bus_configuration
from gridpost.assembly.bus_parts import caller, forwarder, subscribers, web_post
from gridpost.assembly.clock import SystemClock
from gridpost.core.bus import BusUnit
from gridpost.envelope import RequestMessage
from gridpost.services.bus.door import WebDoor
from gridpost.services.bus.metrics import BusMetrics
from gridpost.services.bus.service import BusService
from gridpost.services.bus.tables import TableBox


async def serve(file: Path, stop_at: str) -> None:
    configuration = read_bus_configuration(file)
    ledger = open_ledger(configuration)

    def step(name: str) -> None:
        if name == stop_at.replace("_", " "):
            os.kill(os.getpid(), signal.SIGKILL)

    post = web_post(configuration)
    calls = caller(post, None)

    async def call(url: str, envelope: bytes) -> bytes | None:
        answer = await calls.call(url, envelope)
        step("called")
        return answer

    service = BusService(
        configuration.settings(),
        ledger,
        SystemClock(),
        BusMetrics(CollectorRegistry()),
        web=call,
        step=step,
    )

    @service.handles("create", "Counts")
    def count(request: RequestMessage, unit: BusUnit) -> None:
        unit.execute("CREATE TABLE IF NOT EXISTS effect (message_id TEXT NOT NULL)")
        unit.execute("INSERT INTO effect VALUES (?)", (request.header.message_id,))
        if stop_at == "handler":
            os.kill(os.getpid(), signal.SIGKILL)

    door, bridge = WebDoor(service), None
    if configuration.mades is not None:
        bridge = MadesBridge(configuration.mades, service, door)
    service.forwarder = forwarder(configuration, service, calls, bridge)
    service.post.returned = service.forwarder.returned
    service.subscribers = subscribers(
        configuration, post, calls, lambda name: TableBox(ledger, name)
    )
    keeper = configuration.rabbitmq.client().keep(service.connected, lost=service.lost)
    working = asyncio.create_task(service.run())
    await keeper.start()
    (file.parent / f"serving-{os.getpid()}").touch()
    await asyncio.gather(working, *([bridge.run()] if bridge is not None else []))


def parent() -> None:
    """Loads everything once. Commands: start FILE STEP, wait PID, kill PID; one line each."""
    alive: set[int] = set()
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "start":
            pid = os.fork()
            if not pid:
                os.dup2(2, 1)  # the answers are the parent's alone
                asyncio.run(serve(Path(arguments[0]), arguments[1]))
                os._exit(0)
            alive.add(pid)
            print(pid, flush=True)
            continue
        pid = int(arguments[0])
        if command == "kill":
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        alive.discard(pid)
        print(os.waitstatus_to_exitcode(status), flush=True)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    parent()
