"""A bus in a process of its own that ends itself, without a word, at one step of a message."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry

from gridpost.assembly.bus_configuration import read_bus_configuration
from gridpost.assembly.clock import SystemClock
from gridpost.core.bus import BusUnit
from gridpost.envelope import RequestMessage
from gridpost.services.bus.metrics import BusMetrics
from gridpost.services.bus.service import BusService
from gridpost.stores.sqlite.bus import SqliteBusLedger


async def serve(file: Path, stop_at: str) -> None:
    configuration = read_bus_configuration(file)
    ledger = SqliteBusLedger.open(configuration.home / "store", configuration.code)

    def step(name: str) -> None:
        if name == stop_at:
            os.kill(os.getpid(), signal.SIGKILL)

    service = BusService(
        configuration.settings(), ledger, SystemClock(), BusMetrics(CollectorRegistry()), step=step
    )

    @service.handles("create", "Counts")
    def count(request: RequestMessage, unit: BusUnit) -> None:
        unit.execute("CREATE TABLE IF NOT EXISTS effect (message_id TEXT NOT NULL) STRICT")
        unit.execute("INSERT INTO effect VALUES (?)", (request.header.message_id,))
        if stop_at == "handler":
            os.kill(os.getpid(), signal.SIGKILL)

    keeper = configuration.rabbitmq.client().keep(service.connected, lost=service.lost)
    working = asyncio.create_task(service.run())
    await keeper.start()
    print("serving", flush=True)
    await working


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
