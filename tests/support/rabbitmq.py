"""pytest plugin: one private RabbitMQ node for the whole run, with TLS, EXTERNAL and its HTTP API.

Tests that must not meet use virtual hosts of their own: `rabbitmq.virtual_host()`. A test that
kills its node makes one for itself: `rabbitmq_node(folder)`.
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gridpost.bench._rabbitmq import Node, NodePlan
from gridpost.transports.amqp091 import Amqp091Client, Amqp091Tls
from support.strict_certificate import identified

EDGE = "edge"


@functools.cache
def _authority() -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("rabbitmq test root")
    builder = _builder(name, name, key).add_extension(x509.BasicConstraints(True, 0), True)
    builder = identified(builder, key.public_key(), key.public_key(), ca=True)
    return builder.sign(key, hashes.SHA256()), key


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
    )


def write_certificate(folder: Path, common: str, *, server: bool = False) -> Path:
    """chain.pem, key.pem and root.pem of one party, as operators of RabbitMQ have them."""
    root, root_key = _authority()
    key = ec.generate_private_key(ec.SECP256R1())
    usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = _builder(_name(common), root.subject, key).add_extension(
        x509.ExtendedKeyUsage([usage]), False
    )
    builder = identified(builder, key.public_key(), root_key.public_key(), ca=False)
    if server:
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
    certificate = builder.sign(root_key, hashes.SHA256())
    folder.mkdir(parents=True, exist_ok=True)
    pem = serialization.Encoding.PEM
    (folder / "chain.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "root.pem").write_bytes(root.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (folder / "key.pem").chmod(0o600)
    return folder


@dataclass
class Rabbit:
    """A running node, and certificates for whoever uses it."""

    node: Node
    folder: Path
    _certificates: dict[str, Path] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.node.url

    def certificate(self, user: str) -> Path:
        """The folder with chain.pem, key.pem and root.pem of a user."""
        if user not in self._certificates:
            self._certificates[user] = write_certificate(self.folder / f"client-{user}", user)
        return self._certificates[user]

    def tls(self, user: str) -> Amqp091Tls:
        folder = self.certificate(user)
        return Amqp091Tls(folder / "root.pem", folder / "chain.pem", folder / "key.pem")

    def client(self, user: str = EDGE, virtual_host: str = "/", **options: Any) -> Amqp091Client:
        return Amqp091Client(
            [self.url], virtual_host=virtual_host, tls=self.tls(user).context, **options
        )

    def api(self, method: str, path: str, body: object = None) -> httpx.Response:
        """The HTTP API of the management plugin, as its administrator."""
        plan, context = self.node.plan, Amqp091Tls(self.folder / "root.pem").context()
        with httpx.Client(verify=context, trust_env=False, timeout=60) as client:
            return client.request(
                method,
                f"https://localhost:{self.node.management_port}/api/{path}",
                json=body,
                auth=(plan.administrator, plan.password),
            )

    def user(self, name: str) -> str:
        """A user that logs in by certificate and may do nothing yet."""
        self.api("PUT", f"users/{name}", {"password_hash": "", "tags": ""}).raise_for_status()
        return name

    def permit(self, user: str, virtual_host: str, names: str = ".*") -> None:
        self.api(
            "PUT",
            f"permissions/{virtual_host}/{user}",
            {"configure": names, "write": names, "read": names},
        ).raise_for_status()

    def virtual_host(self, *users: str) -> str:
        """A new virtual host for these users, or for `edge`."""
        name = f"v-{uuid4().hex[:10]}"
        self.api("PUT", f"vhosts/{name}").raise_for_status()
        for user in users or (EDGE,):
            self.permit(user, name)
        return name


@contextmanager
def rabbitmq_node(folder: Path, *, users: Sequence[str] = (EDGE,), **plan: Any) -> Iterator[Rabbit]:
    write_certificate(folder, "localhost", server=True)
    node = Node(NodePlan(folder, users=users, management=True, **plan))
    node.start()
    try:
        yield Rabbit(node, folder)
    finally:
        node.kill()


@functools.cache
def node_of_this_process() -> Rabbit:
    """For helpers that are no fixtures; ends with the process."""
    resources = ExitStack()
    folder = Path(resources.enter_context(TemporaryDirectory(prefix="gridpost-rabbitmq-")))
    rabbit = resources.enter_context(rabbitmq_node(folder))
    atexit.register(resources.close)
    return rabbit


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    with rabbitmq_node(tmp_path_factory.mktemp("rabbitmq")) as rabbit:
        yield rabbit
