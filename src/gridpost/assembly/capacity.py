"""A capacity service from its configuration: its turn, its ledger, its broker, and what operators see."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from gridpost.assembly.capacity_configuration import (
    CapacityConfiguration,
    read_capacity_configuration,
)
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.file_watch import watch_file
from gridpost.core.ports import Clock
from gridpost.services.capacity.administration import Administration
from gridpost.services.capacity.metrics import CapacityMetrics
from gridpost.services.capacity.service import CapacityService
from gridpost.services.operations.app import operations_app
from gridpost.stores.sqlite.capacity import SqliteCapacityLedger
from gridpost.stores.sqlite.capacity.ledger import wait_for_turn
from gridpost.transports.amqp091 import Amqp091Keeper
from gridpost.transports.loopback import serve_loopback

log = structlog.get_logger(__name__)


@dataclass
class RunningCapacity:
    """What tests and the command line see of a service that is active."""

    operations_port: int
    service: CapacityService
    ledger: SqliteCapacityLedger
    administration: Administration
    keeper: Amqp091Keeper

    async def reconfigure(self, configuration: CapacityConfiguration) -> None:
        """Users, grants, borders and limits count without a restart; addresses need one."""
        settings = configuration.settings()
        await self.ledger.change_market(settings.market)
        await self.service.configure(settings)


@asynccontextmanager
async def running_capacity(
    configuration: CapacityConfiguration, *, clock: Clock | None = None, file: Path | None = None
) -> AsyncIterator[RunningCapacity]:
    """Waits as a standby until the ledger is free; then serves until the block ends."""
    clock = clock or SystemClock()
    folder = configuration.home / "ledger"
    settings = configuration.settings()
    async with AsyncExitStack() as stack:
        log.info("waiting for the ledger", folder=str(folder))
        stack.callback(await wait_for_turn(folder))
        ledger = await asyncio.to_thread(
            SqliteCapacityLedger.open, folder, configuration.code, settings.market, clock.now
        )
        stack.push_async_callback(ledger.close)
        holder = f"{socket.gethostname()}:{os.getpid()}"
        run = await ledger.activate(holder, clock.now())
        service = CapacityService(settings, clock, ledger, CapacityMetrics(CollectorRegistry()))
        await service.open()
        administration = Administration(service)
        keeper = Amqp091Keeper(
            configuration.rabbitmq.client(), service.connected, purpose="service", lost=service.lost
        )
        working = asyncio.create_task(service.run())
        stack.push_async_callback(_ended, working)
        stack.push_async_callback(keeper.close)
        stack.push_async_callback(service.pause)
        await keeper.start()
        port = await stack.enter_async_context(
            serve_loopback(
                operations_app(
                    service.health,
                    service.metrics.registry,
                    service.measure,
                    administration.views(),
                    administration.actions(),
                ),
                configuration.operations.host,
                configuration.operations.port,
            )
        )
        running = RunningCapacity(port, service, ledger, administration, keeper)
        if file is not None:
            watching = watch_file(file, lambda: _reload(running, file))
            stack.push_async_callback(_ended, asyncio.create_task(watching))
        log.info("active", run=run, operations_port=port)
        yield running
        log.info("stopping")


async def run_capacity(file: Path) -> None:
    """`gridpost capacity run`: until SIGTERM or SIGINT asks for an orderly stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    serving = asyncio.create_task(_serve(file, stop))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not serving.done() and not stop.is_set():
        await serving
    if not serving.done():
        # A standby is told to stop while it waits for its turn.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(serving), 30)
        serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


async def _serve(file: Path, stop: asyncio.Event) -> None:
    async with running_capacity(read_capacity_configuration(file), file=file):
        await stop.wait()


async def _reload(running: RunningCapacity, file: Path) -> None:
    await running.reconfigure(read_capacity_configuration(file))


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
