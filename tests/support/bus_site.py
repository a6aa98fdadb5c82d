"""A bus on a real RabbitMQ in this process, and whoever talks to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from gridpost.assembly.bus_configuration import BusConfiguration
from gridpost.assembly.clock import SystemClock
from gridpost.core.amqp091 import Channel, Incoming, Properties, RabbitConnection
from gridpost.core.journal import JournalRow
from gridpost.envelope import Sender
from gridpost.envelope.client import BusClient
from gridpost.services.bus.metrics import BusMetrics
from gridpost.services.bus.reference import register_reference
from gridpost.services.bus.service import BusService
from gridpost.stores.sqlite.bus import SqliteBusLedger
from gridpost.stores.sqlite.database import connect_reader
from gridpost.stores.sqlite.journal import SqliteJournal
from support.rabbitmq import EDGE, Rabbit

CONTEXT = "TESTING"


def configuration(rabbit: Rabbit, virtual_host: str, home: Path, **fields: Any) -> BusConfiguration:
    certificate = rabbit.certificate(EDGE)
    values: dict[str, Any] = {
        "component": "bus",
        "code": "MDM",
        "home": home,
        "contexts": (CONTEXT,),
        "rabbitmq": {
            "urls": (rabbit.url,),
            "virtual_host": virtual_host,
            "roots": certificate / "root.pem",
            "certificate": certificate / "chain.pem",
            "key": certificate / "key.pem",
        },
        "operations": {"port": 0},
        "slas": (
            {"noun": "Slow", "within": timedelta(seconds=5)},
            {"within": timedelta(seconds=20)},
        ),
    }
    return BusConfiguration(**{**values, **fields})


def journal(home: Path) -> list[JournalRow]:
    connection = connect_reader(home / "store")
    try:
        return [recorded.row for recorded in SqliteJournal(connection).read(0, 100_000)]
    finally:
        connection.close()


@dataclass
class Site:
    rabbit: Rabbit
    virtual_host: str
    home: Path
    service: BusService
    ledger: SqliteBusLedger
    connection: RabbitConnection
    """Of a client."""
    channel: Channel
    client: BusClient
    sender: Sender

    async def put(
        self, verb: str, noun: str, body: bytes, *, context: str = CONTEXT, **fields: Any
    ) -> None:
        """Bytes to a request queue, as a stranger sends them."""
        name = f"{context}.REQUESTS.{noun}.{verb}"
        await self.channel.publish(body, Properties(**fields), routing_key=name)

    async def reply_queue(self) -> str:
        name, _ = await self.channel.declare_queue(durable=False, auto_delete=False)
        return name

    async def next(self, queue: str, seconds: float = 60) -> Incoming:
        import asyncio

        async with asyncio.timeout(seconds):
            while True:
                found = await self.channel.get(queue)
                if found is not None:
                    await self.channel.ack(found.tag)
                    return found
                await asyncio.sleep(0.01)

    async def dead(self) -> Incoming:
        return await self.next(f"{CONTEXT}.DEAD")

    async def count(self, queue: str) -> int:
        _, counts = await self.channel.declare_queue(queue, passive=True)
        return counts.messages


@asynccontextmanager
async def bus_site(
    rabbit: Rabbit,
    home: Path,
    register: Callable[[BusService], None] = lambda service: None,
    *,
    virtual_host: str = "",
    step: Callable[[str], None] = lambda name: None,
    **fields: Any,
) -> AsyncIterator[Site]:
    import asyncio

    virtual_host = virtual_host or rabbit.virtual_host()
    config = configuration(rabbit, virtual_host, home, **fields)
    clock = SystemClock()
    ledger = await asyncio.to_thread(SqliteBusLedger.open, home / "store", config.code)
    service = BusService(
        config.settings(), ledger, clock, BusMetrics(CollectorRegistry()), step=step
    )
    register_reference(service.handlers, clock.now, config.relations("EndDeviceControls"))
    register(service)
    keeper = rabbit.client(virtual_host=virtual_host).keep(service.connected, lost=service.lost)
    working = asyncio.create_task(service.run())
    await keeper.start()
    connection = await rabbit.client(virtual_host=virtual_host).connect()
    channel = await connection.channel()
    client = await BusClient(connection, CONTEXT, within=timedelta(seconds=60)).open()
    try:
        yield Site(
            rabbit, virtual_host, home, service, ledger, connection, channel, client,
            Sender("EMS", CONTEXT),
        )  # fmt: skip
    finally:
        await connection.close()
        await service.pause()
        await keeper.close()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await ledger.close()
