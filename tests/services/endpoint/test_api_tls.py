"""JSON and SOAP over HTTPS: with a client certificate or a password, through real clients."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
import zeep
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from lxml import etree
from prometheus_client import CollectorRegistry

from gridpost.assembly.endpoint_channels_configuration import ApiSection
from gridpost.assembly.endpoint_ports import serve_api
from gridpost.client import AsyncEndpoint
from gridpost.core.channels import Channel
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.dispatch import Dispatcher
from gridpost.services.endpoint.events import Events
from gridpost.services.endpoint.evidence import Evidence
from gridpost.services.endpoint.explaining import Explaining
from gridpost.services.endpoint.json_api import JsonApi
from gridpost.services.endpoint.operating import Operating
from gridpost.services.endpoint.request_counts import RequestCounts
from gridpost.services.endpoint.soap_api import SoapApi
from gridpost.services.endpoint.soap_operations import SoapOperations
from gridpost.services.endpoint.users import User, Users
from gridpost.services.operations.passwords import hash_password
from gridpost.transports.https import client_chain
from support.pki import rsa_key
from support.post import World
from support.strict_certificate import identified

ALL = (MessageTypePattern("*"),)


def issued(
    folder: Path, name: str, issuer: str, *, ca: bool = False
) -> tuple[Path, Path, x509.Certificate]:
    """A certificate and its key as PEM files; `issuer` is the name of the key that signs."""
    key, now = rsa_key(name), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    by = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)])
    builder = (
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
    )
    signer = rsa_key(issuer)
    certificate = identified(builder, key.public_key(), signer.public_key(), ca=ca).sign(
        signer, hashes.SHA256()
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
        Operating(one.context, one.submission, Dispatcher(one.context, one.transfer)),
    )
    section = ApiSection(port=0, certificate=shown, key=key, client_roots=(ca,))
    configuration: Any = SimpleNamespace(api=section, max_content=1000)
    core: Any = SimpleNamespace(api=api, soap=None, old_soap=None)
    async with serve_api(configuration, core) as port:
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
    assert entry.application == "json/robot"


async def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    ca, _, _ = issued(tmp_path, "Office CA", "Office CA", ca=True)
    shown, key, first = issued(tmp_path, "api", "Office CA")
    later = tmp_path / "later"
    later.mkdir()
    renewed, renewed_key, second = issued(later, "renewed", "Office CA")
    section = ApiSection(port=0, certificate=shown, key=key)
    configuration: Any = SimpleNamespace(api=section, max_content=1000)
    core: Any = SimpleNamespace(
        api=SimpleNamespace(app=lambda: None), soap=None, old_soap=None
    )  # nobody gets as far as a request
    context = ssl.create_default_context(cafile=ca)
    async with serve_api(configuration, core) as port:

        async def server() -> bytes | None:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(True)
            writer.transport.abort()
            return found

        assert await server() == first.public_bytes(Encoding.DER)
        renewed.replace(shown)
        # Its key is not there yet: what was read before goes on.
        assert await server() == first.public_bytes(Encoding.DER)
        renewed_key.replace(key)
        assert await server() == second.public_bytes(Encoding.DER)


@pytest.mark.req("503-10-m")
async def test_soap_over_https_takes_a_certificate_or_a_password_and_nothing_else(
    tmp_path: Path,
) -> None:
    ca, _, _ = issued(tmp_path, "Office CA", "Office CA", ca=True)
    shown, key, _ = issued(tmp_path, "api", "Office CA")
    robot, robot_key, certificate = issued(tmp_path, "robot", "Office CA")
    stranger, stranger_key, _ = issued(tmp_path, "stranger", "Office CA")
    fingerprint = hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
    one = World()["E1"]
    users = Users(
        [
            User("robot", certificate=fingerprint, send=ALL),
            User("person", hash_password("secret"), send=ALL),
        ]
    )
    soap = SoapApi(
        one.context,
        users,
        SoapOperations(one.context, users, one.submission, one.handover, one.enquiry),
        client_chain,
        BytesIO,
        RequestCounts(CollectorRegistry()),
    )
    section = ApiSection(
        port=0, certificate=shown, key=key, client_roots=(ca,), channels=(Channel.SOAP,)
    )
    configuration: Any = SimpleNamespace(api=section, max_content=100_000)
    core: Any = SimpleNamespace(api=SimpleNamespace(app=lambda: None), soap=soap, old_soap=soap)

    def send(
        url: str, pair: tuple[Path, Path] | None = None, auth: tuple[str, str] | None = None
    ) -> str:
        with requests.Session() as session:
            session.trust_env = False
            session.verify = str(ca)
            session.cert = None if pair is None else (str(pair[0]), str(pair[1]))
            session.auth = auth
            client = zeep.Client(url + "?wsdl", transport=zeep.Transport(session=session))
            service = client.bind("MadesEndpointV2Service", "MadesEndpointSOAP12")
            message = {"receiverCode": "E2", "messageType": "A01", "content": b"x" * 50_000}
            return str(service.SendMessage(message=message))

    async with serve_api(configuration, core) as port:
        url = f"https://127.0.0.1:{port}/mades/2"
        by_certificate = await asyncio.to_thread(send, url, (robot, robot_key))
        by_password = await asyncio.to_thread(send, url, None, ("person", "secret"))
        for refused in ((), ((stranger, stranger_key),), (None, ("person", "guessed"))):
            with pytest.raises(zeep.exceptions.Fault) as fault:
                await asyncio.to_thread(send, url, *refused)
            assert "AUTHENTICATION_ERROR" in etree.tostring(fault.value.detail).decode()
        # Plain HTTP gets no answer from a port that speaks TLS.
        with pytest.raises(requests.ConnectionError):
            await asyncio.to_thread(send, url.replace("https", "http"))
    found, _ = await one.enquiry.search(_everything(), 10, None)
    assert {(e.application, e.message_id) for e in found} == {
        ("soap/robot", by_certificate),
        ("soap/person", by_password),
    }


def _everything() -> Any:
    from gridpost.core.message_box import Search

    return Search()
