"""Everything an endpoint or broker has to do with component-directories, joined and kept running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gridpost.core.component import ComponentType
from gridpost.core.https import TlsCredentials
from gridpost.core.identifiers import ComponentCode
from gridpost.core.ports import Clock, DirectoryClientStore, HttpsCallers, KeyCabinet
from gridpost.core.synchronisation import Directory
from gridpost.services.directory_client.context import ClientContext, ClientSettings
from gridpost.services.directory_client.credentials import OwnCredentials
from gridpost.services.directory_client.enrolment import Enroller
from gridpost.services.directory_client.local_copy import LocalCopy
from gridpost.services.directory_client.own_configuration import OwnConfiguration
from gridpost.services.directory_client.renewal import Renewal
from gridpost.services.directory_client.synchronisation import Synchroniser


class DirectoryClient:
    """`open` first; then `run` in the background, or single calls from a command line."""

    def __init__(
        self,
        code: ComponentCode,
        type: ComponentType,
        *,
        store: DirectoryClientStore,
        keys: KeyCabinet,
        clock: Clock,
        callers: HttpsCallers,
        roots: Callable[[], Sequence[bytes]] = tuple,
        settings: ClientSettings | None = None,
    ) -> None:
        """`roots` are the configured ROOT CAs; while there are none, those of the bundle count."""
        self.copy = LocalCopy(store)
        self._configured_roots = roots
        self.context = ClientContext(
            code, type, store, keys, clock, callers, self.roots, settings or ClientSettings()
        )
        self.credentials = OwnCredentials(self.context, self.copy)
        caller = callers(self.credentials)
        self.synchroniser = Synchroniser(self.context, self.copy, caller)
        self.configuration = OwnConfiguration(self.context, self.copy, caller)
        self.enroller = Enroller(self.context, self.copy, self.credentials)
        self.renewal = Renewal(self.context, self.enroller)
        self.enroller.on_installed(lambda _: self._enrolled())

    def directory(self) -> Directory:
        """The current local copy: asked anew for every decision."""
        return self.copy()

    def tls(self) -> TlsCredentials:
        """What this component shows on connections at this moment, as client and as server."""
        return self.credentials()

    def roots(self) -> Sequence[bytes]:
        """Configured roots take the place of the bundle's, so that an old one can be dropped."""
        configured = tuple(self._configured_roots())
        home = self.copy.home
        return configured or (() if home is None else home.roots)

    def configure(self, settings: ClientSettings) -> None:
        """503 cl. 10: what the administrator changed counts from the next request on."""
        if settings == self.context.settings:
            return
        self.context.settings = settings
        self.synchroniser.wake()
        self.renewal.wake()

    async def open(self) -> None:
        await self.copy.load()
        await self.configuration.load()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.synchroniser.run())
            group.create_task(self.configuration.run())
            group.create_task(self.renewal.run())

    def _enrolled(self) -> None:
        """A new member learns the system at once, and tells the directory what it is."""
        self.synchroniser.wake()
        self.configuration.wake()
