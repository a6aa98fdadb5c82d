"""A broker from its configuration: which classes meet, in which order they start and stop."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from gridpost.assembly.after_restore import say_restored, telling_more
from gridpost.assembly.broker_configuration import (
    COMPONENT,
    BrokerConfiguration,
    read_broker_configuration,
)
from gridpost.assembly.broker_console import SETTINGS, RestrictionFile, ServedBroker
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.configuration_file import ConfigurationFile
from gridpost.assembly.console import console_port, settings_of, whose
from gridpost.assembly.descriptors import allow_connections
from gridpost.assembly.exporter_process import exporting
from gridpost.assembly.file_watch import watch_file
from gridpost.assembly.garbage import spare_collections
from gridpost.assembly.reloading import say_restart_needed, told
from gridpost.assembly.settings_file import SettingsFile
from gridpost.assembly.watching import Watched, Watching, watching
from gridpost.console.broker import PLACES, BrokerConsole
from gridpost.console.frame import Frame
from gridpost.core.certificate import expiring
from gridpost.core.component import ComponentType
from gridpost.core.https import TlsCredentials
from gridpost.core.identifiers import ComponentCode
from gridpost.core.ports import Clock
from gridpost.core.queues import QueueStore
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.broker.broker import Broker
from gridpost.services.broker.context import BrokerContext
from gridpost.services.broker.metrics import BrokerMetrics
from gridpost.services.broker.watching import queue_age, space
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.services.operations import observers
from gridpost.services.operations.app import operations_app
from gridpost.services.operations.journal_follow import RecentTrouble, one_stream
from gridpost.stores.keys.files import FileKeyring
from gridpost.stores.rabbitmq import RabbitQueueStore
from gridpost.stores.sqlite.queues import QueueClientStore, SqliteQueueStore
from gridpost.transports.amqp10 import AmqpServer
from gridpost.transports.amqp10 import TlsCredentials as AmqpCredentials
from gridpost.transports.https import ClientTls, HttpsClient
from gridpost.transports.loopback import serve_loopback
from gridpost.wire.x509 import to_pem

log = structlog.get_logger(__name__)

CONFIGURATION_FILE = "configuration file"
NEED_A_RESTART = (
    "code", "home", "roots", "server.host", "server.port", "operations", "store.kind",
    "store.file_threshold", "store.company", "store.hard_limit", "rabbitmq", "postgres",
    "journal.landing", "journal.export_every", "journal.export_rows", "keys", "console.host",
    "console.port", "drain", "alerts", "clock", "syslog",
)  # fmt: skip
"""Keys that are read when the broker starts and not after that."""


class PemCredentials:
    """What TLS of AMQP shows, from what the directory client chose; the same object while unchanged."""

    def __init__(self, chosen: Callable[[], TlsCredentials]) -> None:
        self._chosen = chosen
        self._last: TlsCredentials | None = None
        self._pem: AmqpCredentials | None = None

    def __call__(self) -> AmqpCredentials:
        current = self._chosen()
        if self._pem is None or current != self._last:
            self._last = current
            self._pem = AmqpCredentials(
                chain_pem=to_pem(*current.chain),
                key_pem=pem_key(current.private_key),
                roots_pem=to_pem(*current.roots),
            )
        return self._pem


@dataclass
class BrokerParts:
    """The parts of one broker before it listens: enough for the command line to register it."""

    configuration: BrokerConfiguration
    clock: Clock
    store: QueueStore
    local: SqliteQueueStore
    """Of this process alone: journal, directory copy and, unless they are shared, the queues."""
    keys: FileKeyring
    client: DirectoryClient
    metrics: BrokerMetrics

    def context(self) -> BrokerContext:
        return BrokerContext(
            self.configuration.settings(),
            self.clock,
            self.store,
            self.metrics,
            self.client.directory,
            self.client.roots,
        )


@dataclass
class RunningBroker:
    """What tests and the command line see of a broker that serves."""

    port: int
    operations_port: int
    broker: Broker
    server: AmqpServer
    parts: BrokerParts
    console_port: int | None = None
    frame: Frame | None = None

    async def reconfigure(
        self, configuration: BrokerConfiguration, by: str = CONFIGURATION_FILE
    ) -> None:
        """503 cl. 10: changed parameters count without a restart; ports and folders need one."""
        if configuration == self.parts.configuration:
            return
        await self.parts.client.configuration.change(configuration.entry(), by=by)
        before, self.parts.configuration = self.parts.configuration, configuration
        self.parts.client.configure(configuration.client_settings())
        if configuration.limits.max_connections > before.limits.max_connections:
            allow_connections(configuration.limits.max_connections)
        self.server.limits = configuration.limits.amqp()
        store = configuration.store
        self.parts.store.set_marks(min_free=store.min_free, max_used=store.max_used)
        self.broker.configure(configuration.settings(), by, *told(before, configuration))
        say_restart_needed(before, configuration, NEED_A_RESTART)
        if self.frame is not None:
            self.frame.reconfigure(settings_of(configuration.console))


@asynccontextmanager
async def broker_parts(
    configuration: BrokerConfiguration, clock: Clock | None = None
) -> AsyncIterator[BrokerParts]:
    """Store, keys and directory client; for `register`, `renew` and `certificates` that is all."""
    clock = clock or SystemClock()
    metrics = BrokerMetrics(CollectorRegistry())
    configuration.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = FileKeyring(configuration.home / "keys", configuration.passphrase())
    local = SqliteQueueStore.open(
        configuration.home / "store",
        configuration.code,
        clock,
        configuration.queue_settings(),
        metrics.committed,
    )
    store = _queue_store(configuration, local, clock, metrics)
    try:
        client = DirectoryClient(
            ComponentCode(configuration.code),
            ComponentType.BROKER,
            store=QueueClientStore(local),
            keys=keys,
            clock=clock,
            callers=lambda credentials: HttpsClient(
                ClientTls(credentials), proxy=lambda: client.context.settings.proxy
            ),
            roots=configuration.trusted_roots,
            settings=configuration.client_settings(),
        )
        await client.open()
        yield BrokerParts(configuration, clock, store, local, keys, client, metrics)
    finally:
        await store.close()


def _queue_store(
    configuration: BrokerConfiguration,
    local: SqliteQueueStore,
    clock: Clock,
    metrics: BrokerMetrics,
) -> QueueStore:
    if configuration.store.kind == "rabbitmq":
        return RabbitQueueStore(
            local, configuration.rabbit_client(), clock, configuration.rabbit_settings()
        )
    section = configuration.postgres
    if configuration.store.kind != "postgres" or section is None:
        return local
    database = section.settings()
    # Only here: the driver is there with gridpost[postgres] only.
    from gridpost.stores.postgres.queues import PostgresQueueSettings, PostgresQueueStore

    settings = PostgresQueueSettings(
        prefetch=section.prefetch,
        window_octets=configuration.queues.window_octets,
        look=section.look,
    )
    store = PostgresQueueStore(local, database, clock, settings, metrics.committed)
    store.set_marks(min_free=configuration.store.min_free, max_used=configuration.store.max_used)
    return store


@asynccontextmanager
async def running_broker(
    configuration: BrokerConfiguration, *, clock: Clock | None = None, file: Path | None = None
) -> AsyncIterator[RunningBroker]:
    """Serves until the block ends; then transfers under way finish, and the store is closed last."""
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(broker_parts(configuration, clock))
        if parts.client.copy.home is None:
            raise Refusal(
                Rule.NOT_ENROLLED,
                f"{configuration.code} is not registered yet: run 'gridpost broker register'",
            )
        await parts.client.configuration.change(configuration.entry(), by=CONFIGURATION_FILE)
        await stack.enter_async_context(
            exporting(configuration.journal, file, parts.metrics.registry)
        )
        broker = Broker(parts.context())
        await broker.open()
        parts.client.copy.on_change(lambda directory, changed: _changed(broker))
        server = AmqpServer(
            container=configuration.code,
            clock=parts.clock,
            limits=configuration.limits.amqp(),
            on_refused=broker.refused,
        )
        stack.push_async_callback(server.drain, configuration.drain.total_seconds())
        for work in (parts.client.run(), broker.run(), broker.doorstep.run()):
            stack.push_async_callback(_ended, asyncio.create_task(work))
        watch = await stack.enter_async_context(_watching(parts, broker))
        operations_port = await stack.enter_async_context(
            serve_loopback(
                operations_app(
                    telling_more(
                        broker.health, configuration.home / "store", watch.health, COMPONENT
                    ),
                    parts.metrics.registry,
                    broker.measure,
                    {
                        "queues": lambda: [view.plain() for view in broker.view()],
                        "connections": lambda: _connections(server),
                    },
                    {
                        "queues/release": lambda body: _release(broker, body),
                        "queues/remove": lambda body: _remove(broker, body),
                    },
                ),
                configuration.operations.host,
                configuration.operations.port,
            )
        )
        port = await server.listen(
            configuration.server.host,
            configuration.server.port,
            broker,
            tls=PemCredentials(parts.client.tls),
        )
        running = RunningBroker(port, operations_port, broker, server, parts)
        if file is not None:
            watching = watch_file(file, lambda: _reload(running, file))
            stack.push_async_callback(_ended, asyncio.create_task(watching))
        say_restored(configuration.home / "store", COMPONENT)
        running.console_port = await stack.enter_async_context(_console(running, file))
        if running.frame is not None:
            running.frame.alerts = watch.alerts
        log.info(
            "listening",
            port=port,
            operations_port=operations_port,
            console_port=running.console_port,
        )
        yield running
        log.info("stopping")


def _watching(parts: BrokerParts, broker: Broker) -> AbstractAsyncContextManager[Watching]:
    configuration, clock, client = parts.configuration, parts.clock, parts.client
    rules = configuration.alerts.rules.thresholds()
    store = QueueClientStore(parts.local)
    who = Watched(
        configuration.code,
        configuration.home,
        clock,
        one_stream(
            parts.local.identity.instance,
            lambda after, limit: store.read(lambda work: work.journal.listed(after, limit)),
        ),
    )
    more = [
        observers.certificates(
            clock,
            lambda: expiring(parts.keys.certificates(), clock.now(), rules.certificate_expiry),
            rules.certificate_expiry,
        ),
        observers.synchronisation(
            clock,
            lambda: client.synchroniser.state.succeeded_at,
            clock.now(),
            rules.no_synchronisation,
        ),
        queue_age(broker, clock, rules.queue_age),
        space(broker),
    ]
    return watching(who, configuration, RecentTrouble(rules.window), more)


async def run_broker(file: Path) -> None:
    """`gridpost broker run`: until SIGTERM or SIGINT asks for an orderly stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    configuration = read_broker_configuration(file)
    allow_connections(configuration.limits.max_connections)
    async with running_broker(configuration, file=file):
        spare_collections()
        await stop.wait()


