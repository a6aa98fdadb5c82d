"""A network of MADES 1.1 on loopback: nodes with real TLS, real stores and endpoints that speak SOAP."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from gridpost.assembly.directory_keys import DirectoryKeys
from gridpost.assembly.node import RunningNode, running_node
from gridpost.assembly.node_configuration import NodeConfiguration, read_node_configuration
from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.https import TlsCredentials
from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.core.instant import Instant
from gridpost.core.message import InternalMessage, InternalType, Metadata, SealedMessage
from gridpost.core.node import NODE_MVERSION, RemoteNode
from gridpost.services.directory_client.node_session import NodeSession
from gridpost.services.directory_client.node_soap import NodeSoapClient, belongs_to
from gridpost.stores.keys.rsa_operations import KeyOpener, KeySigner, to_pkcs8
from gridpost.transports.free_port import free_port
from gridpost.transports.https import ClientTls, HttpsClient
from gridpost.wire.mades11.token_signature import sign_text
from gridpost.wire.seal import open_sealed, seal_message
from gridpost.wire.seal.opening import Opened
from gridpost.wire.seal.signing import sign
from gridpost.wire.x509 import public_key_bytes, read_certificate
from support.component_directory import TestClock
from support.directory_process import TestRoot
from support.pki import rsa_key

CONTACT = {"organization": "Grid of Examplia", "person": "P", "email": "e@x.example", "phone": "1"}
KINDS = (CertificateKind.AUTHENTICATION, CertificateKind.SIGNING, CertificateKind.ENCRYPTION)


@dataclass
class OldSigner:
    """services.directory_client.node_session.TokenSigner."""

    certificate: Certificate
    key: RSAPrivateKey

    @property
    def certificate_id(self) -> str:
        return self.certificate.certificate_id

    def sign(self, text: str) -> str:
        return sign_text(text, self.key)


@dataclass
class OldEndpoint:
    """An endpoint of MADES 1.1 with its keys, as its own administrator sees it."""

    code: str
    node: TestNode
    keys: dict[CertificateKind, RSAPrivateKey]
    certificates: dict[CertificateKind, Certificate]

    def certificate_id(self, kind: CertificateKind) -> str:
        return self.certificates[kind].certificate_id

    @property
    def token_signer(self) -> OldSigner:
        kind = CertificateKind.AUTHENTICATION
        return OldSigner(self.certificates[kind], self.keys[kind])

    @property
    def opener(self) -> KeyOpener:
        kind = CertificateKind.ENCRYPTION
        return KeyOpener(self.keys[kind], self.certificates[kind])

    def credentials(self) -> TlsCredentials:
        kind = CertificateKind.AUTHENTICATION
        return TlsCredentials(
            (self.certificates[kind].der, self.node.keys.authorities[0].der),
            to_pkcs8(self.keys[kind]),
            self.node.configuration.trusted_roots(),
        )

    def session(self, node: TestNode | None = None, **options: Any) -> NodeSession:
        """At its home node, or at another one."""
        to = node or self.node
        client = NodeSoapClient(HttpsClient(ClientTls(self.credentials)))
        options.setdefault("home", node is None)
        return NodeSession(
            client,
            [to.url],
            belongs_to(to.code),
            self.code,
            lambda: self.token_signer,
            to.clock.now,
            **options,
        )

    def metadata(self, to: str, **changes: Any) -> Metadata:
        now = self.node.clock.now()
        values: dict[str, Any] = {
            "message_id": MessageId(str(uuid4())),
            "receiver_code": ComponentCode(to),
            "message_type": MessageType("A01"),
            "generated": Instant.of(now),
            "expiration_time": Instant.of(now + timedelta(hours=1)),
            "sender_code": ComponentCode(self.code),
            "internal_type": InternalType.STANDARD_MESSAGE,
            "message_mversion": 1,
            "sender_description": "Grid of Examplia",
        }
        return Metadata(**(values | changes))

    async def message(
        self, to: OldEndpoint, content: bytes = b"<Document/>", **changes: Any
    ) -> tuple[Metadata, bytes]:
        """Signed by us and encrypted for `to`, as it travels."""
        plain = InternalMessage(self.metadata(to.code, **changes), content)
        signing = CertificateKind.SIGNING
        signer = KeySigner(self.keys[signing], self.certificates[signing])
        sealed = await seal_message(plain, signer, to.certificates[CertificateKind.ENCRYPTION])
        return sealed.metadata, sealed.body

    def acknowledgement(
        self, of: Metadata, kind: InternalType = InternalType.RECEIVE_ACKNOWLEDGEMENT
    ) -> tuple[Metadata, bytes]:
        """An unsigned one, about a message that we received."""
        return self.metadata(
            of.sender_code,
            message_type=of.message_type,
            internal_type=kind,
            related_message_id=of.message_id,
            expiration_time=of.expiration_time,
        ), b"-"

    async def opened(self, metadata: Metadata, body: bytes, sender: OldEndpoint) -> Opened:
        certificate = sender.certificates[CertificateKind.SIGNING]
        return await open_sealed(SealedMessage(metadata, body), [self.opener], [certificate])

    async def delivery_acknowledgement(
        self,
        metadata: Metadata,
        body: bytes,
        sender: OldEndpoint,
        form: Callable[[bytes], bytes] = b64encode,
        **changes: Any,
    ) -> tuple[Metadata, bytes]:
        """Event 4: signed, about a message from `sender` that we can read."""
        fingerprint = (await self.opened(metadata, body, sender)).fingerprint
        about, _ = self.acknowledgement(metadata, InternalType.DELIVERY_ACKNOWLEDGEMENT)
        kind = CertificateKind.SIGNING
        signed = await sign(
            InternalMessage(replace(about, **changes), form(fingerprint)),
            KeySigner(self.keys[kind], self.certificates[kind]),
        )
        return signed.metadata, signed.content


@dataclass
class TestNode:
    __test__ = False

    home: Path
    code: str
    root: TestRoot
    clock: TestClock = field(default_factory=lambda: TestClock(datetime.now(UTC)))
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    more_roots: list[TestRoot] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port = free_port()
        self.operations_port = free_port()
        self.file = self.home / "node.toml"
        self.home.mkdir(parents=True, exist_ok=True)
        self.write()
        self.running: RunningNode | None = None
        if not self.keys.authorities:
            self.root.certify(self.keys)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/mades/1"

    @property
    def configuration(self) -> NodeConfiguration:
        return read_node_configuration(self.file)

    @property
    def keys(self) -> DirectoryKeys:
        return DirectoryKeys(self.configuration)

    def write(self) -> None:
        sections: dict[str, dict[str, Any]] = {
            "contact": CONTACT,
            "server": {"host": "127.0.0.1", "port": self.port, "urls": [self.url]},
            "directory": {"cycle": "1h"},
            "operations": {"port": self.operations_port},
        }
        for name, values in self.options.items():
            sections[name] = sections.get(name, {}) | values
        lines = [
            'component = "node"',
            f'code = "{self.code}"',
            'home = "data"',
            f"roots = {json.dumps([str(r.file) for r in (self.root, *self.more_roots)])}",
        ]
        for name, values in sections.items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        self.file.write_text("\n".join(lines) + "\n")

    @asynccontextmanager
    async def run(self, mversion: int = NODE_MVERSION) -> AsyncIterator[RunningNode]:
        async with running_node(self.configuration, clock=self.clock, mversion=mversion) as running:
            self.running = running
            try:
                yield running
            finally:
                self.running = None

    async def ask(self, action: str, **form: Any) -> Any:
        assert self.running is not None
        return await self.running.administration.actions()[action]({"by": "test"} | form)

    def register_form(self, code: str, keys: dict[CertificateKind, RSAPrivateKey]) -> Any:
        return {
            kind.value.lower(): {
                "is": "key",
                "der": b64encode(public_key_bytes(key.public_key())).decode(),
            }
            for kind, key in keys.items()
        }

    async def endpoint(
        self, code: str, mversion: int | None = 1, key_name: str = ""
    ) -> OldEndpoint:
        keys = {kind: rsa_key(f"{key_name or code} {kind}") for kind in KINDS}
        form = self.register_form(code, keys) | CONTACT | {"code": code, "mversion": mversion}
        told = await self.ask("register", **form)
        return OldEndpoint(code, self, keys, issued(told))

    async def states(self, *codes: str) -> dict[str, str]:
        """Of messages to or from these endpoints."""
        return {
            m["message_id"]: m["state"]
            for m in await self.ask("messages")
            if not codes or {m["sender"], m["receiver"]} & set(codes)
        }


def issued(told: dict[str, Any]) -> dict[CertificateKind, Certificate]:
    from base64 import b64decode

    return {
        CertificateKind(kind.upper()): read_certificate(
            b64decode(der), CertificateKind(kind.upper())
        )
        for kind, der in told["issued"].items()
    }


def node_list(nodes: tuple[RemoteNode, ...]) -> bytes:
    """The file by which a central administrator tells every node of the others."""
    return "".join(" ".join((node.code, *node.urls)) + "\n" for node in nodes).encode()
