"""A node of MADES 1.1 with two endpoints of the old standard, which exchange sealed messages through it."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from gridpost.assembly.directory_configuration import read_certificates
from gridpost.assembly.directory_keys import DirectoryKeys
from gridpost.assembly.network import NetworkFiles, Placed
from gridpost.assembly.node_configuration import NodeConfiguration, read_node_configuration
from gridpost.assembly.node_papers import write_papers
from gridpost.assembly.root_ca import sign_request
from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.https import TlsCredentials
from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.core.instant import Instant
from gridpost.core.message import InternalMessage, InternalType, Metadata, SealedMessage
from gridpost.core.refusal import Refusal, Rule
from gridpost.demo.part import Done, ask, blaming, console_of, look, process_of
from gridpost.demo.processes import ComponentProcess
from gridpost.services.directory_client.node_session import NodeSession
from gridpost.services.directory_client.node_soap import NodeSoapClient, belongs_to
from gridpost.stores.keys import pkcs8
from gridpost.stores.keys.papers import PaperTokenSigner
from gridpost.stores.keys.rsa_operations import KeyOpener, KeySigner, generate, to_pkcs8
from gridpost.transports.https import ClientTls, HttpsClient
from gridpost.wire.seal import seal_message
from gridpost.wire.seal.opening import open_sealed
from gridpost.wire.x509 import public_key_bytes, read_certificate

ENDPOINTS = ("OLDGRID", "OLDMARKET")
AUTHENTICATION, SIGNING, ENCRYPTION = (
    CertificateKind.AUTHENTICATION,
    CertificateKind.SIGNING,
    CertificateKind.ENCRYPTION,
)
KINDS = (AUTHENTICATION, SIGNING, ENCRYPTION)
AUTHORITY_VALIDITY = timedelta(days=3650)
CONTACT = {
    "organization": "Demonstration",
    "person": "Operator",
    "email": "operator@example.invalid",
    "phone": "+00 000",
}
CONFIGURATION = """# The MADES 1.1 node of the demonstration.
component = "node"
code = "{code}"
home = "data"
roots = ["{root}"]

[contact]
organization = "{organization}"
person = "{person}"
email = "{email}"
phone = "{phone}"

[server]
host = "127.0.0.1"
port = {server}
urls = ["https://127.0.0.1:{server}/mades/1"]

[operations]
port = {operations}

