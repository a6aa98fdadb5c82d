"""A node of MADES 1.1 as a process of its own with two endpoints, for the bench `node`."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from gridpost.assembly.directory_keys import DirectoryKeys
from gridpost.assembly.node_configuration import NodeConfiguration, read_node_configuration
from gridpost.assembly.operations_token import bearer
from gridpost.assembly.root_ca import create_root, sign_request
from gridpost.bench._served import Served, peak_memory, serving
from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.https import HttpRequest, TlsCredentials
from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.core.instant import Instant
from gridpost.core.message import Entry, InternalType, Metadata, Processor, ValueType
from gridpost.services.directory_client.node_soap import belongs_to, compose, read_answer
from gridpost.stores.keys.rsa_operations import generate, to_pkcs8
from gridpost.transports.https import ClientTls, HttpsClient, Keeping
from gridpost.wire.mades11 import message as message_form
from gridpost.wire.mades11.forms import SignedText, auth_token, container, required
from gridpost.wire.mades11.services import DOWNLOADED_CONTENT
from gridpost.wire.mades11.token_signature import sign_text
from gridpost.wire.soap.envelope import Envelope
from gridpost.wire.soap.fault import envelope_text
from gridpost.wire.soap.version import SOAP_12
from gridpost.wire.x509 import from_pem, public_key_bytes, read_certificate
from gridpost.wire.xml_text import element

KINDS = (CertificateKind.AUTHENTICATION, CertificateKind.SIGNING, CertificateKind.ENCRYPTION)
CONTACT = {"organization": "bench", "person": "bench", "email": "b@bench.example", "phone": "0"}


@dataclass
class BenchEndpoint:
    code: str
    keys: dict[CertificateKind, RSAPrivateKey]
    certificates: dict[CertificateKind, Certificate]
    client: HttpsClient
    url: str
    auth: str = ""

    def metadata(self, to: BenchEndpoint) -> Metadata:
        """With the header of a sealed message; nodes see certificates, never contents."""
        now = datetime.now(UTC)

        def processor(name: str, certificate: Certificate, filler: int) -> Processor:
            return Processor(
                name,
                (
                    Entry("Certificate ID", ValueType.STRING, certificate.certificate_id),
                    Entry("Signature", ValueType.STRING, "x" * filler),
                ),
            )

        return Metadata(
            MessageId(str(uuid4())),
            ComponentCode(to.code),
            MessageType("A01"),
            Instant.of(now),
            Instant.of(now + timedelta(hours=1)),
            ComponentCode(self.code),
            InternalType.STANDARD_MESSAGE,
            processors=(
                processor("signature", self.certificates[CertificateKind.SIGNING], 900),
                processor("encryption", to.certificates[CertificateKind.ENCRYPTION], 344),
            ),
            message_mversion=1,
            sender_description="bench",
        )

    def signed(self, text: str) -> SignedText:
        kind = CertificateKind.AUTHENTICATION
        certificate_id = self.certificates[kind].certificate_id
        return SignedText(text, sign_text(text, self.keys[kind]), certificate_id)

    async def connect(self) -> None:
        request = container("GetAuthenticationTokenRequest", element("componentCode", self.code))
        answer = await self.call("GetAuthenticationToken", [request])
        token = required(answer.body, "authToken")
        self.auth = auth_token(self.signed(token)) + element("serviceMversion", "1")

    async def upload(
        self, messages: Sequence[tuple[Metadata, bytes]], *, mtom: bool = True
    ) -> None:
        texts, contents = [""], []
        for metadata, content in messages:
            before, after = message_form.encode(metadata)
            texts[-1] += before
            texts.append(after)
            contents.append(content)
        head, _, tail = container("UploadMessagesRequest", "\0").partition("\0")
        texts[0] = head + texts[0]
        texts[-1] += self.auth + tail
        answer = await self.call("UploadMessages", texts, contents, mtom=mtom)
        if len(list(answer.body.iterfind("uploadedMessages"))) != len(messages):
            raise RuntimeError("the node did not take every message")

    async def download(self, *, mtom: bool = True) -> dict[str, bytes]:
        """The documents by message ID."""
        shown = self.signed(self.code)
        request = container(
            "DownloadMessagesRequest",
            "<endpoints>"
            + element("code", shown.text)
            + element("signature", shown.signature)
            + element("certificateID", shown.certificate_id)
            + "</endpoints>"
            + self.auth,
        )
        answer = await self.call("DownloadMessages", [request], mtom=mtom)
        found = {}
        for item in answer.body.iterfind("messages"):
            holder = item.find("content")
            document = None if holder is None else answer.document(holder)
            found[required(item, "messageID")] = b"" if document is None else document.read()
        return found

    async def confirm(self, message_ids: Sequence[str]) -> None:
        ids = "".join(element("messageIDs", item) for item in message_ids)
        await self.call("ConfirmDownload", [container("ConfirmDownloadRequest", ids + self.auth)])

    async def call(
        self,
        operation: str,
        texts: Sequence[str],
        contents: Sequence[bytes] = (),
        *,
        mtom: bool = True,
    ) -> Envelope:
        body: bytes | tuple[bytes | memoryview, ...]
        if contents and not mtom:
            media_type, body = _inline(texts, contents)
        else:
            asks = mtom and operation == "DownloadMessages"
            media_type, body = compose(operation, texts, contents, attach=asks)
        answer = await self.client.request(
            HttpRequest("POST", "", body, media_type), urls=[self.url], authorise=belongs_to("NODE")
        )
        large = (DOWNLOADED_CONTENT,) if operation == "DownloadMessages" else ()
        return read_answer(answer.headers["content-type"], answer.pieces, large, operation)


def _inline(texts: Sequence[str], contents: Sequence[bytes]) -> tuple[str, bytes]:
    head, tail = envelope_text(SOAP_12)
    parts = [(head + texts[0]).encode()]
    for text, content in zip(texts[1:], contents, strict=True):
        parts += [b64encode(content), text.encode()]
    parts.append(tail.encode())
    return SOAP_12.content_type, b"".join(parts)


@dataclass(frozen=True)
class Site:
    one: BenchEndpoint
    two: BenchEndpoint
    process: int
    """Of the node."""

    def node_memory(self) -> float:
        """MiB at most so far."""
        return peak_memory(self.process)


@asynccontextmanager
async def node_site(folder: Path) -> AsyncIterator[Site]:
    now = datetime.now(UTC)
    create_root(folder / "root", "bench ROOT CA", "", timedelta(days=30), now, None)
    file = folder / "node.toml"
    file.write_text(
        f"""
