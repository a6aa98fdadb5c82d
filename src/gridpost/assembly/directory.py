"""A component-directory from its configuration: which classes meet, in which order they start and stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from gridpost.assembly.after_restore import restored_health, say_restored
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.configuration_file import ConfigurationFile
from gridpost.assembly.console import console_port, settings_of, whose
from gridpost.assembly.directory_configuration import (
    COMPONENT,
    DirectoryConfiguration,
    read_certificates,
    read_directory_configuration,
)
from gridpost.assembly.directory_console import SETTINGS
from gridpost.assembly.directory_keys import DirectoryKeys, make_key
from gridpost.assembly.exporter_process import exporting
from gridpost.assembly.file_watch import watch_file
from gridpost.assembly.installation import packer
from gridpost.assembly.settings_file import SettingsFile
from gridpost.assembly.watching import Watched, Watching, shared_cursors, watching
from gridpost.console.directory import PLACES, DirectoryConsole
from gridpost.console.frame import Frame
from gridpost.core.directory_ports import RegistryStore
from gridpost.core.https import Authorise, HttpAnswer, HttpRequest, TlsCredentials
from gridpost.core.journal import AdministrationRow
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.component_directory.administration import Administration
from gridpost.services.component_directory.api import DirectoryApi
from gridpost.services.component_directory.authority import Authority, fingerprint
from gridpost.services.component_directory.doorstep import Doorstep
from gridpost.services.component_directory.entries import Entries
from gridpost.services.component_directory.gatekeeper import Gatekeeper
from gridpost.services.component_directory.metrics import DirectoryMetrics
from gridpost.services.component_directory.office import RegistryOffice
from gridpost.services.component_directory.publication import Publication
from gridpost.services.component_directory.settings import Peer
from gridpost.services.component_directory.synchroniser import Synchroniser
from gridpost.services.component_directory.upkeep import Upkeep
from gridpost.services.component_directory.watching import books
from gridpost.services.operations.administrators import Administrators
from gridpost.services.operations.journal_follow import RecentTrouble, one_stream
from gridpost.stores.keys import pkcs8
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.stores.sqlite import SqliteStore
from gridpost.transports.https import (
    ClientCertificate,
    ClientTls,
    HttpsClient,
    HttpsServer,
    Limits,
    ServerTls,
    client_chain,
    serve,
)
from gridpost.transports.loopback import serve_loopback

log = structlog.get_logger(__name__)

STANDBY_LOOK = 0.5
"""Seconds between two tries of a standby; each of them waits for the lock by itself."""


class _OpenConnections:
    """core.directory_ports.Connections over the server, which starts after its users are made."""

    def __init__(self) -> None:
        self.server: HttpsServer | None = None

    def close_of(self, fingerprints: Collection[bytes]) -> int:
        if self.server is None:
            return 0
        return self.server.close_where(
            lambda c: bool(c.chain) and fingerprint(c.chain[0]) in fingerprints
        )


@dataclass
class RunningDirectory:
    """What tests and the command line see of a directory that serves."""

    port: int
    administration_port: int
    office: RegistryOffice
    publication: Publication
    synchroniser: Synchroniser
    upkeep: Upkeep
    store: RegistryStore
    console_port: int | None = None


class Assembly:
    """The parts of one directory. A changed configuration is taken over part by part."""

    def __init__(
        self,
        configuration: DirectoryConfiguration,
        store: RegistryStore,
        clock: Clock,
        keys: DirectoryKeys,
    ) -> None:
        settings = configuration.settings()
        self.configuration = configuration
        self._store = store
        self.keys = keys
        self.clock = clock
        self.roots = configuration.trusted_roots()
        self.connections = _OpenConnections()
        self.metrics = DirectoryMetrics(CollectorRegistry())
        self.doorstep = Doorstep(
            store, clock, self.metrics, configuration.journal.refused_connections
        )
        self.authority = Authority(keys.issuers(), settings.certificate_validity)
        self.publication = Publication(store, clock, settings)
        self.entries = Entries(store, clock, self.publication)
        self.office = RegistryOffice(
            store, clock, self.publication, self.authority, self.connections, make_key
        )
        gatekeeper = Gatekeeper(store, clock, self.publication, self.authority, lambda: self.roots)
        self.api = DirectoryApi(
            store,
            clock,
            gatekeeper,
            self.office,
            self.entries,
            self.publication,
            self.metrics,
            client_chain,
        )
        self.credentials = keys.credentials(clock.now)
        self._client = HttpsClient(
            ClientTls(self.credentials), proxy=configuration.synchronisation.proxy
        )
        self.synchroniser = Synchroniser(
            store, clock, self.publication, self.metrics, self._ask, lambda: self.roots
        )
        self.upkeep = Upkeep(
            store,
            clock,
            self.publication,
            self.metrics,
            self.synchroniser,
            lambda: self.roots,
            self.renew_own,
        )
        self.frame: Frame | None = None
        self.administrators = Administrators(configuration.administration.tokens)
        self.administration = Administration(
            store,
            clock,
            self.office,
            self.publication,
            self.upkeep,
            self.metrics,
            self.administrators,
            packer(self.publication, self.credentials),
        )

    async def renew_own(self) -> None:
        """503 cl. 8.5: own certificate, and what the command line imported in the meantime."""
        self.keys.reload()
        self.authority.replace(self.keys.issuers())
        ahead = self.publication.settings.expiry_warning
        if await self.keys.renew_own(self.authority, self.clock.now(), ahead):
            log.info("own certificate renewed")
        await self.entries.publish_own(self.keys.published())

    async def reconfigure(self, configuration: DirectoryConfiguration) -> None:
        """503 cl. 10: changed parameters count without a restart; ports and folders need one."""
        if _fixed(configuration) != _fixed(self.configuration):
            raise Refusal(Rule.USAGE, "another code, home folder or database needs a restart")
        settings = configuration.settings()
        roots = configuration.trusted_roots()
        self.configuration = configuration
        self.keys.configure(configuration)
        self.roots = roots
        self.publication.reconfigure(settings)
        self.authority.validity = settings.certificate_validity
        self.administrators.replace(configuration.administration.tokens)
        self.doorstep.most = configuration.journal.refused_connections
        if self.frame is not None:
            self.frame.reconfigure(settings_of(configuration.console))
        await self.renew_own()
        self.synchroniser.reconfigured()

    async def change(self, configuration: DirectoryConfiguration, by: str) -> None:
        """As `reconfigure`, and written down with who did it."""
        before = self.configuration.settings()
        await self.reconfigure(configuration)
        row = AdministrationRow(
            self.clock.now(),
            actor=by,
            action="settings changed",
            target=configuration.code,
            before=repr(before),
            after=repr(configuration.settings()),
        )
        await self._store.run(lambda work: work.journal.append(row))

    async def _ask(self, peer: Peer, request: HttpRequest, authorise: Authorise) -> HttpAnswer:
        return await self._client.request(request, urls=peer.urls, authorise=authorise)


def open_store(configuration: DirectoryConfiguration) -> RegistryStore:
    """The books, for one process at a time. Blocks."""
    if configuration.postgres is None:
        return SqliteStore.open(configuration.home / "store", configuration.code)
    # Only here: the driver is there with gridpost[postgres] only.
    from gridpost.stores.postgres.directory import open_directory_store

    return open_directory_store(configuration.postgres.settings(), configuration.code)


async def _opened(configuration: DirectoryConfiguration, stop: asyncio.Event) -> RegistryStore:
    """503 cl. 10: a standby waits until the instance that serves has let go of the books."""
    told = False
    while True:
        try:
            return await asyncio.to_thread(open_store, configuration)
        except Refusal as refusal:
            waits = refusal.rule in (Rule.STORE_IN_USE, Rule.STORE_UNREACHABLE)
            if not (configuration.standby and waits):
                raise
            if not told:
                log.info("standing by", reason=refusal.message)
            told = True
        with suppress(TimeoutError):
            async with asyncio.timeout(STANDBY_LOOK):
                await stop.wait()
                raise Refusal(Rule.STOPPING, "stopped while standing by")


@asynccontextmanager
async def running_directory(
    configuration: DirectoryConfiguration,
    *,
    clock: Clock | None = None,
    file: Path | None = None,
    stop: asyncio.Event | None = None,
) -> AsyncIterator[RunningDirectory]:
    """Serves until the block ends; then requests under way finish, and the store is closed last.

    A standby that is told to `stop` before its turn came is refused with STOPPING.
    """
    clock = clock or SystemClock()
    keys = DirectoryKeys(configuration)
    if not keys.authorities:
        raise Refusal(
            Rule.USAGE,
            "there is no INTEGRATED CA yet: run 'gridpost directory init', have the request signed "
            "with 'gridpost ca sign' and import the certificate",
        )
    async with AsyncExitStack() as stack:
        store = await _opened(configuration, stop or asyncio.Event())
        stack.push_async_callback(store.close)
        parts = Assembly(configuration, store, clock, keys)
        await stack.enter_async_context(
            exporting(configuration.journal, file, parts.metrics.registry)
        )
        await parts.renew_own()
        server = await stack.enter_async_context(
            serve(
                parts.api,
                configuration.server.host,
                configuration.server.port,
                ServerTls(parts.credentials),
                Limits(
                    max_connections=configuration.server.max_connections,
                    max_body=configuration.server.max_body,
                ),
                malformed_answer=parts.doorstep.malformed,
                clock=clock.now,
                on_refused=parts.doorstep.refused,
            )
        )
        parts.connections.server = server
        watch = await stack.enter_async_context(_watching(parts, store))
        folder = configuration.home / "store"
        parts.administration.more_health = lambda: {
            **watch.health(),
            **restored_health(folder, COMPONENT),
        }
        administration_port = await stack.enter_async_context(_administration(parts))
        shown_port = await stack.enter_async_context(_console(parts, store, file))
        if parts.frame is not None:
            parts.frame.alerts = watch.alerts
        for work in (
            parts.synchroniser.run(),
            parts.upkeep.run(),
            parts.doorstep.run(),
            *([_watch(file, parts)] if file is not None else []),
        ):
            task = asyncio.create_task(work)
            stack.push_async_callback(_ended, task)
        say_restored(folder, COMPONENT)
        log.info(
            "listening",
            port=server.port,
            administration_port=administration_port,
            console_port=shown_port,
        )
        yield RunningDirectory(
            server.port,
            administration_port,
            parts.office,
            parts.publication,
            parts.synchroniser,
            parts.upkeep,
            store,
            shown_port,
        )
        log.info("stopping")


def _watching(parts: Assembly, store: RegistryStore) -> AbstractAsyncContextManager[Watching]:
    configuration, clock = parts.configuration, parts.clock
    rules = configuration.alerts.rules.thresholds()
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
    more = [books(parts.upkeep, clock, rules.certificate_expiry, rules.no_synchronisation)]
    return watching(who, configuration, RecentTrouble(rules.window), more)


async def run_directory(file: Path) -> None:
    """`gridpost directory run`: until SIGTERM or SIGINT asks for an orderly stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running_directory(read_directory_configuration(file), file=file, stop=stop):
        await stop.wait()


