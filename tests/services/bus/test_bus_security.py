"""Security of a bus's web services: TLS with client certificates, users, and signatures of the body."""

from __future__ import annotations

import base64
import hashlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from lxml import etree

from gridpost.core.refusal import Refusal
from gridpost.envelope import Result, Sender
from gridpost.services.operations.passwords import hash_password
from gridpost.wire.envelope import decode_element, element_text
from gridpost.wire.soap.security import DS, SECURITY, BodyVerifier
from support.bus_site import CONTEXT
from support.bus_web import CONTENT_TYPES, child, web_bus
from support.papers import Paper, paper
from support.soap import envelope


@pytest.fixture(scope="module")
def root() -> Paper:
    return paper("Root")


@pytest.fixture(scope="module")
def known(root: Paper) -> Paper:
    return paper("EMS", root)


def soap(body: str, version: str = "1.1") -> bytes:
    return envelope(version, body).encode()


@pytest_asyncio.fixture
async def signed_bus(rabbitmq, tmp_path: Path, root: Paper, known: Paper) -> AsyncIterator:
    root.write(tmp_path, "root")
    known.write(tmp_path, "own")
    security = {
        "verify": True,
        "roots": tmp_path / "root.pem",
        "certificate": tmp_path / "own.pem",
        "key": tmp_path / "own.key",
    }
    web = {"port": 0, "security": security}
    async with web_bus(rabbitmq, tmp_path, web=web) as site:
        yield site


@pytest.mark.req("100-9-b", component="wsdl")
@pytest.mark.req("100-9-b", component="transport")
async def test_a_body_that_is_not_signed_by_somebody_known_is_refused(
    signed_bus, root: Paper, known: Paper
) -> None:
    site = signed_bus
    text = element_text(site.sender.request("get", "Notes", ids=["a"]))

    async def post(body: bytes, version: str = "1.1") -> httpx.Response:
        headers = {"content-type": CONTENT_TYPES[version]}
        return await site.web.post(site.url + "/soap", content=body, headers=headers)

    for version in ("1.1", "1.2"):
        answer = await post(known.signer().sign(soap(text, version)), version)
        assert answer.status_code == 200, answer.text
        assert decode_element(child(answer.content)).reply.result is Result.OK
        # The answer is signed too.
        trusted: list[bytes] = []
        verifier = BodyVerifier(trusted.append, lambda: datetime.now(UTC))
        assert verifier.verify(etree.fromstring(answer.content)) == trusted[0]
    good = known.signer().sign(soap(text))
    stranger = paper("EMS", paper("Root"))
    old = known.signer(datetime.now(UTC) - timedelta(hours=3))
    bad = {
        "not signed": soap(text),
        "changed": good.replace(b"<ID>a</ID>", b"<ID>b</ID>"),
        "stranger": stranger.signer().sign(soap(text)),
        "old": old.sign(soap(text)),
        "wrapped": _wrapped(good, text),
    }
    for name, body in bad.items():
        refused = await post(body)
        assert refused.status_code == 500, name
        assert "Result>FAILED" in refused.text, name


def _wrapped(good: bytes, text: str) -> bytes:
    """The signed body is moved into the header, and another one takes its place."""
    tree = etree.fromstring(good)
    header, body = tree
    header.append(body)
    other = etree.fromstring(soap(text.replace("<ID>a</ID>", "<ID>stolen</ID>")))
    tree.append(other[-1])
    return etree.tostring(tree)


def test_digests_and_signature_are_those_of_xml_signature(known: Paper) -> None:
    """Computed here once more, from the canonical bytes of each part."""
    signed = known.signer().sign(soap('<a xmlns="urn:a"/>'))
    tree = etree.fromstring(signed)
    for reference in tree.iter(f"{{{DS}}}Reference"):
        mark = reference.get("URI", "")[1:]
        (part,) = tree.xpath("//*[@*[local-name()='Id']=$mark]", mark=mark)
        data = etree.tostring(part, method="c14n", exclusive=True)
        value = base64.b64encode(hashlib.sha256(data).digest()).decode()
        assert value == reference.findtext(f"{{{DS}}}DigestValue")
    info = tree.find(f".//{{{DS}}}SignedInfo")
    known.key.public_key().verify(
        base64.b64decode(tree.findtext(f".//{{{DS}}}SignatureValue") or ""),
        etree.tostring(info, method="c14n", exclusive=True),
        padding.PKCS1v15(),
        hashes.SHA256(),
    )


@pytest.mark.parametrize("cut", ["Timestamp", "BinarySecurityToken", "Signature"])
def test_a_signature_with_a_part_missing_is_refused(known: Paper, cut: str) -> None:
    tree = etree.fromstring(known.signer().sign(soap('<a xmlns="urn:a"/>')))
    security = tree.find(f".//{SECURITY}")
    (part,) = [e for e in security if etree.QName(e).localname == cut]
    security.remove(part)
    with pytest.raises(Refusal):
        BodyVerifier(lambda der: None, lambda: datetime.now(UTC)).verify(tree)


@pytest.mark.req("100-9-a", component="transport")
async def test_only_known_clients_with_tls_and_a_password_are_served(
    rabbitmq, tmp_path: Path, root: Paper, known: Paper
) -> None:
    root.write(tmp_path, "root")
    known.write(tmp_path, "client")
    paper("localhost", root).write(tmp_path, "server")
    web = {
        "port": 0,
        "certificate": tmp_path / "server.pem",
        "key": tmp_path / "server.key",
        "client_roots": tmp_path / "root.pem",
        "users": ({"name": "ems", "password": hash_password("secret")},),
    }
    async with web_bus(rabbitmq, tmp_path, web=web) as site:
        url = f"https://localhost:{site.running.web_port}/bus/{CONTEXT}"
        body = soap(element_text(Sender("EMS", CONTEXT).request("get", "Notes", ids=["a"])))
        headers = {"content-type": "text/xml"}
        context = ssl.create_default_context(cafile=str(tmp_path / "root.pem"))
        context.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
        async with httpx.AsyncClient(verify=context, timeout=60) as client:
            for auth, status in ((("ems", "secret"), 200), (("ems", "wrong"), 401), (None, 401)):
                answer = await client.post(url + "/soap", content=body, headers=headers, auth=auth)
                assert answer.status_code == status
            rest = await client.get(f"{url}/rest/Notes/a")
            assert rest.status_code == 401
        bare = ssl.create_default_context(cafile=str(tmp_path / "root.pem"))
        async with httpx.AsyncClient(verify=bare, timeout=60) as unknown:
            # The server's alert reaches the client, which does not wrap it.
            with pytest.raises((httpx.TransportError, ssl.SSLError)):
                await unknown.post(url + "/soap", content=body, headers=headers)
        async with httpx.AsyncClient(timeout=60) as plain:
            with pytest.raises(httpx.TransportError):
                await plain.post(url.replace("https", "http") + "/soap", content=body)
