"""A capacity service from its configuration: its turn, its ledger, its broker, and what operators see."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from gridpost.assembly.after_restore import telling_more
from gridpost.assembly.capacity_configuration import (
    COMPONENT,
    CapacityConfiguration,
    read_capacity_configuration,
)
from gridpost.assembly.capacity_operating import (
    api_port,
    console,
    console_frame,
    halt_after_restore,
    standing_by,
    watch,
)
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.console import settings_of
from gridpost.assembly.exporter_process import exporting
from gridpost.assembly.file_watch import watch_file
from gridpost.assembly.garbage import keep_what_is_made
from gridpost.assembly.operations_token import admitting, write_token
from gridpost.console.frame import Frame
from gridpost.core.capacity import Market
from gridpost.core.capacity_ledger import CapacityLedger
from gridpost.core.ports import Clock
from gridpost.services.capacity.administration import Administration
from gridpost.services.capacity.api import AdministrationApi
from gridpost.services.capacity.metrics import CapacityMetrics
from gridpost.services.capacity.service import CapacityService
from gridpost.services.operations.administrators import Administrators
from gridpost.services.operations.app import operations_app
from gridpost.stores.sqlite.capacity import SqliteCapacityLedger
from gridpost.stores.sqlite.capacity.ledger import wait_for_turn
from gridpost.transports.amqp091 import Amqp091Keeper
from gridpost.transports.loopback import serve_loopback

log = structlog.get_logger(__name__)

SWITCH_INTERVAL = 0.0005


@dataclass
class RunningCapacity:
    """What tests and the command line see of a service that is active."""

    operations_port: int
    service: CapacityService
    ledger: CapacityLedger
    administration: Administration
    keeper: Amqp091Keeper
    api: AdministrationApi
    frame: Frame | None
    lost: asyncio.Future[None]
    """Done when another service may have the turn by now: this one has to end."""
    api_port: int | None = None
    console_port: int | None = None

    async def reconfigure(self, configuration: CapacityConfiguration) -> None:
        """Users, grants, borders and limits count without a restart; addresses need one."""
        settings = configuration.settings()
        await self.ledger.change_market(settings.market)
        await self.service.configure(settings)
        if configuration.administration is not None:
            self.api.administrators.replace(configuration.administration.tokens)
        if self.frame is not None:
            self.frame.reconfigure(settings_of(configuration.console))


@asynccontextmanager
async def running_capacity(
    configuration: CapacityConfiguration, *, clock: Clock | None = None, file: Path | None = None
) -> AsyncIterator[RunningCapacity]:
    """Waits as a standby until the ledger is free; then serves until the block ends."""
    clock = clock or SystemClock()
    settings = configuration.settings()
    async with AsyncExitStack() as stack:
        holder = f"{socket.gethostname()}:{os.getpid()}"
        ledger, lost = await stack.enter_async_context(
            _turn(configuration, settings.market, clock, holder)
        )
        service = CapacityService(settings, clock, ledger, CapacityMetrics(CollectorRegistry()))
        await stack.enter_async_context(
            exporting(configuration.journal, file, service.metrics.registry)
        )
        store = configuration.home / "store"
        await halt_after_restore(store, ledger, service, clock.now())
        run = await ledger.activate(holder, clock.now())
        await service.open()
        administration = Administration(service)
        section = configuration.administration
        api = AdministrationApi(
            administration, Administrators({} if section is None else section.tokens)
        )
        frame = console_frame(configuration, clock, ledger)
        keeper = Amqp091Keeper(
            configuration.rabbitmq.client(), service.connected, purpose="service", lost=service.lost
        )
        working = asyncio.create_task(service.run())
        stack.push_async_callback(_ended, working)
        stack.push_async_callback(keeper.close)
        stack.push_async_callback(service.pause)
        await keeper.start()
        watched = await stack.enter_async_context(watch(configuration, clock, ledger, service))
        port = await stack.enter_async_context(
            serve_loopback(
                operations_app(
                    telling_more(service.health, store, watched.health, COMPONENT),
                    service.metrics.registry,
                    service.measure,
                    administration.views(),
                    {**administration.actions(), **administration.questions()},
                    admit=admitting(write_token(configuration.home), api.admit),
                ),
                configuration.operations.host,
                configuration.operations.port,
            )
        )
        running = RunningCapacity(port, service, ledger, administration, keeper, api, frame, lost)
        running.api_port = await stack.enter_async_context(api_port(configuration, api))
        if frame is not None:
            frame.alerts = watched.alerts
        running.console_port = await stack.enter_async_context(
            console(configuration, frame, administration, service)
        )
        if file is not None:
            watching = watch_file(file, lambda: _reload(running, file))
            stack.push_async_callback(_ended, asyncio.create_task(watching))
        log.info("active", run=run, operations_port=port, console_port=running.console_port)
        yield running
        log.info("stopping")


@asynccontextmanager
async def _turn(
    configuration: CapacityConfiguration, market: Market, clock: Clock, holder: str
) -> AsyncIterator[tuple[CapacityLedger, asyncio.Future[None]]]:
    """The ledger, once it is our turn, and the moment at which the turn is lost."""
    async with AsyncExitStack() as stack:
        ledger: CapacityLedger
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if configuration.postgres is None:
            folder = configuration.home / "store"
            log.info("waiting for the ledger", folder=str(folder))
            stack.callback(await standing_by(configuration, wait_for_turn(folder)))
            ledger = await asyncio.to_thread(
                SqliteCapacityLedger.open, folder, configuration.code, market, clock.now
            )
        else:
            # Only here: the driver is there with gridpost[postgres] only.
            from gridpost.stores.postgres import capacity

            place, code = configuration.postgres.settings(), configuration.code
            log.info("waiting for the ledger", database=place.place())
            turn = await standing_by(configuration, capacity.wait_for_turn(place, code, holder))
            stack.push_async_callback(turn.release)
            lost = turn.lost
            ledger = await asyncio.to_thread(
                capacity.PostgresCapacityLedger.open, place, code, market, clock.now, holder
            )
        stack.push_async_callback(ledger.close)
        yield ledger, lost


async def run_capacity(file: Path) -> None:
    """`gridpost capacity run`: until SIGTERM or SIGINT asks for an orderly stop."""
    # The thread that commits and the loop hand works to each other: neither waits long for its turn.
    sys.setswitchinterval(SWITCH_INTERVAL)
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
    while not stop.is_set():
        async with running_capacity(read_capacity_configuration(file), file=file) as running:
            keep_what_is_made()
            stopping = asyncio.create_task(stop.wait())
            ends: set[asyncio.Future[Any]] = {stopping, running.lost}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
        if not stop.is_set():
            log.warning("the turn was lost: standing by")


async def _reload(running: RunningCapacity, file: Path) -> None:
    await running.reconfigure(read_capacity_configuration(file))


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