@asynccontextmanager
async def _administration(parts: Assembly) -> AsyncIterator[int]:
    section = parts.configuration.administration
    app = parts.administration.app()
    if section.certificate is None or section.key is None:
        async with serve_loopback(app, section.host, section.port) as port:
            yield port
        return
    key = pkcs8.read(section.key.read_bytes(), None, str(section.key))
    credentials = TlsCredentials(read_certificates(section.certificate), to_pkcs8(key), ())
    tls = ServerTls(lambda: credentials, ClientCertificate.NONE)
    async with serve(app, section.host, section.port, tls) as server:
        yield server.port


@asynccontextmanager
async def _console(
    parts: Assembly, store: RegistryStore, file: Path | None
) -> AsyncIterator[int | None]:
    section = parts.configuration.console
    if section is None:
        yield None
        return
    parts.frame = Frame(
        whose(parts.configuration.code, "component-directory"),
        section.settings(),
        parts.clock,
        store,
        PLACES,
    )
    kept = ConfigurationFile(file, read_directory_configuration)
    console = DirectoryConsole(
        parts.frame,
        parts.office,
        parts.publication,
        parts.upkeep,
        lambda: parts.api.contacts,
        SettingsFile(SETTINGS, kept, lambda: parts.configuration, parts.change),
    )
    async with console_port(section, console.app(), parts.credentials) as port:
        yield port


def _watch(file: Path, parts: Assembly) -> Coroutine[Any, Any, None]:
    return watch_file(file, lambda: parts.reconfigure(read_directory_configuration(file)))


def _fixed(configuration: DirectoryConfiguration) -> Sequence[object]:
    return configuration.code, configuration.home, configuration.store, configuration.postgres


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return
