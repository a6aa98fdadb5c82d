"""A bus from its configuration: its store, its handlers, its broker, and what operators see."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from gridpost.assembly.after_restore import say_restored, telling_more
from gridpost.assembly.bus_bridge import MadesBridge
from gridpost.assembly.bus_claims import FolderClaims
from gridpost.assembly.bus_configuration import (
    COMPONENT,
    BusConfiguration,
    read_bus_configuration,
)
from gridpost.assembly.bus_console import ServedBus, bus_console
from gridpost.assembly.bus_operating import AnyLedger, bus_watch
from gridpost.assembly.bus_parts import (
    caller,
    forwarder,
    sources,
    subscribers,
    web_post,
    web_services,
)
from gridpost.assembly.bus_security import SoapSecurity
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.exporter_process import exporting
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.door import WebDoor
from gridpost.services.bus.metrics import BusMetrics
from gridpost.services.bus.reference import register_reference
from gridpost.services.bus.service import BusService
from gridpost.services.bus.sources import SourceReader
from gridpost.services.bus.tables import TableBox
from gridpost.services.bus.watching import keep_journal
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
    ledger: AnyLedger
    keeper: Amqp091Keeper
    web_port: int = 0
    console_port: int | None = None


def open_ledger(configuration: BusConfiguration) -> AnyLedger:
    if configuration.postgres is None:
        return SqliteBusLedger.open(configuration.home / "store", configuration.code)
    # The driver is there with gridpost[postgres] only.
    from gridpost.stores.postgres.bus import PostgresBusLedger

    return PostgresBusLedger.open(configuration.postgres.settings(), configuration.code)


@asynccontextmanager
async def running_bus(
    configuration: BusConfiguration, *, clock: Clock | None = None, file: Path | None = None
) -> AsyncIterator[RunningBus]:
    """Several processes with one home share its store and divide the requests among them."""
    clock = clock or SystemClock()
    settings = configuration.settings()
    async with AsyncExitStack() as stack:
        ledger = await asyncio.to_thread(open_ledger, configuration)
        stack.push_async_callback(ledger.close)
        registry = CollectorRegistry()
        await stack.enter_async_context(exporting(configuration.journal, file, registry))
        post = web_post(configuration)
        stack.push_async_callback(post.close)
        security = None
        if configuration.web is not None:
            security = SoapSecurity(configuration.web.security, clock)
        calls = caller(post, security)
        service = BusService(settings, ledger, clock, BusMetrics(registry), web=calls.call)
        calls.heard = service.heard
        door = WebDoor(service)
        bridge = None
        if configuration.mades is not None:
            bridge = MadesBridge(configuration.mades, service, door)
            stack.push_async_callback(bridge.close)
        service.forwarder = forwarder(configuration, service, calls, bridge)
        service.post.returned = service.forwarder.returned

        def table(name: str) -> TableBox:
            return TableBox(ledger, name)

        service.subscribers = subscribers(configuration, post, calls, table)
        claims = None
        if configuration.claims is not None:
            claims = FolderClaims(configuration.claims, configuration.limits.message_bytes, clock)
            service.post.claims = claims
        if configuration.reference_handlers:
            relations = configuration.relations("EndDeviceControls")
            register_reference(service.handlers, clock.now, relations)
        for name in configuration.handlers:
            _register(name, service)
        keeper = Amqp091Keeper(
            configuration.rabbitmq.client(), service.connected, purpose="bus", lost=service.lost
        )
        service.waiting_for = lambda: keeper.why.message if keeper.why else "RabbitMQ"
        kept = configuration.journal
        duties: list[Callable[[], Coroutine[Any, Any, None]]] = [
            service.run,
            lambda: keep_journal(service, kept.retention, kept.keep_exported),
        ]
        duties += [SourceReader(source, door).run for source in sources(configuration, table)]
        if bridge is not None:
            duties.append(bridge.run)
        if claims is not None:
            duties.append(claims.run)
        for duty in duties:
            stack.push_async_callback(_ended, asyncio.create_task(duty()))
        stack.push_async_callback(keeper.close)
        stack.push_async_callback(service.pause)
        watch = await stack.enter_async_context(
            bus_watch(configuration, clock, ledger, service, lambda: keeper.connection)
        )
        store = configuration.home / "store"
        port = await stack.enter_async_context(
            serve_loopback(
                operations_app(
                    telling_more(service.health, store, watch.health, COMPONENT),
                    service.metrics.registry,
                    service.measure,
                    {"interface": service.interface, "instances": service.living},
                ),
                configuration.operations.host,
                configuration.operations.port,
            )
        )
        await keeper.start(patience=configuration.rabbitmq.patience.total_seconds())
        web_port = await stack.enter_async_context(
            web_services(configuration, service, door, security)
        )
        say_restored(store, COMPONENT)
        served = ServedBus(configuration, service, ledger, watch)
        shown = await stack.enter_async_context(
            bus_console(configuration, served, ledger, clock, file)
        )
        log.info(
            "serving",
            operations_port=port,
            web_port=web_port,
            console_port=shown,
            instance=service.instance,
        )
        yield RunningBus(port, service, ledger, keeper, web_port, shown)
        log.info("stopping")


async def run_bus(file: Path) -> None:
    """`gridpost bus run`: until SIGTERM or SIGINT asks for an orderly stop."""
    stop, serving = asyncio.Event(), False
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def ask_to_stop() -> None:
        stop.set()
        if not serving and task is not None:
            task.cancel()  # it may wait for RabbitMQ for long

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask_to_stop)
    try:
        async with running_bus(read_bus_configuration(file), file=file):
            serving = True
            await stop.wait()
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        log.info("stopped before it served")


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
