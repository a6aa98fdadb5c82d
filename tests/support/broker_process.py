"""A broker as its own process, the directory that it knows, and endpoints that use it.

The directory is `support.fake_directory` in the test's own process; everything else is as an
operator has it: a configuration file, `gridpost broker register`, `gridpost broker run`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from gridpost.core.component import Component, ComponentType, Implementation
from gridpost.core.identifiers import ComponentCode, MessageType, new_message_id
from gridpost.core.instant import Instant
from gridpost.core.links import Outcome, Peer, ReceivedDelivery
from gridpost.core.message import InternalType, Metadata, SealedMessage
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.transports.amqp10 import AmqpClient, TlsCredentials
from gridpost.transports.amqp10.client import ClientConnection
from gridpost.transports.amqp10.tls import client_context
from gridpost.wire.directory import encode_bundle
from gridpost.wire.mades.amqp_message import encode
from gridpost.wire.x509 import to_pem
from support import amqp_frames
from support.amqp_frames import RawPeer
from support.builders import CONTACT
from support.fake_directory import PASSWORD, FakeDirectory
from support.pki import TestComponent
from support.waiting import eventually

CLI = [sys.executable, "-c", "from gridpost.cli import main; main()"]
ROOT = Path(__file__).parents[2]
CREDIT = 100


def pem_key(der: bytes) -> bytes:
    import base64

    lines = base64.encodebytes(der)
    return b"-----BEGIN PRIVATE KEY-----\n" + lines + b"-----END PRIVATE KEY-----\n"


def amqp_credentials(component: TestComponent, root: bytes, kind: Any = None) -> TlsCredentials:
    """What a component shows; `kind` chooses another certificate than the right one."""
    from gridpost.core.certificate import CertificateKind

    kind = kind or CertificateKind.AUTHENTICATION
    return TlsCredentials(
        chain_pem=to_pem(component.certificate(kind).der, component.issuer),
        key_pem=pem_key(to_pkcs8(component.keys[kind])),
        roots_pem=to_pem(root),
    )


class Inbox:
    """Keeps what a consumer gets, and accepts it unless told otherwise."""

    def __init__(self, *, accept: bool = True) -> None:
        self.deliveries: list[ReceivedDelivery] = []
        self.messages: list[bytes] = []
        self.accept = accept

    def __call__(self, delivery: ReceivedDelivery) -> None:
        self.messages.append(bytes(delivery.message))
        self.deliveries.append(delivery)
        if self.accept:
            delivery.accept()


@dataclass
class BrokerNetwork:
    """One directory, one broker, any number of endpoints."""

    folder: Path
    directory: FakeDirectory
    configuration: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    port: int = 0
    operations_port: int = 0
    process: asyncio.subprocess.Process | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)
    opened: list[ClientConnection] = field(default_factory=list)
    members: dict[str, TestComponent] = field(default_factory=dict)
    _reader: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ the broker

    @property
    def file(self) -> Path:
        return self.folder / "broker.toml"

    @property
    def home(self) -> Path:
        return self.folder / "b1"

    def configure(self, **sections: Any) -> None:
        """Write the configuration file; a section replaces the one of that name."""
        self.configuration |= sections
        lines = [
            'component = "broker"',
            'code = "B1"',
            'home = "b1"',
            'drain = "5s"',
            "[contact]",
            *(f'{name} = "{value}"' for name, value in vars_of(CONTACT).items()),
            "[server]",
            'host = "127.0.0.1"',
            f"port = {self.port}",
            'urls = ["amqps://b1.grid.example:5671"]',
            "[operations]",
            f"port = {self.operations_port}",
        ]
        defaults: dict[str, Any] = {
            "synchronisation": {"cycle": "300ms"},
            "queues": {"upkeep": "300ms"},
            "store": {"min_free": 0},
        }
        for name, section in (defaults | self.configuration).items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in section.items()]
        part = self.file.with_suffix(".part")
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
        part.rename(self.file)

    async def cli(self, *arguments: str, expect: int = 0, read: bool = True) -> Any:
        """What the command printed: its JSON or, unless `read`, what it said on stderr."""
        process = await asyncio.create_subprocess_exec(
            *CLI,
            *arguments,
            "--json",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment(GRIDPOST_BUNDLE_PASSWORD=PASSWORD),
        )
        out, err = await process.communicate()
        assert process.returncode == expect, err.decode()
        return json.loads(out) if read else err.decode()

    async def register(self) -> None:
        self.configure()
        bundle = self.folder / "bundle"
        bundle.write_bytes(encode_bundle(self.directory.bundle("B1")))
        self.directory.auto_approve = True
        result = await self.cli(
            "broker", "register", str(bundle), "--config", str(self.file), "--wait", "120"
        )
        assert result["state"] == "INSTALLED", result

    async def start(self) -> None:
        self.configure()
        self.lines.clear()
        self.process = await asyncio.create_subprocess_exec(
            *CLI, "broker", "run", "--config", str(self.file),
            stderr=asyncio.subprocess.PIPE, env=self._environment(),
        )  # fmt: skip
        self._reader = asyncio.create_task(self._read(self.process))
        await eventually(lambda: self.logged("listening") or self.ended, 240)
        assert not self.ended, self.lines
        (line,) = self.logged("listening")
        self.port, self.operations_port = line["port"], line["operations_port"]

    @property
    def ended(self) -> bool:
        return self.process is None or self.process.returncode is not None

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("event") == event]

    async def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        code = await self.process.wait()
        if self._reader is not None:
            await self._reader
        return code

    async def kill(self) -> None:
        await self.stop(signal.SIGKILL)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            try:
                self.lines.append(json.loads(line))
            except json.JSONDecodeError:
                self.lines.append({"event": "text", "text": line.decode("utf-8", "replace")})

    def _environment(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GRIDPOST_")}
        return kept | {"PYTHONPATH": str(ROOT / "src")} | self.environment | more

    async def ask(self, path: str, method: str = "GET", **options: Any) -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            url = f"http://127.0.0.1:{self.operations_port}{path}"
            return await client.request(method, url, **options)

    async def queue(self, code: str) -> dict[str, Any] | None:
        rows = (await self.ask("/queues")).json()
        return next((row for row in rows if row["queue"] == code), None)

    async def depth(self, code: str) -> int:
        found = await self.queue(code)
        return -1 if found is None else int(found["messages"])

    async def synchronised(self) -> None:
        """Until the broker has asked the directory twice more: the second answer was used."""
        for _ in range(2):
            self.directory.asked.clear()
            await asyncio.wait_for(self.directory.asked.wait(), 60)
        await asyncio.sleep(0.1)

    # ------------------------------------------------------------ endpoints

    def publish(self, member: TestComponent, type_: ComponentType = ComponentType.ENDPOINT) -> None:
        self.members[member.code] = member
        self.directory.others[member.code] = Component(
            member.code,
            type_,
            CONTACT,
            ComponentCode(self.directory.code),
            Implementation("2"),
            certificates=member.certificates,
        )

    def endpoint(self, code: str) -> TestComponent:
        member = self.directory.pki.component(code)
        self.publish(member)
        return member

    def revoke(self, code: str) -> None:
        del self.directory.others[code]

    def client(self, code: str, own: TlsCredentials | None = None, **options: Any) -> AmqpClient:
        shown = own or amqp_credentials(self.members[code], self.directory.pki.root)
        options = {"container": code, "tls": lambda: shown, "check": anyone, **options}
        ports = options.pop("ports", (self.port,))
        return AmqpClient([f"amqps://127.0.0.1:{port}" for port in ports], **options)

    async def connect(
        self, code: str, own: TlsCredentials | None = None, **options: Any
    ) -> ClientConnection:
        connection = await self.client(code, own, **options).connect()
        self.opened.append(connection)
        return connection

    async def raw(self, code: str) -> RawPeer:
        """A peer that is connected and has a session, for what no client of ours would do."""
        context = client_context(amqp_credentials(self.members[code], self.directory.pki.root))
        peer = RawPeer(*await asyncio.open_connection("127.0.0.1", self.port, ssl=context))
        await peer.greet()
        await peer.say(amqp_frames.open_(), amqp_frames.begin())
        return peer

    async def send(self, sender: str, receiver: str, *messages: bytes) -> list[Outcome]:
        connection = await self.connect(sender)
        producer = await connection.attach_producer(receiver)
        outcomes = [await producer.send(message) for message in messages]
        connection.close()
        await connection.lost
        return outcomes

    async def receive(self, code: str, count: int, seconds: float = 60) -> list[bytes]:
        inbox = Inbox()
        connection = await self.connect(code)
        await connection.attach_consumer(code, inbox, credit=CREDIT)
        await eventually(lambda: len(inbox.messages) >= count, seconds)
        await asyncio.sleep(0.05)
        connection.close()
        await connection.lost
        return inbox.messages

    async def close_connections(self) -> None:
        for connection in self.opened:
            connection.close()
        await asyncio.gather(*(connection.lost for connection in self.opened))
        self.opened.clear()


async def anyone(peer: Peer) -> None:
    """The broker's certificate is looked at by tests of its own."""


