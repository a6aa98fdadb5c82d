"""Endpoints in one process with real seals, a clock that tests move, and a post that tests can bend."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from inspect import isawaitable

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Component
from gridpost.core.delivery import Side, State, Status, TraceEntry
from gridpost.core.identifiers import ComponentCode
from gridpost.core.journal import JournalRow
from gridpost.core.links import Octets
from gridpost.core.message_path import MessagePath, Route
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Directory
from gridpost.services.endpoint.arrival import Arrival
from gridpost.services.endpoint.context import EndpointContext, EndpointSettings
from gridpost.services.endpoint.enquiry import Enquiry
from gridpost.services.endpoint.evidence import Evidence
from gridpost.services.endpoint.expiry import Expiry
from gridpost.services.endpoint.handover import Handover
from gridpost.services.endpoint.submission import Document, Submission
from gridpost.services.endpoint.transfer import BackOff, Transfer
from gridpost.stores.keys.memory import MemoryKeyring
from gridpost.stores.memory import MemoryStore
from gridpost.wire.x509 import (
    CaRequest,
    Issuer,
    Validity,
    build_root_ca,
    integrated_ca_name,
    issue,
    issue_integrated_ca,
    read_certificate,
)
from support.builders import broker, component_directory, directory, endpoint, path

START = datetime.now(UTC).replace(microsecond=0)
BY_B1 = Route(ComponentCode("B1"))
DIRECT_URL = "amqps://endpoint.example:5671"


@dataclass
class TestClock:
    __test__ = False
    time: datetime = START

    def now(self) -> datetime:
        return self.time

    def advance(self, by: timedelta) -> None:
        self.time += by


class Authority:
    """One root and one INTEGRATED CA, made once per run: RSA keys are slow to make."""

    def __init__(self) -> None:
        self.keys = MemoryKeyring()
        root = self.keys.create_key()
        sign = self.keys.sign_function(root)
        validity = Validity(START - timedelta(days=900), START + timedelta(days=900))
        self.root = build_root_ca("Test ROOT CA", root, sign, validity)
        ca = self.keys.create_key()
        self.ca = issue_integrated_ca(
            CaRequest(integrated_ca_name("CD-1"), "", ca), Issuer(self.root, sign), validity
        )
        self.issuer = Issuer(self.ca, self.keys.sign_function(ca))

    def certify(
        self,
        keyring: MemoryKeyring,
        kind: CertificateKind,
        code: str,
        start: datetime,
        end: datetime,
    ) -> Certificate:
        der = issue(kind, code, keyring.create_key(), self.issuer, Validity(start, end))
        certificate = read_certificate(der, kind)
        keyring.install(certificate)
        return certificate


def authority(root: str = "") -> Authority:
    """Of the one root, or of another one with this name."""
    return _authority(root)


@cache
def _authority(root: str) -> Authority:
    return Authority()


@cache
def keys_of(code: str, root: str = "") -> tuple[MemoryKeyring, tuple[Certificate, ...]]:
    keyring = MemoryKeyring()
    span = (START - timedelta(days=1), START + timedelta(days=365))
    kinds = (CertificateKind.SIGNING, CertificateKind.ENCRYPTION)
    return keyring, tuple(authority(root).certify(keyring, kind, code, *span) for kind in kinds)


@dataclass
class Carried:
    """One AMQP message on its way."""

    route: Route
    sender: ComponentCode
    receiver: ComponentCode
    data: bytes


@dataclass
class Post:
    """The network between the endpoints: `bend` may change, drop (None) or refuse what passes."""

    endpoints: dict[str, TestEndpoint] = field(default_factory=dict)
    carried: list[Carried] = field(default_factory=list)
    bend: Callable[[Carried], Carried | Awaitable[Carried] | None] = lambda carried: carried

    async def carry(self, carried: Carried) -> None:
        self.carried.append(carried)
        bent = self.bend(carried)
        if isawaitable(bent):
            bent = await bent
        if bent is not None:
            await self.endpoints[bent.receiver].arrival.arrive(bent.data, bent.route)


@dataclass
class _Courier:
    post: Post
    sender: ComponentCode

    async def deliver(self, route: Route, receiver: ComponentCode, *octets: Octets) -> None:
        data = b"".join(octets)
        if receiver not in self.post.endpoints:
            raise Refusal(Rule.UNREACHABLE, f"{receiver} cannot be reached")
        await self.post.carry(Carried(route, self.sender, receiver, data))


class TestEndpoint:
    __test__ = False

    def __init__(self, world: World, code: str, settings: EndpointSettings) -> None:
        self.code = ComponentCode(code)
        self.keyring, self.certificates = keys_of(code)
        self.store = MemoryStore(code)
        context = EndpointContext(
            self.code, self.store, self.keyring, world.clock, lambda: world.directory, settings
        )
        self.context = context
        self.submission = Submission(context)
        self.arrival = Arrival(context)
        self.handover = Handover(context)
        self.enquiry = Enquiry(context)
        self.evidence = Evidence(context)
        self.expiry = Expiry(context)
        self.transfer = Transfer(
            context, _Courier(world.post, self.code), BackOff(timedelta(seconds=1))
        )

    async def send(
        self, to: str, content: bytes = b"document", message_type: str = "BP1-A", **more: str
    ) -> str:
        return await self.submission.send("app", Document(to, message_type, content, **more))

    async def state(self, side: Side, message_id: str) -> State:
        return (await self.enquiry.entry(side, message_id)).delivery.state

    async def status(self, message_id: str) -> Status:
        return await self.enquiry.status(message_id)

    async def trace(self, message_id: str, side: Side = Side.SENT) -> list[TraceEntry]:
        return list(await self.enquiry.trace(side, message_id))

    async def journal(self) -> list[JournalRow]:
        return [r.row for r in await self.store.read(lambda work: work.journal.read(0, 100_000))]


class World:
    """E1 and E2, each reachable through B1 (or otherwise as `paths` say)."""

    def __init__(
        self,
        *paths: MessagePath,
        settings: EndpointSettings | None = None,
        codes: tuple[str, ...] = ("E1", "E2"),
        direct: bool = False,
    ) -> None:
        self.clock = TestClock()
        self.post = Post()
        self._paths = paths or (path("*", start=START - timedelta(days=1)),)
        self._urls = (DIRECT_URL,) if direct else ()
        for code in codes:
            self.post.endpoints[code] = TestEndpoint(self, code, settings or EndpointSettings())
        self.directory: Directory = self.describe()

    def describe(self, *, without: str = "") -> Directory:
        ca = read_certificate(authority().ca, CertificateKind.INTEGRATED_CA)
        entries: list[Component] = [
            endpoint(code, *self._paths, urls=self._urls, certificates=e.certificates)
            for code, e in self.post.endpoints.items()
            if code != without
        ]
        home = replace(component_directory(), certificates=(ca,))
        return directory(*entries, broker("B1"), broker("B2"), home)

    def __getitem__(self, code: str) -> TestEndpoint:
        return self.post.endpoints[code]

    async def carry(self) -> None:
        """Until nobody has anything left that is due."""
        while any([await e.transfer.round() for e in self.post.endpoints.values()]):
            pass

    async def expire(self) -> None:
        for one in self.post.endpoints.values():
            await one.expiry.round()