component = "node"
code = "NODE"
home = "{folder}/node"
roots = ["{folder / "root" / "root.pem"}"]

[contact]
{"".join(f'{name} = "{value}"' + chr(10) for name, value in CONTACT.items())}
[server]
host = "127.0.0.1"
port = 0
urls = ["https://127.0.0.1"]

[operations]
port = 0
"""
    )
    configuration = read_node_configuration(file)
    keys = DirectoryKeys(configuration)
    _, pem = sign_request(
        folder / "root", keys.request().read_bytes(), timedelta(days=20), now, None
    )
    keys.install_authority(from_pem(pem)[0], now)
    with serving("node", file) as served:
        one, two = [await _endpoint(served, keys, configuration, code) for code in ("E1", "E2")]
        try:
            await one.connect()
            await two.connect()
            yield Site(one, two, served.process)
        finally:
            await one.client.close()
            await two.client.close()


async def _endpoint(
    node: Served, keys: DirectoryKeys, configuration: NodeConfiguration, code: str
) -> BenchEndpoint:
    made = {kind: generate() for kind in KINDS}
    form: dict[str, Any] = {
        kind.value.lower(): {
            "is": "key",
            "der": b64encode(public_key_bytes(key.public_key())).decode("ascii"),
        }
        for kind, key in made.items()
    }
    async with httpx.AsyncClient(headers=bearer(configuration.home), timeout=60) as administrator:
        answer = await administrator.post(
            f"http://127.0.0.1:{node.administration_port}/register",
            json={"by": "bench"} | form | CONTACT | {"code": code, "mversion": 1},
        )
    answer.raise_for_status()
    certificates = {
        kind: read_certificate(b64decode(answer.json()["issued"][kind.value.lower()]), kind)
        for kind in KINDS
    }
    authentication = CertificateKind.AUTHENTICATION
    credentials = TlsCredentials(
        (certificates[authentication].der, keys.authorities[0].der),
        to_pkcs8(made[authentication]),
        configuration.trusted_roots(),
    )
    client = HttpsClient(ClientTls(lambda: credentials), keeping=Keeping())
    url = f"https://127.0.0.1:{node.port}/mades/1"
    return BenchEndpoint(code, made, certificates, client, url)
