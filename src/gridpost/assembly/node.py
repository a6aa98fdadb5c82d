"""A MADES 1.1 node from its configuration: which classes meet, in which order they start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry, Gauge

from gridpost.assembly.after_restore import say_restored, telling_more
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.directory_keys import DirectoryKeys
from gridpost.assembly.exporter_process import exporting
from gridpost.assembly.file_watch import watch_file
from gridpost.assembly.node_configuration import (
    COMPONENT,
    NodeConfiguration,
    read_node_configuration,
)
from gridpost.assembly.node_console import NodeDesk, ServedNode, node_console
from gridpost.assembly.node_keys import KeyUpkeep
from gridpost.assembly.node_watching import node_watching
from gridpost.assembly.operations_token import admitting, nobody, write_token
from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.identifiers import component_code
from gridpost.core.journal import RefusalRow
from gridpost.core.node import NODE_MVERSION, LocalState
from gridpost.core.node_ports import NodeUnit
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.component_directory.authority import Authority
from gridpost.services.directory_client.node_soap import NodeSoapClient
from gridpost.services.node.administration import Certify, NodeAdministration
from gridpost.services.node.archive import Archive
from gridpost.services.node.authentication import Authentication
from gridpost.services.node.directory import NodeDirectory
from gridpost.services.node.messaging import Messaging
from gridpost.services.node.operations import NodeOperations
from gridpost.services.node.soap_api import NodeSoapApi
from gridpost.services.node.synchroniser import NodeSynchroniser
from gridpost.services.node.upkeep import NodeUpkeep
from gridpost.services.operations.app import operations_app
from gridpost.services.operations.doorstep import Doorstep
from gridpost.stores.sqlite.node_store import SqliteNodeStore
from gridpost.transports.https import ClientTls, HttpsClient, Limits, ServerTls, serve
from gridpost.transports.loopback import serve_loopback
from gridpost.wire.x509 import Validity, issue, read_certificate

log = structlog.get_logger(__name__)

MVERSION_NOTE = "mversion"


@dataclass
class RunningNode:
    """What tests and the command line see of a node that serves."""

    port: int
    operations_port: int
    directory: NodeDirectory
    synchroniser: NodeSynchroniser
    upkeep: NodeUpkeep
    administration: NodeAdministration
    store: SqliteNodeStore
    api: NodeSoapApi
    keys: KeyUpkeep
    console_port: int | None = None


@asynccontextmanager
async def running_node(
    configuration: NodeConfiguration,
    *,
    clock: Clock | None = None,
    mversion: int = NODE_MVERSION,
    file: Path | None = None,
) -> AsyncIterator[RunningNode]:
    """Serves until the block ends; the people of its console follow the `file`.

    `mversion` lets tests be a node of another time.
    """
    clock = clock or SystemClock()
    keys = DirectoryKeys(configuration)
    if not keys.authorities:
        raise Refusal(
            Rule.USAGE,
            "there is no INTEGRATED CA yet: run 'gridpost node init', have the request signed "
            "with 'gridpost ca sign' and import the certificate",
        )
    settings = configuration.settings(mversion)
    async with AsyncExitStack() as stack:
        store = await asyncio.to_thread(
            SqliteNodeStore.open, configuration.home / "store", configuration.code
        )
        stack.push_async_callback(store.close)
        registry = CollectorRegistry()
        await stack.enter_async_context(exporting(configuration.journal, file, registry))
        await _say_version(store, mversion)
        authority = Authority(keys.issuers(), configuration.directory.certificate_validity)
        directory = NodeDirectory(store, clock, settings)
        await directory.load()
        key_upkeep = KeyUpkeep(keys, authority, directory, clock, configuration.directory.renewal)
        await key_upkeep.look()
        credentials = keys.credentials(clock.now)
        authentication = Authentication(directory, clock)
        operations = NodeOperations(
            clock, directory, authentication, Messaging(store, clock, directory)
        )
        api = NodeSoapApi(operations, settings, store, clock)
        client = NodeSoapClient(
            HttpsClient(ClientTls(credentials), proxy=configuration.directory.proxy)
        )
        synchroniser = NodeSynchroniser(store, clock, directory, client)
        upkeep = NodeUpkeep(store, clock, settings)
        administration = NodeAdministration(
            store, clock, directory, synchroniser, upkeep,
            Archive(store, clock, configuration.home / "archive"),
            _certifier(authority, clock), _external,
        )  # fmt: skip
        doorstep = _doorstep(store, clock, api)
        server = await stack.enter_async_context(
            serve(
                api,
                configuration.server.host,
                configuration.server.port,
                ServerTls(credentials),
                Limits(
                    max_connections=configuration.server.max_connections,
                    max_body=configuration.transfers.max_request,
                    body_seconds=300.0,
                ),
                clock=clock.now,
                on_refused=lambda refusal, at: doorstep.refused(refusal, at.rpartition(":")[0]),
            )
        )
        watch = await stack.enter_async_context(
            node_watching(configuration, store, clock, keys, directory, synchroniser, upkeep)
        )
        measure = _figures(store, api, registry)
        token = await asyncio.to_thread(write_token, configuration.home)
        operations_port = await stack.enter_async_context(
            serve_loopback(
                operations_app(
                    telling_more(
                        administration.health, configuration.home / "store", watch.health, COMPONENT
                    ),
                    registry,
                    measure,
                    administration.views(),
                    administration.actions(),
                    admit=admitting(token, nobody),
                ),
                configuration.operations.host,
                configuration.operations.port,
            )
        )
        console_port = await stack.enter_async_context(
            node_console(
                configuration.console,
                ServedNode(store, directory, synchroniser),
                NodeDesk(directory, synchroniser, administration, lambda: keys.authorities),
                store,
                clock,
                configuration.code,
                credentials,
                file,
                watch.alerts,
            )
        )
        for work in (synchroniser.run(), upkeep.run(), key_upkeep.run(), doorstep.run()):
            stack.push_async_callback(_ended, asyncio.create_task(work))
        if file is not None:
            watched = file

            async def reload() -> None:
                """Cl. 3.15.1: ports, folders and alerts need a restart, everything else does not."""
                read = read_node_configuration(watched)
                changed = read.settings(mversion)
                if changed.code != settings.code:
                    raise Refusal(Rule.USAGE, f"this node is {settings.code}, and remains so")
                read.trusted_roots()  # refuses what cannot be read
                directory.settings = upkeep.settings = api.settings = changed
                authority.validity = read.directory.certificate_validity
                await key_upkeep.configure(read, read.directory.renewal)

            watching = asyncio.create_task(watch_file(watched, reload))
            stack.push_async_callback(_ended, watching)
        say_restored(configuration.home / "store", COMPONENT)
        log.info(
            "listening",
            port=server.port,
            operations_port=operations_port,
            console_port=console_port,
        )
        yield RunningNode(
            server.port,
            operations_port,
            directory,
            synchroniser,
            upkeep,
            administration,
            store,
            api,
            key_upkeep,
            console_port,
        )
        log.info("stopping")


async def run_node(file: Path) -> None:
    """`gridpost node run`: until SIGTERM or SIGINT asks for an orderly stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running_node(read_node_configuration(file), file=file):
        await stop.wait()


