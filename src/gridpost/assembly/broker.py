"""A broker from its configuration: which classes meet, in which order they start and stop."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from gridpost.assembly.broker_configuration import (
    BrokerConfiguration,
    read_broker_configuration,
)
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.file_watch import watch_file
from gridpost.core.component import ComponentType
from gridpost.core.https import TlsCredentials
from gridpost.core.identifiers import ComponentCode
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.broker.broker import Broker
from gridpost.services.broker.context import BrokerContext
from gridpost.services.broker.metrics import BrokerMetrics
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.services.operations.app import operations_app
from gridpost.stores.keys.files import FileKeyring
from gridpost.stores.sqlite.queues import QueueClientStore, SqliteQueueStore
from gridpost.transports.amqp10 import AmqpServer
from gridpost.transports.amqp10 import TlsCredentials as AmqpCredentials
from gridpost.transports.https import ClientTls, HttpsClient
from gridpost.transports.loopback import serve_loopback
from gridpost.wire.x509 import to_pem

log = structlog.get_logger(__name__)

CONFIGURATION_FILE = "configuration file"


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
    store: SqliteQueueStore
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

    async def reconfigure(self, configuration: BrokerConfiguration) -> None:
        """503 cl. 10: changed parameters count without a restart; ports and folders need one."""
        await self.parts.client.configuration.change(configuration.entry(), by=CONFIGURATION_FILE)
        self.parts.configuration = configuration
        self.server.limits = configuration.limits.amqp()
        store = configuration.store
        self.parts.store.set_marks(min_free=store.min_free, max_used=store.max_used)
        self.broker.configure(configuration.settings(), CONFIGURATION_FILE)


@asynccontextmanager
async def broker_parts(
    configuration: BrokerConfiguration, clock: Clock | None = None
) -> AsyncIterator[BrokerParts]:
    """Store, keys and directory client; for `register`, `renew` and `certificates` that is all."""
    clock = clock or SystemClock()
    metrics = BrokerMetrics(CollectorRegistry())
    configuration.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = FileKeyring(configuration.home / "keys", configuration.passphrase())
    store = SqliteQueueStore.open(
        configuration.home / "store",
        configuration.code,
        clock,
        configuration.queue_settings(),
        metrics.committed,
    )
    try:
        client = DirectoryClient(
            ComponentCode(configuration.code),
            ComponentType.BROKER,
            store=QueueClientStore(store),
            keys=keys,
            clock=clock,
            callers=lambda credentials: HttpsClient(
                ClientTls(credentials), proxy=configuration.synchronisation.proxy
            ),
            roots=configuration.trusted_roots,
            settings=configuration.client_settings(),
        )
        await client.open()
        yield BrokerParts(configuration, clock, store, client, metrics)
    finally:
        await store.close()


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
        broker = Broker(parts.context())
        await broker.open()
        parts.client.copy.on_change(lambda directory, changed: _changed(broker))
        server = AmqpServer(
            container=configuration.code, clock=parts.clock, limits=configuration.limits.amqp()
        )
        stack.push_async_callback(server.drain, configuration.drain.total_seconds())
        for work in (parts.client.run(), broker.run()):
            stack.push_async_callback(_ended, asyncio.create_task(work))
        operations_port = await stack.enter_async_context(
            serve_loopback(
                operations_app(
                    broker.health,
                    parts.metrics.registry,
                    broker.measure,
                    {
                        "queues": lambda: [view.plain() for view in broker.view()],
                        "connections": lambda: _connections(server),
                    },
                    {"queues/release": lambda body: _release(broker, body)},
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
        log.info("listening", port=port, operations_port=operations_port)
        yield running
        log.info("stopping")


async def run_broker(file: Path) -> None:
    """`gridpost broker run`: until SIGTERM or SIGINT asks for an orderly stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running_broker(read_broker_configuration(file), file=file):
        await stop.wait()


async def _reload(running: RunningBroker, file: Path) -> None:
    await running.reconfigure(read_broker_configuration(file))


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


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def pem_key(pkcs8: bytes) -> bytes:
    lines = base64.encodebytes(pkcs8)
    return b"-----BEGIN PRIVATE KEY-----\n" + lines + b"-----END PRIVATE KEY-----\n"
