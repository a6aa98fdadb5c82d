"""Endpoints with real AMQP connections in one process: real TLS, real identities, queues in memory."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Component
from gridpost.core.identifiers import ComponentCode
from gridpost.core.links import LinkKeeper, ServerCheck
from gridpost.core.message_path import MessagePath
from gridpost.core.synchronisation import Directory
from gridpost.services.endpoint.arrival import Arrival
from gridpost.services.endpoint.context import EndpointContext, EndpointSettings
from gridpost.services.endpoint.direct import DirectDoor
from gridpost.services.endpoint.dispatch import Dispatcher
from gridpost.services.endpoint.enquiry import Enquiry
from gridpost.services.endpoint.handover import Handover
from gridpost.services.endpoint.inbound import Inbound
from gridpost.services.endpoint.line import LineSettings
from gridpost.services.endpoint.lines import Lines
from gridpost.services.endpoint.peers import Peers
from gridpost.services.endpoint.submission import Submission
from gridpost.services.endpoint.transfer import BackOff, Transfer
from gridpost.stores.keys.memory import MemoryKeyring
from gridpost.stores.memory import MemoryStore
from gridpost.transports.amqp10 import (
    AmqpClient,
    AmqpLimits,
    AmqpServer,
    Backoff,
    SessionKeeper,
    TlsCredentials,
)
from gridpost.wire.x509 import public_key, public_key_bytes, read_certificate, to_pem
from support.builders import broker, component_directory, directory, endpoint
from support.memory_broker import MemoryBroker
from support.post import START, authority, keys_of

LIMITS = AmqpLimits(close_seconds=0.5)
QUICK = BackOff(timedelta(milliseconds=50), timedelta(milliseconds=200))


class LiveClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


def authentication(
    code: str, kind: CertificateKind = CertificateKind.AUTHENTICATION, root: str = ""
) -> tuple[Certificate, TlsCredentials]:
    """A certificate that opens connections (or one of another kind), and what TLS needs of it."""
    return _authentication(code, kind, root)


@cache
def _authentication(
    code: str, kind: CertificateKind, root: str
) -> tuple[Certificate, TlsCredentials]:
    ring = MemoryKeyring()
    span = (START - timedelta(days=1), START + timedelta(days=365))
    certificate = authority(root).certify(ring, kind, code, *span)
    key = base64.encodebytes(ring.export_key(public_key_bytes(public_key(certificate.der))))
    return certificate, TlsCredentials(
        chain_pem=to_pem(certificate.der, authority(root).ca),
        key_pem=b"-----BEGIN PRIVATE KEY-----\n" + key + b"-----END PRIVATE KEY-----\n",
        roots_pem=to_pem(authority(root).root),
    )


@dataclass(frozen=True)
class Trust:
    """Under which root a component is, and which roots it trusts; "" is the one of everybody."""

    root: str = ""
    trusted: tuple[str, ...] = ("",)

    @property
    def roots(self) -> list[bytes]:
        return [authority(root).root for root in self.trusted]

    def authentication(self, code: str) -> tuple[Certificate, TlsCredentials]:
        certificate, own = authentication(code, root=self.root)
        return certificate, replace(own, roots_pem=to_pem(*self.roots))


@dataclass
class BrokerPlace:
    """A broker without rules on a real port."""

    code: str
    shown: str = ""
    """Whose certificate it shows; its own unless a test says otherwise."""
    memory: MemoryBroker = field(default_factory=MemoryBroker)
    server: AmqpServer = field(init=False)
    port: int = 0

    async def open(self) -> None:
        self.server = AmqpServer(container=self.code, clock=LiveClock(), limits=LIMITS)
        _, own = authentication(self.shown or self.code)
        self.port = await self.server.listen("127.0.0.1", self.port, self.memory, tls=lambda: own)

    @property
    def listeners(self) -> list[str]:
        """Codes of the queues that have a consumer."""
        return sorted(code for code, queue in self.memory.queues.items() if queue.consumers)

    def entry(self) -> Component:
        return replace(
            broker(self.code),
            urls=(f"amqps://127.0.0.1:{self.port}",),
            certificates=(authentication(self.code)[0],),
        )


class LiveEndpoint:
    def __init__(
        self,
        world: AmqpWorld,
        code: str,
        paths: Sequence[MessagePath],
        settings: EndpointSettings | None,
        lines: LineSettings | None,
        trust: Trust,
    ) -> None:
        self.code = ComponentCode(code)
        self.trust = trust
        self.paths = tuple(paths)
        self.keyring, self.certificates = keys_of(code, trust.root)
        self.store = MemoryStore(code)
        context = EndpointContext(
            self.code,
            self.store,
            self.keyring,
            LiveClock(),
            lambda: world.directory,
            settings or EndpointSettings(),
        )
        self.context = context
        self.submission = Submission(context)
        self.handover = Handover(context)
        self.enquiry = Enquiry(context)
        peers = Peers(context.clock, lambda: world.directory, lambda: trust.roots)
        self.inbound = Inbound(context, Arrival(context))
        self.door = DirectDoor(context, peers, self.inbound)
        self.lines = Lines(context, peers, self.inbound, self._dial(code), settings=lines)
        self.dispatcher = Dispatcher(
            context,
            Transfer(context, self.lines, QUICK),
            closed=self.lines.closed,
            back_off=QUICK,
        )
        self.lines.on_open = self.dispatcher.opened
        self.server: AmqpServer | None = None
        self.port = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def listen(self) -> None:
        """Take direct transfers."""
        self.server = AmqpServer(container=self.code, clock=LiveClock(), limits=LIMITS)
        _, own = self.trust.authentication(self.code)
        self.port = await self.server.listen("127.0.0.1", 0, self.door, tls=lambda: own)

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self.lines.run()),
            asyncio.create_task(self.dispatcher.run()),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.lines.close()
        await self.inbound.drain(5)
        if self.server is not None:
            await self.server.close()

    def entry(self) -> Component:
        urls = (f"amqps://127.0.0.1:{self.port}",) if self.port else ()
        certificates = (*self.certificates, self.trust.authentication(self.code)[0])
        return endpoint(self.code, *self.paths, urls=urls, certificates=certificates)

    def _dial(
        self, code: str
    ) -> Callable[[Sequence[str], ServerCheck, Callable[[bool, str], None]], LinkKeeper]:
        def dial(
            urls: Sequence[str], check: ServerCheck, on_state: Callable[[bool, str], None]
        ) -> LinkKeeper:
            _, own = self.trust.authentication(code)
            client = AmqpClient(urls, container=code, tls=lambda: own, check=check, limits=LIMITS)
            return SessionKeeper(client, backoff=Backoff(0.05, 0.2), on_state=on_state)

        return dial


class AmqpWorld:
    """Use as an async context manager; everything that it opened it closes."""

    def __init__(self) -> None:
        self.brokers: dict[str, BrokerPlace] = {}
        self.endpoints: dict[str, LiveEndpoint] = {}
        self.directory: Directory = directory(component_directory())

    async def __aenter__(self) -> AmqpWorld:
        return self

    async def __aexit__(self, *_: object) -> None:
        for one in self.endpoints.values():
            await one.stop()
        for place in self.brokers.values():
            await place.server.close()

    async def broker(self, code: str, **options: str) -> BrokerPlace:
        place = self.brokers[code] = BrokerPlace(code, **options)
        await place.open()
        self.publish()
        return place

    async def endpoint(
        self,
        code: str,
        *paths: MessagePath,
        direct: bool = False,
        settings: EndpointSettings | None = None,
        lines: LineSettings | None = None,
        trust: Trust | None = None,
    ) -> LiveEndpoint:
        one = LiveEndpoint(self, code, paths, settings, lines, trust or Trust())
        self.endpoints[code] = one
        if direct:
            await one.listen()
        self.publish()
        one.start()
        return one

    def publish(self, *, without: str = "") -> None:
        """What a synchronisation would bring; everybody hears of it."""
        roots = {"", *(one.trust.root for one in self.endpoints.values())}
        cas = [
            read_certificate(authority(root).ca, CertificateKind.INTEGRATED_CA)
            for root in sorted(roots)
        ]
        home = replace(component_directory(), certificates=tuple(cas))
        entries = [
            one.entry()
            for one in (*self.endpoints.values(), *self.brokers.values())
            if one.code != without
        ]
        self.directory = directory(home, *entries)
        for one in self.endpoints.values():
            one.lines.wake()
            one.door.check()

    def __getitem__(self, code: str) -> LiveEndpoint:
        return self.endpoints[code]
