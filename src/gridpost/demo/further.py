"""Everything beside the network of endpoints: capacity and bus on a RabbitMQ of their own, the old node.

They are started and shown while documents are exchanged, side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from importlib.util import find_spec
from typing import Any

from gridpost.assembly.network import NetworkFiles, Placed, Ports
from gridpost.demo import bus_part, capacity_part
from gridpost.demo.bus_part import BusPart
from gridpost.demo.capacity_part import CapacityPart
from gridpost.demo.node_part import NodePart
from gridpost.demo.part import Done, Part, kept_ports, place
from gridpost.demo.processes import ComponentProcess
from gridpost.demo.rabbit import DemoRabbit, what_is_missing

Stage = Callable[[str, int], Done]
"""Opens a line of the progress display."""
CAPACITY, BUS, NODE, RABBIT = "CMM", "BUS", "NODE", "rabbitmq"


def rabbit_missing() -> str:
    """Empty: capacity and bus can be shown here."""
    if find_spec("aio_pika") is None:
        return "gridpost[capacity] and gridpost[bus] are not installed"
    return what_is_missing()


class Further:
    def __init__(self, files: NetworkFiles, free: Ports) -> None:
        home = files.folder
        self.left_out: dict[str, str] = {}
        self._node = NodePart(
            files, place(home, "node", NODE, ("server", "operations", "console"), free)
        )
        self._rabbit: DemoRabbit | None = None
        self._market: tuple[CapacityPart, BusPart] | None = None
        missing = rabbit_missing()
        if missing:
            self.left_out |= {CapacityPart.name: missing, BusPart.name: missing}
            return
        folder = home / RABBIT
        folder.mkdir(mode=0o700, exist_ok=True)
        port = kept_ports(folder / "ports.json", ("server",), free)["server"]
        self._rabbit = DemoRabbit(folder, port)
        capacity = place(home, "capacity", CAPACITY, ("operations", "console"), free)
        bus = place(home, "bus", BUS, ("operations", "console"), free)
        self._market = (
            CapacityPart(home, capacity, self._rabbit),
            BusPart(home, bus, self._rabbit),
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        return (*(self._market or ()), self._node)

    @property
    def processes(self) -> tuple[ComponentProcess, ...]:
        return tuple(process for part in self.parts for process in part.processes)

    @property
    def journals(self) -> tuple[Placed, ...]:
        """Components whose journals the pipeline reads; capacity keeps a ledger instead of one."""
        return tuple(p.placed for p in self.processes if p.placed.command != CapacityPart.name)

    @property
    def consoles(self) -> tuple[Placed, ...]:
        return tuple(p.placed for p in self.processes if "console" in p.placed.ports)

    async def show(self, at: datetime, stage: Stage) -> dict[str, Any]:
        """What each part did, by its name."""
        found: dict[str, Any] = {}

        async def one(part: Part) -> None:
            found[part.name] = await part.show(stage(part.name, len(part.steps)))

        async def old_node() -> None:
            await asyncio.to_thread(self._node.prepare, at)
            await one(self._node)

        async def market(rabbit: DemoRabbit, capacity: CapacityPart, bus: BusPart) -> None:
            users = (capacity_part.SERVICE, bus_part.SERVICE, bus_part.USER)
            done = stage("RabbitMQ starts", 1)
            await asyncio.to_thread(rabbit.prepare, users, at)
            more = await asyncio.to_thread(capacity.prepare, at)
            bus.prepare()
            await rabbit.start((bus_part.SERVICE, bus_part.USER), bus_part.HOST, more)
            done(rabbit.url)
            async with asyncio.TaskGroup() as group:
                group.create_task(one(capacity))
                group.create_task(one(bus))

        async with asyncio.TaskGroup() as group:
            group.create_task(old_node())
            if self._rabbit is not None and self._market is not None:
                group.create_task(market(self._rabbit, *self._market))
        return found

    async def stop(self) -> None:
        await asyncio.gather(*(process.stop() for process in self.processes))
        if self._rabbit is not None:
            await self._rabbit.stop()