"""


class NodePart:
    name: ClassVar[str] = "node"
    steps: ClassVar[tuple[str, ...]] = (
        "node listens", *(f"{code} registered" for code in ENDPOINTS),
        *(f"message of {code} opened" for code in ENDPOINTS),
    )  # fmt: skip

    def __init__(self, files: NetworkFiles, placed: Placed) -> None:
        self._files = files
        self._placed = placed
        self._process = process_of(files.folder, placed)

    @property
    def processes(self) -> tuple[ComponentProcess, ...]:
        return (self._process,)

    def prepare(self, at: datetime) -> None:
        file = self._placed.configuration
        file.touch(mode=0o600)
        file.write_text(
            CONFIGURATION.format(
                code=self._placed.code, root=self._files.root, **CONTACT, **self._placed.ports
            )
            + console_of(self._placed),
            encoding="utf-8",
        )
        keys = DirectoryKeys(read_node_configuration(file))
        if keys.authorities:
            return
        _, certificate = sign_request(
            self._files.root.parent, keys.request().read_bytes(), AUTHORITY_VALIDITY, at, None
        )
        signed = self._placed.folder / "integrated-ca.pem"
        signed.write_bytes(certificate)
        (der,) = read_certificates(signed)
        keys.install_authority(der, at)

    async def show(self, done: Done) -> dict[str, Any]:
        await self._process.start()
        done(self.steps[0])
        async with blaming(self._process, "endpoints of MADES 1.1"):
            configuration = read_node_configuration(self._placed.configuration)
            here = {entry["code"] for entry in await look(self._placed, "components")}
            endpoints = []
            for number, code in enumerate(ENDPOINTS, 1):
                endpoints.append(await self._enrol(code, code in here, configuration))
                done(self.steps[number])
            first, second = endpoints
            await first.send(second)
            done(self.steps[3])
            await second.send(first)
            done(self.steps[4])
        return {"endpoints": len(ENDPOINTS), "messages": 2, "opened": 2}

    async def _enrol(self, code: str, known: bool, configuration: NodeConfiguration) -> OldEndpoint:
        """Keys and certificates of an earlier start are used again."""
        papers = self._placed.folder / "endpoints" / code
        if not (papers / "roots.pem").exists():
            keys = {kind: await asyncio.to_thread(generate, 2048) for kind in KINDS}
            form: dict[str, Any] = {
                kind.value.lower(): {
                    "is": "key",
                    "der": b64encode(public_key_bytes(key.public_key())).decode("ascii"),
                }
                for kind, key in keys.items()
            }
            if known:
                # A start that was interrupted has lost the keys.
                told = await ask(self._placed, "renew", code=code, **form)
            else:
                told = await ask(self._placed, "register", code=code, mversion=1, **form, **CONTACT)
            write_papers(
                self._placed.configuration,
                papers,
                {kind.value.lower(): key for kind, key in keys.items()},
                {kind: b64decode(der) for kind, der in told["issued"].items()},
            )
        return OldEndpoint.of(code, papers, configuration)


class OldEndpoint:
    """An endpoint of MADES 1.1, as far as the demonstration needs one."""

    def __init__(
        self,
        code: str,
        keys: dict[CertificateKind, RSAPrivateKey],
        certificates: dict[CertificateKind, Certificate],
        node: NodeConfiguration,
    ) -> None:
        """Use `of`."""
        self.code = code
        self._keys, self.certificates = keys, certificates
        credentials = TlsCredentials(
            (certificates[AUTHENTICATION].der, DirectoryKeys(node).authorities[0].der),
            to_pkcs8(keys[AUTHENTICATION]),
            node.trusted_roots(),
        )
        signer = PaperTokenSigner(certificates[AUTHENTICATION], keys[AUTHENTICATION])
        self.session = NodeSession(
            NodeSoapClient(HttpsClient(ClientTls(lambda: credentials))),
            node.server.urls,
            belongs_to(node.code),
            code,
            lambda: signer,
            lambda: datetime.now(UTC),
            home=True,
        )

    @classmethod
    def of(cls, code: str, papers: Path, node: NodeConfiguration) -> OldEndpoint:
        keys, certificates = {}, {}
        for kind in KINDS:
            name = kind.value.lower()
            file = papers / f"{name}.key"
            keys[kind] = pkcs8.read(file.read_bytes(), None, str(file))
            der, *_ = read_certificates(papers / f"{name}.pem")
            certificates[kind] = read_certificate(der, kind)
        return cls(code, keys, certificates, node)

    async def send(self, other: OldEndpoint) -> None:
        """Sealed, uploaded, downloaded by the other, opened there, and confirmed."""
        document = f"<Demonstration><from>{self.code}</from></Demonstration>".encode()
        found = await self.session.certificate(other.code, ENCRYPTION)
        if found is None:
            raise Refusal(Rule.INTERNAL, f"the node knows no certificate of {other.code}")
        plain = InternalMessage(self._metadata(other.code), document)
        signer = KeySigner(self._keys[SIGNING], self.certificates[SIGNING])
        sealed = await seal_message(plain, signer, other.certificates[ENCRYPTION])
        answer = await self.session.upload([(sealed.metadata, bytes(sealed.body))])
        if answer.refused:
            raise Refusal(Rule.INTERNAL, f"the node refused {answer.refused[0]}")
        if await other.take(sealed.metadata.message_id, self) != document:
            raise Refusal(Rule.INTERNAL, f"{other.code} received another document")

    async def take(self, message_id: str, sender: OldEndpoint) -> bytes:
        messages, _ = await self.session.download()
        for metadata, body in messages:
            if metadata.message_id == message_id:
                opener = KeyOpener(self._keys[ENCRYPTION], self.certificates[ENCRYPTION])
                opened = await open_sealed(
                    SealedMessage(metadata, body), [opener], [sender.certificates[SIGNING]]
                )
                await self.session.confirm([message_id])
                return opened.message.content
        raise Refusal(Rule.INTERNAL, f"{self.code} did not find the message {message_id}")

    def _metadata(self, receiver: str) -> Metadata:
        now = datetime.now(UTC)
        return Metadata(
            message_id=MessageId(str(uuid4())),
            receiver_code=ComponentCode(receiver),
            message_type=MessageType("A01-SCHEDULE"),
            generated=Instant.of(now),
            expiration_time=Instant.of(now + timedelta(hours=1)),
            sender_code=ComponentCode(self.code),
            internal_type=InternalType.STANDARD_MESSAGE,
            message_mversion=1,
            sender_description=CONTACT["organization"],
        )