async def _say_version(store: SqliteNodeStore, mversion: int) -> None:
    """Cl. 4.2.2: after another version nobody is known; tokens never outlive a process."""
    before = await store.read(lambda unit: unit.note(MVERSION_NOTE))
    if before and before != str(mversion):
        log.info("another MADES version: all endpoints ask anew", before=before, after=mversion)
    await store.run(lambda unit: unit.set_note(MVERSION_NOTE, str(mversion)))


def _certifier(authority: Authority, clock: Clock) -> Certify:
    async def certify(code: str, kind: CertificateKind, spki: bytes) -> Certificate:
        now = clock.now()
        issuer = authority.current(now)
        der = await asyncio.to_thread(
            issue, kind, component_code(code), spki, issuer,
            Validity.starting(now, authority.validity),
        )  # fmt: skip
        return read_certificate(der, kind)

    return certify


def _external(der: bytes, kind: CertificateKind, at: datetime) -> Certificate:
    found = read_certificate(der, kind)
    if found.not_after <= at:
        raise Refusal(Rule.CERTIFICATE_EXPIRED, f"'{found.certificate_id}' has expired")
    return found


def _doorstep(store: SqliteNodeStore, clock: Clock, api: NodeSoapApi) -> Doorstep:
    async def keep(rows: Sequence[RefusalRow]) -> None:
        def write(unit: NodeUnit) -> None:
            for row in rows:
                unit.journal.append(row)

        await store.run(write)

    def count(rule: Rule) -> None:
        api.counts["connection", rule.code.value] += 1

    return Doorstep(keep, clock, count)


def _figures(
    store: SqliteNodeStore, api: NodeSoapApi, registry: CollectorRegistry
) -> Callable[[], Awaitable[None]]:
    messages = Gauge(
        "gridpost_node_messages", "Messages in the box, by state.", ["state"], registry=registry
    )
    requests = Gauge(
        "gridpost_node_requests",
        "Requests since the start, by operation and outcome.",
        ["operation", "outcome"],
        registry=registry,
    )

    async def measure() -> None:
        counts = await store.read(lambda unit: unit.counts())
        for state in LocalState:
            messages.labels(state.value).set(counts.get(state, 0))
        for (operation, outcome), count in api.counts.items():
            requests.labels(operation, outcome).set(count)

    return measure


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
