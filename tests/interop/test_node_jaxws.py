"""A node against JAX-WS, client and server that wsimport made: attachments, byte for byte."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_der_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate as Trusted
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    serialize_java_truststore,
    serialize_key_and_certificates,
)

from gridpost.assembly.clock import SystemClock
from gridpost.core.https import TlsCredentials
from gridpost.services.directory_client import node_soap
from gridpost.services.directory_client.node_session import NodeSession
from gridpost.services.directory_client.node_soap import NodeSoapClient, belongs_to
from gridpost.services.node import soap_api
from gridpost.transports.https import ClientTls, HttpsClient
from gridpost.wire.mades11 import message as message_form
from gridpost.wire.mades11.forms import container
from gridpost.wire.soap.mtom import MtomMessage, MtomType
from gridpost.wire.xml_text import element
from support.directory_process import TestRoot
from support.old_network import OldEndpoint, TestNode

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

HERE = Path(__file__).parent
WSDL = HERE.parents[1] / "src/gridpost/wire/schemas/mades11/MadesInternalMessaging.wsdl"
JARS = Path("/usr/share/java")
LIBRARIES = [
    *("jaxws-api", "jaxws-rt", "jaxb-api", "jaxb-core", "jaxb-runtime", "jws-api", "saaj-impl"),
    *("javax.activation", "stax-ex", "streambuffer", "metro-policy", "gmbal", "txw2", "mimepull"),
    *("istack-commons-runtime", "geronimo-annotation-1.3-spec"),
]
PASSWORD = "of the stores of this test"


async def run(*command: str, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(300):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def java(tmp_path_factory: pytest.TempPathFactory) -> str:
    if any(shutil.which(tool) is None for tool in ("wsimport", "javac", "java")):
        pytest.skip("a JDK or wsimport (Debian: jaxws) is missing")
    folder = tmp_path_factory.mktemp("jaxws")
    await run(
        "wsimport", "-quiet", "-Xnocompile", "-extension", "-s", str(folder), str(WSDL), cwd=folder
    )
    path = ":".join([str(folder), *(str(JARS / f"{name}.jar") for name in LIBRARIES)])
    sources = [str(file) for file in folder.rglob("*.java")]
    sources += [str(HERE / "jaxws" / f"{name}.java") for name in ("NodeClient", "NodeServer")]
    await run("javac", "-nowarn", "-cp", path, "-d", str(folder), *sources, cwd=folder)
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OldEndpoint]:
    clock: Any = SystemClock()
    root = TestRoot(tmp_path_factory.mktemp("root"))
    node = TestNode(tmp_path_factory.mktemp("N1"), "N1", root, clock=clock)
    async with node.run():
        yield await node.endpoint("E1")


def stores(shown: TlsCredentials, folder: Path) -> list[str]:
    """Key and trust for Java."""
    key: Any = load_der_private_key(shown.private_key, None)
    chain = [x509.load_der_x509_certificate(der) for der in shown.chain]
    locked = BestAvailableEncryption(PASSWORD.encode())
    (folder / "key.p12").write_bytes(
        serialize_key_and_certificates(b"own", key, chain[0], chain[1:], locked)
    )
    roots = [x509.load_der_x509_certificate(der) for der in shown.roots]
    trusted = [Trusted(root, b"root %d" % number) for number, root in enumerate(roots)]
    (folder / "roots.p12").write_bytes(serialize_java_truststore(trusted, locked))
    return [
        f"-Djavax.net.ssl.{name}={value}"
        for name, value in (
            ("keyStore", folder / "key.p12"), ("keyStoreType", "PKCS12"),
            ("keyStorePassword", PASSWORD), ("trustStore", folder / "roots.p12"),
            ("trustStoreType", "PKCS12"), ("trustStorePassword", PASSWORD),
        )
    ]  # fmt: skip


@pytest.mark.parametrize("version", ["1.1", "1.2"])
async def test_a_jax_ws_client_exchanges_attachments_with_our_node(
    one: OldEndpoint, java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    metadata, body = await one.message(one, os.urandom(1_000_001))
    signer, session = one.token_signer, one.session()
    last = await session._auth()
    before, after = message_form.encode(metadata)
    upload = container("UploadMessagesRequest", before + after + last)
    asked = (
        "<endpoints>" + element("code", one.code) + element("signature", signer.sign(one.code))
        + element("certificateID", signer.certificate_id) + "</endpoints>"
    )  # fmt: skip
    (tmp_path / "upload.xml").write_text(upload)
    (tmp_path / "download.xml").write_text(container("DownloadMessagesRequest", asked + last))
    (tmp_path / "document.bin").write_bytes(body)
    came, went = [], []
    read, of_many = MtomType.read, MtomMessage.of_many

    def reading(*said: Any) -> MtomType | None:
        found = read(*said)
        came.append(found is not None)
        return found

    def writing(*parts: Any) -> MtomMessage:
        made = of_many(*parts)
        went.append(made.size)
        return made

    monkeypatch.setattr(soap_api.MtomType, "read", reading)
    monkeypatch.setattr(soap_api.MtomMessage, "of_many", writing)
    options = stores(one.credentials(), tmp_path)
    told = await run(
        "java", *options, "-cp", java, "NodeClient", str(WSDL), one.node.url, version,
        str(tmp_path), cwd=tmp_path,
    )  # fmt: skip
    assert told.split() == [metadata.message_id, metadata.message_id]
    assert (tmp_path / "downloaded.bin").read_bytes() == body
    # As attachments, not as base64.
    assert came == [True, True]
    (size,) = went
    assert len(body) < size < 1.05 * len(body)
    await session.confirm([metadata.message_id])


async def test_our_client_exchanges_attachments_with_a_jax_ws_server(
    one: OldEndpoint, java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = one.node
    stores(node.keys.credentials(node.clock.now)(), tmp_path)
    server = await asyncio.create_subprocess_exec(
        "java", "-cp", java, "NodeServer", str(tmp_path), PASSWORD,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    try:
        port = int(await asyncio.wait_for(server.stdout.readline(), 120))
        answers: list[tuple[str, int]] = []
        read = node_soap.read_answer

        def reading(content_type: str, pieces: tuple[bytes, ...], *more: Any) -> Any:
            answers.append((content_type, sum(map(len, pieces))))
            return read(content_type, pieces, *more)

        monkeypatch.setattr(node_soap, "read_answer", reading)
        session = NodeSession(
            NodeSoapClient(HttpsClient(ClientTls(one.credentials))),
            [f"https://127.0.0.1:{port}/mades/1"], belongs_to("N1"), one.code,
            lambda: one.token_signer, node.clock.now, home=False,
        )  # fmt: skip
        # A token of somebody who does not look at it.
        session._token = ("token", node.clock.now() + timedelta(hours=1))
        metadata, body = await one.message(one, os.urandom(1_000_001))
        assert (await session.upload([(metadata, body)])).uploaded == (metadata.message_id,)
        assert (tmp_path / "uploaded.bin").read_bytes() == body
        assert await session.download() == ([(metadata, body)], 0)
        media, size = answers[-1]
        assert media.startswith("multipart/related")
        assert len(body) < size < 1.05 * len(body)
    finally:
        assert server.stdin is not None
        server.stdin.close()
        await asyncio.wait_for(server.wait(), 60)
