"""An endpoint from its configuration: which classes meet, in which order they start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from gridpost.assembly.after_restore import say_restored, telling_more
from gridpost.assembly.broker import PemCredentials
from gridpost.assembly.channels import FolderChannel, amqp_channel
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.console import console_port, settings_of
from gridpost.assembly.directory_configuration import read_certificates
from gridpost.assembly.endpoint_configuration import (
    ApiSection,
    EndpointConfiguration,
    read_endpoint_configuration,
)
from gridpost.assembly.endpoint_console import endpoint_console
from gridpost.assembly.endpoint_parts import EndpointCore
from gridpost.assembly.file_watch import watch_file
from gridpost.assembly.watching import Watched, Watching, watching
from gridpost.console.frame import Frame
from gridpost.core.channels import Channel
from gridpost.core.component import ComponentType
from gridpost.core.https import TlsCredentials
from gridpost.core.identifiers import ComponentCode
from gridpost.core.links import LinkKeeper, ServerCheck
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.services.endpoint.old_network.collecting import Collecting
from gridpost.services.endpoint.service import Duty, EndpointService
from gridpost.services.endpoint.soap_api import OLD_SERVICE, SERVICE
from gridpost.services.endpoint.watching import waiting
from gridpost.services.operations import observers
from gridpost.services.operations.app import operations_app
from gridpost.services.operations.journal_follow import RecentTrouble
from gridpost.stores.keys import pkcs8
from gridpost.stores.keys.files import FileKeyring
from gridpost.stores.keys.off_loop import key_pool
from gridpost.stores.keys.ring import KeptKeyring
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.stores.sqlite import SqliteStore
from gridpost.transports.amqp10 import AmqpClient, AmqpLimits, AmqpServer, SessionKeeper
from gridpost.transports.https import (
    ClientCertificate,
    ClientTls,
    HttpsClient,
    Limits,
    ServerTls,
    client_chain,
    serve,
)
from gridpost.transports.loopback import serve_loopback

if TYPE_CHECKING:
    from gridpost.stores.postgres.endpoint import PostgresEndpointStore

log = structlog.get_logger(__name__)

CONFIGURATION_FILE = "configuration file"
_MESSAGE_ROOM = 1024 * 1024
"""What travels with a document: metadata, signature, encryption."""


@dataclass
class EndpointParts:
    """The parts of one endpoint before it runs: enough for the command line to register it."""

    configuration: EndpointConfiguration
    clock: Clock
    store: SqliteStore | PostgresEndpointStore
    keys: KeptKeyring
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
    pool: ThreadPoolExecutor | None = None,
) -> AsyncIterator[EndpointParts]:
    """Store, keys and directory client; for `register`, `renew` and `certificates` that is all."""
    clock = clock or SystemClock()
    configuration.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = await asyncio.to_thread(_open_store, configuration)
    try:
        keys = await asyncio.to_thread(_open_keys, configuration, pool)
        client = DirectoryClient(
            ComponentCode(configuration.code),
            ComponentType.ENDPOINT,
            store=store,
            keys=keys,
            clock=clock,
            callers=lambda credentials: HttpsClient(
                ClientTls(credentials), proxy=configuration.synchronisation.proxy
            ),
            roots=configuration.trusted_roots,
            settings=configuration.client_settings(),
        )
        await client.open()
        yield EndpointParts(configuration, clock, store, keys, client)
    finally:
        await store.close()


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
        limits = AmqpLimits(
            max_message_size=configuration.max_content + _MESSAGE_ROOM,
            max_incoming_octets=2 * (configuration.max_content + _MESSAGE_ROOM),
        )
        dial = _dialler(configuration, credentials, limits)
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
        await core.operating.open()
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
            _direct(configuration, core, parts.clock, credentials, limits)
        )
        watch = await stack.enter_async_context(_watching(parts, core))
        operations_port = await stack.enter_async_context(
            serve_loopback(
                operations_app(
                    telling_more(core.health, configuration.home / "store", watch.health),
                    core.registry,
                    core.measure,
                    {"connections": core.connections},
                    deep=core.probe.health,
                ),
                configuration.operations.host,
                configuration.operations.port,
            )
        )
        amqp_port = await stack.enter_async_context(
            amqp_channel(configuration, core.amqp, parts.clock)
        )
        api_port = await stack.enter_async_context(_api(configuration, core))
        frame, shown_port = await stack.enter_async_context(
            _console(configuration, core, parts, file)
        )
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


def _open_keys(
    configuration: EndpointConfiguration, pool: ThreadPoolExecutor | None = None
) -> KeptKeyring:
    """After the store: it has made the tables."""
    passphrase = configuration.passphrase()
    if configuration.keys.place == "folder" or configuration.postgres is None or not passphrase:
        return FileKeyring(configuration.keys_folder(), passphrase, pool)
    from gridpost.stores.postgres.keys import PostgresKeyring

    return PostgresKeyring(configuration.postgres.settings(), passphrase, pool)


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
        store.identity.instance,
        clock,
        lambda after, limit: store.read(lambda work: work.journal.listed(after, limit)),
    )
    more = [
        observers.certificates(clock, core.upkeep.ending, rules.certificate_expiry),
        observers.synchronisation(
            clock,
            lambda: parts.client.synchroniser.state.succeeded_at,
            clock.now(),
            rules.no_synchronisation,
        ),
        waiting(core.context, rules.waiting),
    ]
    return watching(who, configuration, recent, more)


async def run_endpoint(file: Path) -> None:
    """`gridpost endpoint run`: until SIGTERM or SIGINT asks for an orderly stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running_endpoint(read_endpoint_configuration(file), file=file) as running:
        waiting = asyncio.create_task(stop.wait())
        # A duty that ends is a programming error: it must end the process, not hide.
        await asyncio.wait([waiting, running.service], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if running.service.done():
            running.service.result()


def certificates_of(file: Path) -> list[dict[str, Any]]:
    """What `gridpost endpoint certificates` shows."""
    configuration = read_endpoint_configuration(file)
    ring = _open_keys(configuration)
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


def _dialler(
    configuration: EndpointConfiguration, credentials: PemCredentials, limits: AmqpLimits
) -> Callable[[Sequence[str], ServerCheck, Callable[[bool, str], None]], LinkKeeper]:
    proxy = configuration.proxy()

    def dial(
        urls: Sequence[str], check: ServerCheck, on_state: Callable[[bool, str], None]
    ) -> LinkKeeper:
        client = AmqpClient(
            urls,
            container=configuration.code,
            tls=credentials,
            check=check,
            proxy=proxy,
            limits=limits,
        )
        return SessionKeeper(client, on_state=on_state)

    return dial


@asynccontextmanager
async def _direct(
    configuration: EndpointConfiguration,
    core: EndpointCore,
    clock: Clock,
    credentials: PemCredentials,
    limits: AmqpLimits,
) -> AsyncIterator[int | None]:
    """503 cl. 4.5.2: an endpoint that takes no direct transfers has no AMQP port at all."""
    section = configuration.direct
    if section is None:
        yield None
        return
    server = AmqpServer(container=configuration.code, clock=clock, limits=limits)
    port = await server.listen(section.host, section.port, core.door, tls=credentials)
    try:
        yield port
    finally:
        await server.drain(configuration.drain.total_seconds())


@asynccontextmanager
async def _api(
    configuration: EndpointConfiguration, core: EndpointCore
) -> AsyncIterator[int | None]:
    section = configuration.api
    if section is None:
        yield None
        return
    app = _pull_app(section, core)
    if section.certificate is None or section.key is None:
        async with serve_loopback(app, section.host, section.port) as port:
            yield port
        return
    shown = _api_credentials(section, section.certificate, section.key)
    asked = ClientCertificate.OPTIONAL if section.client_roots else ClientCertificate.NONE
    # base64 makes a document a third larger, line ends a little more. The channels refuse in their
    # own words what is too large; this ends what goes on sending after that.
    limits = Limits(
        max_body=2 * configuration.max_content + 2 * _MESSAGE_ROOM,
        body_seconds=section.body_timeout.total_seconds(),
    )
    async with serve(
        app, section.host, section.port, ServerTls(lambda: shown, asked), limits
    ) as server:
        yield server.port


def _pull_app(section: ApiSection, core: EndpointCore) -> ASGIApp:
    """Each channel answers for what it does not have, in its own way."""
    json, soap = core.api.app(), core.soap
    if Channel.SOAP not in section.channels:
        return json
    rest: ASGIApp = json if Channel.JSON in section.channels else soap
    at: dict[str, ASGIApp] = {SERVICE.path: soap, OLD_SERVICE.path: core.old_soap}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await at.get(scope.get("path", "").rstrip("/"), rest)(scope, receive, send)

    return app


@asynccontextmanager
async def _console(
    configuration: EndpointConfiguration,
    core: EndpointCore,
    parts: EndpointParts,
    file: Path | None,
) -> AsyncIterator[tuple[Frame | None, int | None]]:
    section = configuration.console
    if section is None:
        yield None, None
        return
    frame, console = endpoint_console(
        core,
        parts.client,
        parts.store,
        parts.clock,
        lambda: core.configuration,
        file,
        parts.keys.certificates,
    )
    async with console_port(
        section, console.app(), parts.client.tls, configuration.max_content
    ) as port:
        yield frame, port


def _api_credentials(section: ApiSection, certificate: Path, key: Path) -> TlsCredentials:
    private = pkcs8.read(key.read_bytes(), None, str(key))
    roots = tuple(der for file in section.client_roots for der in read_certificates(file))
    return TlsCredentials(read_certificates(certificate), to_pkcs8(private), roots)


async def _ended(task: Awaitable[None]) -> None:
    assert isinstance(task, asyncio.Task)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
