"""An endpoint from its configuration: which classes meet, in which order they start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from gridpost.assembly.after_restore import say_restored, telling_more
from gridpost.assembly.broker import PemCredentials
from gridpost.assembly.channels import FolderChannel, amqp_channel
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.console import settings_of
from gridpost.assembly.endpoint_configuration import (
    EndpointConfiguration,
    read_endpoint_configuration,
)
from gridpost.assembly.endpoint_keys import EndpointKeys, open_keys
from gridpost.assembly.endpoint_parts import EndpointCore
from gridpost.assembly.endpoint_ports import (
    amqp_limits,
    dialler,
    serve_api,
    serve_console,
    serve_direct,
)
from gridpost.assembly.exporter_process import exporting
from gridpost.assembly.file_watch import watch_file
from gridpost.assembly.garbage import keep_what_is_made
from gridpost.assembly.operations_token import admitting, nobody, write_token
from gridpost.assembly.watching import Watched, Watching, shared_cursors, watching
from gridpost.core.component import ComponentType
from gridpost.core.identifiers import ComponentCode
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.services.endpoint.old_network.collecting import Collecting
from gridpost.services.endpoint.service import Duty, EndpointService
from gridpost.services.endpoint.watching import home_node, waiting
from gridpost.services.operations import observers
from gridpost.services.operations.app import operations_app
from gridpost.services.operations.journal_follow import RecentTrouble, one_stream
from gridpost.stores.keys.off_loop import KeyPool, key_pool
from gridpost.stores.keys.with_token import TokenCabinet
from gridpost.stores.sqlite import SqliteStore
from gridpost.transports.https import (
    ClientTls,
    HttpsClient,
    client_chain,
)
from gridpost.transports.loopback import serve_loopback

if TYPE_CHECKING:
    from gridpost.stores.postgres.endpoint import PostgresEndpointStore

log = structlog.get_logger(__name__)

CONFIGURATION_FILE = "configuration file"


@dataclass
class EndpointParts:
    """The parts of one endpoint before it runs: enough for the command line to register it."""

    configuration: EndpointConfiguration
    clock: Clock
    store: SqliteStore | PostgresEndpointStore
    keys: EndpointKeys
    client: DirectoryClient


@dataclass
class RunningEndpoint:
    """What tests and the command line see of an endpoint that runs."""

    core: EndpointCore
    parts: EndpointParts
    api_port: int | None
    direct_port: int | None
    operations_port: int
    service: asyncio.Task[None]
    console_port: int | None = None


@asynccontextmanager
async def endpoint_parts(
    configuration: EndpointConfiguration,
    clock: Clock | None = None,
    pool: KeyPool | None = None,
) -> AsyncIterator[EndpointParts]:
    """Store, keys and directory client; for `register`, `renew` and `certificates` that is all."""
    clock = clock or SystemClock()
    configuration.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        store = await asyncio.to_thread(_open_store, configuration)
        stack.push_async_callback(store.close)
        keys = await asyncio.to_thread(open_keys, configuration, pool)
        if isinstance(keys, TokenCabinet):
            stack.callback(keys.close)
        client = DirectoryClient(
            ComponentCode(configuration.code),
            ComponentType.ENDPOINT,
            store=store,
            keys=keys,
            clock=clock,
            callers=lambda credentials: HttpsClient(
                ClientTls(credentials), proxy=lambda: client.context.settings.proxy
            ),
            roots=configuration.trusted_roots,
            settings=configuration.client_settings(),
        )
        await client.open()
        yield EndpointParts(configuration, clock, store, keys, client)


@asynccontextmanager
async def running_endpoint(
    configuration: EndpointConfiguration, *, clock: Clock | None = None, file: Path | None = None
) -> AsyncIterator[RunningEndpoint]:
    """Runs until the block ends: channels close first, then transfers finish, then the store."""
    async with AsyncExitStack() as stack:
        pool = stack.enter_context(key_pool())
        parts = await stack.enter_async_context(endpoint_parts(configuration, clock, pool))
        client = parts.client
        alone = client.copy.home is None
        if alone and configuration.old_network is None:
            raise Refusal(
                Rule.NOT_ENROLLED,
                f"{configuration.code} is not registered yet: run 'gridpost endpoint register'",
            )
        if not alone:
            await client.configuration.change(configuration.entry(), by=CONFIGURATION_FILE)
        credentials = PemCredentials(client.tls)
        limits = amqp_limits(configuration)
        dial = dialler(configuration, credentials, limits)
        core = EndpointCore(
            configuration,
            parts.store,
            parts.keys,
            parts.clock,
            client,
            dial,
            client_chain,
            shared=configuration.postgres is not None,
        )
        if core.old is not None:
            stack.push_async_callback(core.old.close)
        await core.operating.open()
        await stack.enter_async_context(exporting(configuration.journal, file, core.registry))
        client.copy.on_change(lambda _directory, _changed: core.directory_changed())
        service = EndpointService(
            [Duty("lines", core.lines.run), Duty("dispatch", core.dispatcher.run)]
        )
        once = _once(service, parts, core)
        if not alone:
            once("directory", [Duty("directory", client.run)])
        if core.old is not None:
            collecting = Collecting(core.old, alone=alone)
            once("old network", [Duty("old network", collecting.run)])
        once("expiry", [Duty("expiry", core.upkeep.watch_expiry)])
        once("retention", [Duty("retention", core.upkeep.tidy)])
        stack.push_async_callback(core.lines.close)
        if core.amqp is not None:
            once("notices", [Duty("notices", core.amqp.tidy)])
        if configuration.folders is not None:
            folders = FolderChannel(configuration.folders, core)
            stack.callback(folders.close)
            for doubt in folders.check():
                log.warning("shared folder", reason=doubt)
            once("folders", folders.duties())
            core.views["folders"] = folders.view
        task = asyncio.create_task(service.run())
        stack.push_async_callback(_ended, task)
        stack.push_async_callback(core.inbound.drain, configuration.drain.total_seconds())
        stack.push_async_callback(core.lines.hush)
        direct_port = await stack.enter_async_context(
            serve_direct(configuration, core, parts.clock, credentials, limits)
        )
        watch = await stack.enter_async_context(_watching(parts, core))
        token = await asyncio.to_thread(write_token, configuration.home)
        operations_port = await stack.enter_async_context(
            serve_loopback(
                operations_app(
                    telling_more(core.health, configuration.home / "store", watch.health),
                    core.registry,
                    core.measure,
                    {"connections": core.connections},
                    {"archive": core.archive_now},
                    deep=core.probe.health,
                    admit=admitting(token, nobody),
                ),
                configuration.operations.host,
                configuration.operations.port,
            )
        )
        amqp_port = await stack.enter_async_context(
            amqp_channel(configuration, core.amqp, parts.clock)
        )
        api_port = await stack.enter_async_context(serve_api(configuration, core))
        frame, shown_port = await stack.enter_async_context(
            serve_console(configuration, core, client, parts.store, parts.keys.certificates, file)
        )
        if frame is not None:
            frame.alerts = watch.alerts
        stack.callback(core.events.close)
        if file is not None:

            async def reload() -> None:
                changed = read_endpoint_configuration(file)
                await core.reconfigure(changed, CONFIGURATION_FILE)
                if frame is not None:
                    frame.reconfigure(settings_of(changed.console))

            watching = asyncio.create_task(watch_file(file, reload))
            stack.push_async_callback(_ended, watching)
        say_restored(configuration.home / "store")
        log.info(
            "listening",
            api_port=api_port,
            amqp_port=amqp_port,
            direct_port=direct_port,
            operations_port=operations_port,
            console_port=shown_port,
        )
        yield RunningEndpoint(core, parts, api_port, direct_port, operations_port, task, shown_port)
        log.info("stopping")


def _open_store(configuration: EndpointConfiguration) -> SqliteStore | PostgresEndpointStore:
    if configuration.postgres is None:
        return SqliteStore.open(configuration.home / "store", configuration.code)
    # Only here: the driver is there with gridpost[postgres] only.
    from gridpost.stores.postgres.endpoint import PostgresEndpointStore

    return PostgresEndpointStore.open(configuration.postgres.settings(), configuration.code)


def _once(
    service: EndpointService, parts: EndpointParts, core: EndpointCore
) -> Callable[[str, Sequence[Duty]], None]:
    """Where duties go that must not run in two processes at a time."""
    if parts.configuration.postgres is None:

        def alone(name: str, duties: Sequence[Duty]) -> None:
            for duty in duties:
                service.add(duty)

        return alone
    from gridpost.assembly.endpoint_processes import EndpointProcess
    from gridpost.stores.postgres.endpoint import PostgresEndpointStore

    assert isinstance(parts.store, PostgresEndpointStore)
    process = EndpointProcess(parts.store, core, parts.client, parts.keys)
    for duty in process.duties():
        service.add(duty)
    return process.once


def _watching(parts: EndpointParts, core: EndpointCore) -> AbstractAsyncContextManager[Watching]:
    configuration, clock, store = parts.configuration, parts.clock, parts.store
    rules = configuration.alerts.rules.thresholds()
    recent = RecentTrouble(rules.window)

    def expired(messages: int) -> None:
        core.metrics.expired(messages)
        recent.expired_now(clock.now(), messages)

    core.upkeep.on_expired = expired
    who = Watched(
        configuration.code,
        configuration.home,
        clock,
        one_stream(
            store.identity.instance,
            lambda after, limit: store.read(lambda work: work.journal.listed(after, limit)),
        ),
        shared_cursors(configuration.postgres),
    )
    more = [
        observers.certificates(clock, core.upkeep.ending, rules.certificate_expiry),
        waiting(core.context, rules.waiting),
    ]
    if parts.client.copy.home is not None:
        more.append(
            observers.synchronisation(
                clock,
                lambda: parts.client.synchroniser.state.succeeded_at,
                clock.now(),
                rules.no_synchronisation,
            )
        )
    if core.old is not None:
        more.append(home_node(core.old, clock.now(), rules.no_synchronisation))
    return watching(who, configuration, recent, more)


async def run_endpoint(file: Path) -> None:
    """`gridpost endpoint run`: until SIGTERM or SIGINT asks for an orderly stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running_endpoint(read_endpoint_configuration(file), file=file) as running:
        keep_what_is_made()
        waiting = asyncio.create_task(stop.wait())
        # A duty that ends is a programming error: it must end the process, not hide.
        await asyncio.wait([waiting, running.service], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if running.service.done():
            running.service.result()


def certificates_of(file: Path) -> list[dict[str, Any]]:
    """What `gridpost endpoint certificates` shows."""
    configuration = read_endpoint_configuration(file)
    ring = open_keys(configuration)
    now = datetime.now(UTC)
    return [
        {
            "kind": c.kind.value,
            "id": c.certificate_id,
            "not_before": c.not_before.isoformat(),
            "not_after": c.not_after.isoformat(),
            "valid": c.valid_at(now),
        }
        for c in ring.certificates()
    ]


async def _ended(task: Awaitable[None]) -> None:
    assert isinstance(task, asyncio.Task)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
