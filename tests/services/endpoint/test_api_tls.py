"""The JSON API over HTTPS: with a client certificate or a password, through the real client."""

from __future__ import annotations

import hashlib
import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gridpost.assembly.endpoint import _api
from gridpost.assembly.endpoint_configuration import ApiSection
from gridpost.client import AsyncEndpoint
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.events import Events
from gridpost.services.endpoint.evidence import Evidence
from gridpost.services.endpoint.explaining import Explaining
from gridpost.services.endpoint.json_api import JsonApi
from gridpost.services.endpoint.users import User, Users
from gridpost.services.operations.passwords import hash_password
from gridpost.transports.https import client_chain
from support.pki import rsa_key
from support.post import World

ALL = (MessageTypePattern("*"),)


def issued(
    folder: Path, name: str, issuer: str, *, ca: bool = False
) -> tuple[Path, Path, x509.Certificate]:
    """A certificate and its key as PEM files; `issuer` is the name of the key that signs."""
    key, now = rsa_key(name), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    by = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(rsa_key(issuer), hashes.SHA256())
    )
    files = folder / f"{name}.pem", folder / f"{name}.key"
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return *files, certificate


@pytest.mark.req("503-5.8.2-a")
async def test_applications_are_known_by_certificate_or_password_over_https(tmp_path: Path) -> None:
    ca, _, _ = issued(tmp_path, "Office CA", "Office CA", ca=True)
    shown, key, _ = issued(tmp_path, "api", "Office CA")
    robot, robot_key, certificate = issued(tmp_path, "robot", "Office CA")
    stranger, stranger_key, _ = issued(tmp_path, "stranger", "Office CA")
    fingerprint = hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
    one = World()["E1"]
    api = JsonApi(
        one.context,
        Users(
            [
                User("robot", certificate=fingerprint, send=ALL),
                User("person", hash_password("secret"), send=ALL),
            ]
        ),
        one.submission,
        one.handover,
        one.enquiry,
        Explaining(one.context, one.enquiry, list),
        Evidence(one.context),
        Events(one.context.signals),
        client_chain,
    )
    section = ApiSection(port=0, certificate=shown, key=key, client_roots=(ca,))
    configuration: Any = SimpleNamespace(api=section, max_content=1000)
    core: Any = SimpleNamespace(api=api)
    async with _api(configuration, core) as port:
        url = f"https://127.0.0.1:{port}"
        async with AsyncEndpoint(url, certificate=robot, key=robot_key, ca=ca) as by_certificate:
            sent = await by_certificate.send("E2", "A01", b"x")
        async with AsyncEndpoint(url, user="person", password="secret", ca=ca) as by_password:
            assert (await by_password.status(sent)).status == "ACCEPTED"
        async with AsyncEndpoint(url, certificate=stranger, key=stranger_key, ca=ca) as unknown:
            with pytest.raises(Refusal) as refused:
                await unknown.send("E2", "A01", b"x")
            assert refused.value.rule is Rule.ACCESS_DENIED
        async with AsyncEndpoint(url, user="person", password="secret") as careful:
            with pytest.raises(Refusal) as refused:
                await careful.status(sent)
            assert refused.value.rule is Rule.UNREACHABLE
    entry = (await one.enquiry.search(_everything(), 1, None))[0][0]
    assert entry.application == "robot"


def _everything() -> Any:
    from gridpost.core.message_box import Search

    return Search()