def vars_of(contact: Any) -> dict[str, str]:
    return {name: getattr(contact, name) for name in ("organization", "person", "email", "phone")}


def message(
    sender: str = "E1",
    receiver: str = "E2",
    message_type: str = "A01",
    body: bytes = b"sealed",
    *,
    message_id: str | None = None,
    kind: InternalType = InternalType.STANDARD_MESSAGE,
    lives: timedelta = timedelta(hours=1),
    now: datetime | None = None,
    change: Callable[[Metadata], Metadata] = lambda metadata: metadata,
) -> bytes:
    """An internal message as an endpoint would transfer it."""
    now = now or datetime.now(UTC)
    metadata = Metadata(
        message_id=new_message_id() if message_id is None else message_id,  # type: ignore[arg-type]
        receiver_code=ComponentCode(receiver),
        message_type=MessageType(message_type),
        generated=Instant.of(now),
        expiration_time=Instant.of(now + lives),
        sender_code=ComponentCode(sender),
        internal_type=kind,
    )
    return encode(SealedMessage(change(metadata), body), None, now)


def chosen_store() -> dict[str, Any]:
    """GRIDPOST_TEST_STORE=rabbitmq or postgres runs every test with a broker process so."""
    store = os.environ.get("GRIDPOST_TEST_STORE")
    from support import edges, postgres, rabbitmq

    if store == "rabbitmq":
        return edges.in_rabbitmq(rabbitmq.node_of_this_process())
    if store == "postgres":
        server = postgres.server_of_this_process()
        return edges.in_postgres(server, server.folder)
    return {}


@asynccontextmanager
async def broker_network(
    folder: Path, *, start: bool = True, endpoints: tuple[str, ...] = ("E1", "E2"), **sections: Any
) -> AsyncIterator[BrokerNetwork]:
    """A network in `folder`: registered anew, so that its directory may be anywhere."""
    directory = FakeDirectory()
    async with directory.running():
        network = BrokerNetwork(folder, directory)
        network.configuration = {**chosen_store(), **sections}
        for code in endpoints:
            network.endpoint(code)
        await network.register()
        try:
            if start:
                await network.start()
            yield network
            await network.close_connections()
        finally:
            if not network.ended:
                await network.kill()