async def _reload(running: RunningBroker, file: Path) -> None:
    await running.reconfigure(read_broker_configuration(file))


@asynccontextmanager
async def _console(running: RunningBroker, file: Path | None) -> AsyncIterator[int | None]:
    parts = running.parts
    section = parts.configuration.console
    if section is None:
        yield None
        return
    running.frame = Frame(
        whose(parts.configuration.code, "broker"),
        section.settings(),
        parts.clock,
        QueueClientStore(parts.local),
        PLACES,
    )
    served = ServedBroker(running.broker, running.server, parts.client, parts.clock)
    kept = ConfigurationFile(file, read_broker_configuration)
    desk = RestrictionFile(kept, lambda: parts.configuration, running.reconfigure, served)
    settings = SettingsFile(SETTINGS, kept, lambda: parts.configuration, running.reconfigure)
    console = BrokerConsole(running.frame, served, desk, settings)
    async with console_port(section, console.app(), parts.client.tls) as port:
        yield port


def _changed(broker: Broker) -> None:
    """503 cl. 8.6: who is no longer a member does not stay connected."""
    closed = broker.check_sessions()
    if closed:
        log.info("connections closed after a synchronisation", connections=closed)


def _connections(server: AmqpServer) -> list[dict[str, Any]]:
    return [
        {
            "component": view.identity,
            "address": view.address,
            "seconds": round(view.seconds, 1),
            "links": view.links,
            "octets_in": view.octets_in,
            "octets_out": view.octets_out,
            "undecided_octets": view.undecided_octets,
            "until": None if view.until is None else view.until.isoformat(),
        }
        for view in server.connections()
    ]


async def _release(broker: Broker, body: dict[str, Any]) -> dict[str, int]:
    return {"released": await broker.queues.release(str(body.get("queue", "")))}


async def _remove(broker: Broker, body: dict[str, Any]) -> dict[str, str]:
    code = str(body.get("queue", ""))
    await broker.remove_queue(code, str(body.get("by", "")))
    return {"removed": code}


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def pem_key(pkcs8: bytes) -> bytes:
    lines = base64.encodebytes(pkcs8)
    return b"-----BEGIN PRIVATE KEY-----\n" + lines + b"-----END PRIVATE KEY-----\n"
