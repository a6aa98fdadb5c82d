"""A directory client ready to use in tests: real TLS, keys in memory, a clock that can be put forward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from gridpost.core.certificate import CertificateKind
from gridpost.core.component import Component, ComponentType, Implementation
from gridpost.core.https import Authorise, HttpAnswer, HttpRequest
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_path import MessagePath, Restriction
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.services.directory_client.context import ClientSettings
from gridpost.stores.keys.memory import MemoryKeyring
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.stores.memory.directory_client import MemoryClientStore
from gridpost.transports.https import ClientTls, HttpsClient
from support.builders import CONTACT
from support.fake_directory import PASSWORD, FakeDirectory
from support.pki import rsa_key

NAMES = {ComponentType.ENDPOINT: "endpoint", ComponentType.BROKER: "broker"}
CODES = {ComponentType.ENDPOINT: "E1", ComponentType.BROKER: "B1"}

QUICK = ClientSettings(
    cycle=timedelta(seconds=0.2),
    first_retry=timedelta(seconds=0.01),
    poll=timedelta(seconds=0.01),
)


def both(*ids: str) -> pytest.MarkDecorator:
    """Runs a test as an endpoint and as a broker, and claims the rows for each."""
    return pytest.mark.parametrize(
        "kind",
        [
            pytest.param(kind, id=name, marks=[pytest.mark.req(i, component=name) for i in ids])
            for kind, name in NAMES.items()
        ],
    )


@dataclass
class MovableClock:
    ahead: timedelta = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


class PooledKeyring(MemoryKeyring):
    """Takes its new keys from a pool, as making them is most of the time of a test."""

    def __init__(self, owner: str) -> None:
        super().__init__()
        self._owner = owner
        self._made = 0

    def create_key(self, bits: int = 2048, kind: CertificateKind | None = None) -> bytes:
        self._made += 1
        return self.import_key(to_pkcs8(rsa_key(f"{self._owner} made {self._made}", bits)))


@dataclass
class Machine:
    """What survives a crash of the component: its store and its keys."""

    kind: ComponentType = ComponentType.ENDPOINT
    store: MemoryClientStore = field(default_factory=MemoryClientStore)
    keys: MemoryKeyring = field(default=None)  # type: ignore[assignment]
    clock: MovableClock = field(default_factory=MovableClock)
    settings: ClientSettings = QUICK

    def __post_init__(self) -> None:
        self.keys = self.keys or PooledKeyring(self.code)

    @property
    def code(self) -> ComponentCode:
        return ComponentCode(CODES[self.kind])

    async def start(self) -> DirectoryClient:
        client = DirectoryClient(
            self.code,
            self.kind,
            store=self.store,
            keys=self.keys,
            clock=self.clock,
            callers=lambda credentials: HttpsClient(ClientTls(credentials)),
            settings=self.settings,
        )
        await client.open()
        return client

    def component(self, *paths: MessagePath, phone: str = "1") -> Component:
        endpoint = self.kind is ComponentType.ENDPOINT
        return Component(
            self.code,
            self.kind,
            replace(CONTACT, phone=phone),
            ComponentCode("CD-1"),
            Implementation("2"),
            () if endpoint else ("amqps://127.0.0.1:5671",),
            paths=paths,
            restriction=None if endpoint else Restriction(),
        )

    async def enrolled(self, directory: FakeDirectory) -> DirectoryClient:
        """Registered, approved and installed."""
        client = await self.start()
        before, directory.auto_approve = directory.auto_approve, True
        await client.enroller.register(
            directory.bundle(self.code), PASSWORD, CONTACT, by="administrator"
        )
        await client.enroller.run()
        directory.auto_approve = before
        return client


class Crash(BaseException):
    """The process is gone: nothing may catch this."""


class CrashingCaller:
    """Ends the process before or after a request was made."""

    def __init__(self, inner: HttpsClient, *, after: bool) -> None:
        self._inner = inner
        self._after = after

    async def request(
        self, request: HttpRequest, *, urls: tuple[str, ...], authorise: Authorise
    ) -> HttpAnswer:
        if self._after:
            await self._inner.request(request, urls=urls, authorise=authorise)
        raise Crash


@contextmanager
def crashing() -> Iterator[None]:
    with pytest.raises(Crash):
        yield
