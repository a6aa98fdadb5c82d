"""A component-directory without sockets: its services over a store, and components that talk to them.

The chain that TLS would have verified is put into the scope by hand; everything behind it is real.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import httpx
from prometheus_client import CollectorRegistry
from starlette.types import Receive, Scope, Send

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Component, Contact, Implementation
from gridpost.core.directory_ports import RegistryStore
from gridpost.core.journal import AdministrationRow, JournalRow, RefusalRow
from gridpost.core.registration import PublicKey, RegistrationRequest
from gridpost.services.component_directory.administration import Administration
from gridpost.services.component_directory.api import DirectoryApi
from gridpost.services.component_directory.authority import Authority
from gridpost.services.component_directory.entries import Entries
from gridpost.services.component_directory.gatekeeper import Gatekeeper
from gridpost.services.component_directory.metrics import DirectoryMetrics
from gridpost.services.component_directory.office import RegistryOffice
from gridpost.services.component_directory.papers import InstallationKit, NewKey
from gridpost.services.component_directory.publication import Publication
from gridpost.services.component_directory.settings import DirectorySettings
from gridpost.services.component_directory.synchroniser import Ask, Synchroniser
from gridpost.services.component_directory.upkeep import Upkeep
from gridpost.services.operations.administrators import Administrators, hash_token
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.stores.memory.directory import MemoryDirectoryStore
from gridpost.wire.directory import (
    Query,
    ReceivedAnswer,
    RegistrationAnswer,
    decode_components,
    decode_response,
    encode_component,
    encode_query,
    encode_request,
)
from support.pki import ENDPOINT_KINDS, NOW, TestComponent, TestPki, rsa_key, spki

CONTACT = Contact("Grid of Examplia", "A. Operator", "ops@grid.example", "+00 1 234")
BROKER_KINDS = (CertificateKind.AUTHENTICATION,)
XML = "application/xml"


class TestClock:
    __test__ = False

    def __init__(self, at: datetime = NOW) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def forward(self, by: timedelta) -> None:
        self.at += by


class TestConnections:
    """Remembers whose connections were to be closed."""

    __test__ = False

    def __init__(self) -> None:
        self.closed: set[bytes] = set()

    def close_of(self, fingerprints: Collection[bytes]) -> int:
        self.closed |= set(fingerprints)
        return len(fingerprints)


async def nobody(*_: object) -> Any:
    raise AssertionError("no peer is configured")


class TestDirectory:
    """One component-directory and its administrator."""

    __test__ = False

    def __init__(
        self,
        code: str = "CD-1",
        *,
        store: RegistryStore | None = None,
        root: str = "ROOT",
        clock: TestClock | None = None,
        ask: Ask = nobody,
        **settings: Any,
    ) -> None:
        self.pki = TestPki(code, root)
        self.clock = clock or TestClock()
        self.store = store or MemoryDirectoryStore()
        self.roots: list[bytes] = [self.pki.root]
        self.settings = DirectorySettings(
            code=self.pki.directory,
            contact=CONTACT,
            urls=(f"https://{code.lower()}.example",),
            **({"certificate_validity": timedelta(days=300)} | settings),
        )
        self.connections = TestConnections()
        self.metrics = DirectoryMetrics(CollectorRegistry())
        self.authority = Authority([self.pki.issuer], self.settings.certificate_validity)
        self.publication = Publication(self.store, self.clock, self.settings)
        self.entries = Entries(self.store, self.clock, self.publication)
        self.gatekeeper = Gatekeeper(
            self.store, self.clock, self.publication, self.authority, lambda: self.roots
        )
        self._keys = 0
        self.office = RegistryOffice(
            self.store,
            self.clock,
            self.publication,
            self.authority,
            self.connections,
            self._make_key,
        )
        self.api = DirectoryApi(
            self.store,
            self.clock,
            self.gatekeeper,
            self.office,
            self.entries,
            self.publication,
            self.metrics,
            lambda scope: scope["extensions"]["tls"]["client_chain"],
        )
        self.synchroniser = Synchroniser(
            self.store, self.clock, self.publication, self.metrics, ask, lambda: self.roots
        )
        self.upkeep = Upkeep(
            self.store,
            self.clock,
            self.publication,
            self.metrics,
            self.synchroniser,
            lambda: self.roots,
            self.publish_own,
        )
        self.own = self.pki.component(code, BROKER_KINDS)

    def _make_key(self) -> NewKey:
        self._keys += 1
        key = rsa_key(f"made by {self.settings.code} {self._keys % 4}")
        return NewKey(to_pkcs8(key), spki(key))

    async def publish_own(self) -> None:
        await self.entries.publish_own((*self.own.certificates, *self.authority.certificates))

    async def started(self) -> TestDirectory:
        await self.publish_own()
        return self

    def administration(self, token: str = "secret", name: str = "alice") -> httpx.AsyncClient:
        administration = Administration(
            self.store,
            self.clock,
            self.office,
            self.publication,
            self.upkeep,
            self.metrics,
            Administrators({name: hash_token("secret")}),
            lambda kit, password: b"bundle",
        )
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(administration.app()),
            base_url="http://administration",
            headers={"authorization": f"Bearer {token}"},
        )

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        chain: Sequence[bytes] = (),
        media_type: str | None = XML,
    ) -> httpx.Response:
        async def with_chain(scope: Scope, receive: Receive, send: Send) -> None:
            scope.setdefault("extensions", {})["tls"] = {"client_chain": tuple(chain)}
            await self.api(scope, receive, send)

        headers = {} if body is None or media_type is None else {"content-type": media_type}
        transport = httpx.ASGITransport(with_chain)
        async with httpx.AsyncClient(transport=transport, base_url="https://directory") as client:
            return await client.request(method, path, content=body, headers=headers)

    async def query_raw(self, chain: Sequence[bytes]) -> httpx.Response:
        return await self.request("GET", "/api/v1/components", encode_query(Query()), chain=chain)

    async def query(self, chain: Sequence[bytes], query: Query | None = None) -> ReceivedAnswer:
        response = await self.request(
            "GET", "/api/v1/components", encode_query(query or Query()), chain=chain
        )
        assert response.status_code == 200, response.text
        return decode_components(response.content)

    async def invited(self, code: str) -> InstallationKit:
        return await self.office.invite(code, by="alice")

    async def post(self, chain: Sequence[bytes], request: RegistrationRequest) -> httpx.Response:
        return await self.request(
            "POST", "/api/v1/registrations", encode_request(request), chain=chain
        )

    async def register(
        self, code: str, kinds: Iterable[CertificateKind] = ENDPOINT_KINDS, key_name: str = ""
    ) -> TestComponent:
        """From the invitation to the approval, as the two administrators do it."""
        kit = await self.invited(code)
        chain = (kit.certificate, kit.issuer)
        request, keys = request_for(code, kinds, key_name=key_name)
        response = await self.post(chain, request)
        assert response.status_code == 201, response.text
        registration_id = decode_response(response.content).registration_id
        await self.office.approve(registration_id, by="alice")
        answer = await self.outcome(registration_id, chain)
        return TestComponent(request.code, answer.certificates, keys, self.pki.integrated_ca)

    async def outcome(self, registration_id: str, chain: Sequence[bytes]) -> RegistrationAnswer:
        response = await self.request(
            "GET", f"/api/v1/registrations/{registration_id}", chain=chain
        )
        assert response.status_code == 200, response.text
        return decode_response(response.content)

    async def entry(self, code: str) -> Component:
        found = await self.publication.find(code)
        assert found is not None
        return found

    async def push(self, component: TestComponent, entry: Component) -> httpx.Response:
        resource = "brokers" if entry.restriction is not None else "endpoints"
        return await self.request(
            "PUT",
            f"/api/v1/{resource}/{component.code}",
            encode_component(entry),
            chain=component.chain,
        )

    async def content_id(self) -> str:
        return (await self.publication.directory()).subsystems[self.settings.code].content_id

    async def journal(self) -> list[JournalRow]:
        rows = await self.store.read(lambda unit: unit.journal.read(0, 10_000))
        return [recorded.row for recorded in rows]

    async def refusals(self) -> list[RefusalRow]:
        return [row for row in await self.journal() if isinstance(row, RefusalRow)]

    async def actions(self) -> list[AdministrationRow]:
        return [row for row in await self.journal() if isinstance(row, AdministrationRow)]

    async def state(self) -> object:
        """Everything that a refused request must leave as it was; the journal may tell of it."""
        return await self.store.read(
            lambda unit: (
                unit.entries.own(),
                unit.entries.replicas(),
                unit.registrations.search(None, 1000),
            )
        )


def request_for(
    code: str,
    kinds: Iterable[CertificateKind] = ENDPOINT_KINDS,
    *,
    key_name: str = "",
    external: Sequence[Certificate] = (),
    contact: Contact = CONTACT,
) -> tuple[RegistrationRequest, dict[CertificateKind, Any]]:
    covered = {c.kind for c in external}
    keys = {k: rsa_key(f"{key_name or code} {k}") for k in kinds if k not in covered}
    return (
        RegistrationRequest(
            contact,
            code,  # type: ignore[arg-type]
            tuple(PublicKey(kind, spki(key)) for kind, key in keys.items()),
            tuple(external),
        ),
        keys,
    )


def changed(entry: Component, **values: Any) -> Component:
    return replace(entry, **values)


IMPLEMENTATION = Implementation("2", "Other", "1.0", "2")
