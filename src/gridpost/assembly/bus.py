"""A bus from its configuration: its store, its handlers, its broker, and what operators see."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry

from gridpost.assembly.bus_configuration import BusConfiguration, read_bus_configuration
from gridpost.assembly.clock import SystemClock
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.metrics import BusMetrics
from gridpost.services.bus.reference import register_reference
from gridpost.services.bus.service import BusService
from gridpost.services.operations.app import operations_app
from gridpost.stores.sqlite.bus import SqliteBusLedger
from gridpost.transports.amqp091 import Amqp091Keeper
from gridpost.transports.loopback import serve_loopback

log = structlog.get_logger(__name__)


@dataclass
class RunningBus:
    """What tests and the command line see of a bus that serves."""

    operations_port: int
    service: BusService
    ledger: SqliteBusLedger
    keeper: Amqp091Keeper


@asynccontextmanager
async def running_bus(
    configuration: BusConfiguration, *, clock: Clock | None = None
) -> AsyncIterator[RunningBus]:
    """Several processes with one home share its store and divide the requests among them."""
    clock = clock or SystemClock()
    settings = configuration.settings()
    async with AsyncExitStack() as stack:
        ledger = await asyncio.to_thread(
            SqliteBusLedger.open, configuration.home / "store", configuration.code
        )
        stack.push_async_callback(ledger.close)
        service = BusService(settings, ledger, clock, BusMetrics(CollectorRegistry()))
        if configuration.reference_handlers:
            register_reference(service.handlers, clock.now)
        for name in configuration.handlers:
            _register(name, service)
        keeper = Amqp091Keeper(
            configuration.rabbitmq.client(), service.connected, purpose="bus", lost=service.lost
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
                    {"interface": service.interface},
                ),
                configuration.operations.host,
                configuration.operations.port,
            )
        )
        log.info("serving", operations_port=port, instance=service.instance)
        yield RunningBus(port, service, ledger, keeper)
        log.info("stopping")


async def run_bus(file: Path) -> None:
    """`gridpost bus run`: until SIGTERM or SIGINT asks for an orderly stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running_bus(read_bus_configuration(file)):
        await stop.wait()


def _register(name: str, service: BusService) -> None:
    try:
        module = import_module(name)
    except ImportError as error:
        raise Refusal(Rule.USAGE, f"the handlers '{name}' cannot be imported: {error}") from None
    register = getattr(module, "register", None)
    if not callable(register):
        raise Refusal(Rule.USAGE, f"'{name}' has no function register(service)")
    register(service)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
