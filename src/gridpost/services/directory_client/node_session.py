"""An endpoint at a node of MADES 1.1: its token, its acceptance, transfers and directory questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.https import Authorise
from gridpost.core.identifiers import clip
from gridpost.core.instant import Instant
from gridpost.core.message import Metadata
from gridpost.core.node import NodeComponent
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.version import MADES_1
from gridpost.services.directory_client.node_soap import NodeSoapClient
from gridpost.wire.mades11 import directory as directory_form
from gridpost.wire.mades11 import message as message_form
from gridpost.wire.mades11.forms import (
    SignedText,
    auth_token,
    boolean,
    container,
    number,
    required,
    text,
)
from gridpost.wire.mades11.services import (
    AUTHENTICATION,
    DIRECTORY,
    DOWNLOADED_CONTENT,
    MESSAGING,
)
from gridpost.wire.soap.envelope import Envelope
from gridpost.wire.soap.interface import Interface
from gridpost.wire.xml_text import element, optional

log = structlog.get_logger(__name__)

# A token is renewed before it ends, so that none ends on its way.
_AHEAD = timedelta(seconds=30)


class TokenSigner(Protocol):
    """The authentication certificate of this endpoint, and its key for short texts (Table 53)."""

    @property
    def certificate_id(self) -> str: ...

    def sign(self, text: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Refused:
    """Table 73."""

    message_id: str
    fatal: bool
    code: str
    error_id: str
    message: str


@dataclass(frozen=True, slots=True)
class UploadAnswer:
    uploaded: tuple[str, ...]
    refused: tuple[Refused, ...]


@dataclass(frozen=True, slots=True)
class Downloaded:
    """Table 38."""

    messages: tuple[tuple[Metadata, bytes], ...]
    unreadable: tuple[tuple[str, Refusal], ...]
    waiting: int


class NodeSession:
    """One node, as one endpoint knows it. `home`: where it registered, and what must accept it."""

    def __init__(
        self,
        client: NodeSoapClient,
        urls: Sequence[str],
        authorise: Authorise,
        code: str,
        signer: Callable[[], TokenSigner],
        now: Callable[[], datetime],
        *,
        home: bool = True,
        mversion: int = MADES_1,
        service_mversion: int = MADES_1,
    ) -> None:
        self._client = client
        self._urls = tuple(urls)
        self._authorise = authorise
        self._code = code
        self._signer = signer
        self._now = now
        self._home = home
        self._mversion = mversion
        self._service = service_mversion
        self._token: tuple[str, datetime] | None = None
        self._asking = asyncio.Lock()
        self.node_mversion: int | None = None

    # ------------------------------------------------------------ token and acceptance

    async def connect(self) -> None:
        """Cl. 4.2.2: after each token of the home node, ask to be accepted."""
        await self._auth()

    async def _auth(self) -> str:
        async with self._asking:
            if self._token is None or self._token[1] - _AHEAD <= self._now():
                self._token = await self._new_token()
                if self._home:
                    try:
                        await self._ask_acceptance(self._token[0])
                    except BaseException:
                        self._token = None
                        raise
        return self._signed(self._token[0])

    async def _new_token(self) -> tuple[str, datetime]:
        request = container("GetAuthenticationTokenRequest", element("componentCode", self._code))
        body = await self._call(AUTHENTICATION, "GetAuthenticationToken", [request])
        expiration = Instant.of_milliseconds(number(body.body, "expiration") or 0)
        return required(body.body, "authToken"), expiration.at

    async def _ask_acceptance(self, token: str) -> None:
        signer = self._signer()
        answer = await self._call(
            DIRECTORY,
            "SetComponentMversion",
            [
                container(
                    "SetComponentMversionRequest",
                    element("componentCode", self._code)
                    + element("signature", signer.sign(self._code))
                    + element("certificateID", signer.certificate_id)
                    + element("componentMVersion", str(self._mversion))
                    + self._signed(token),
                )
            ],
        )
        self.node_mversion = number(answer.body, "nodeMversion")
        if not boolean(answer.body, "acceptance"):
            raise Refusal(
                Rule.ENDPOINT_VERSION,
                f"the home node of MADES version {self.node_mversion} does not accept "
                f"{self._code} of version {self._mversion}",
            )

    def _signed(self, token: str) -> str:
        signer = self._signer()
        shown = SignedText(token, signer.sign(token), signer.certificate_id)
        return auth_token(shown) + element("serviceMversion", str(self._service))

    # ------------------------------------------------------------ messages

    async def upload(self, messages: Sequence[tuple[Metadata, bytes]]) -> UploadAnswer:
        """Cl. 5.3.3.3. Every id that was sent has to come back in exactly one list."""
        auth = await self._auth()
        texts, contents = [""], []
        for metadata, content in messages:
            before, after = message_form.encode(metadata)
            texts[-1] += before
            texts.append(after)
            contents.append(content)
        head, _, tail = container("UploadMessagesRequest", "\0").partition("\0")
        texts[0] = head + texts[0]
        texts[-1] += auth + tail
        answer = await self._call(MESSAGING, "UploadMessages", texts, contents)
        uploaded = tuple((e.text or "").strip() for e in answer.body.iterfind("uploadedMessages"))
        refused = tuple(
            Refused(
                text(e, "messageID").strip(),
                boolean(e, "fatal"),
                text(e, "errorCode"),
                text(e, "errorID"),
                text(e, "errorMessage"),
            )
            for e in answer.body.iterfind("notUploadedMessages")
        )
        told = [*uploaded, *(item.message_id for item in refused)]
        sent = {metadata.message_id for metadata, _ in messages}
        if len(set(told)) != len(told) or not set(told) <= sent:
            raise Refusal(
                Rule.BAD_VALUE, "the node answers with message IDs that were not uploaded, or twice"
            )
        return UploadAnswer(uploaded, refused)

    async def download(self) -> tuple[list[tuple[Metadata, bytes]], int]:
        """What can be read, and how many more wait."""
        found = await self.collect()
        return list(found.messages), found.waiting

    async def collect(self) -> Downloaded:
        """Cl. 5.3.3.4. One message that cannot be read does not keep the others back."""
        auth = await self._auth()
        signer = self._signer()
        request = container(
            "DownloadMessagesRequest",
            "<endpoints>"
            + element("code", self._code)
            + element("signature", signer.sign(self._code))
            + element("certificateID", signer.certificate_id)
            + "</endpoints>"
            + auth,
        )
        answer = await self._call(MESSAGING, "DownloadMessages", [request])
        messages: list[tuple[Metadata, bytes]] = []
        unreadable: list[tuple[str, Refusal]] = []
        for item in answer.body.iterfind("messages"):
            holder = item.find("content")
            found = None if holder is None else answer.document(holder)
            try:
                metadata = message_form.decode(item)
            except Refusal as refusal:
                unreadable.append((text(item, "messageID"), refusal))
                continue
            messages.append((metadata, b"" if found is None else found.read()))
        waiting = number(answer.body, "waitingMessages") or 0
        return Downloaded(tuple(messages), tuple(unreadable), waiting)

    async def confirm(self, message_ids: Sequence[str]) -> None:
        auth = await self._auth()
        ids = "".join(element("messageIDs", item) for item in message_ids)
        await self._call(
            MESSAGING, "ConfirmDownload", [container("ConfirmDownloadRequest", ids + auth)]
        )

    # ------------------------------------------------------------ directory

    async def certificate(
        self, code: str, kind: CertificateKind, certificate_id: str = ""
    ) -> tuple[Certificate, Instant] | None:
        auth = await self._auth()
        answer = await self._call(
            DIRECTORY,
            "GetCertificate",
            [
                container(
                    "GetCertificateRequest",
                    element("componentCode", code)
                    + element("type", kind)
                    + optional("certificateID", certificate_id)
                    + auth,
                )
            ],
        )
        return directory_form.read_certificate_answer(answer.body, kind)

    async def component(self, code: str) -> tuple[NodeComponent, Instant] | None:
        auth = await self._auth()
        request = container("GetComponentRequest", element("componentCode", code) + auth)
        answer = await self._call(DIRECTORY, "GetComponent", [request])
        found = answer.body.find("component")
        if found is None or len(found) == 0:
            return None
        expiration = Instant.of_milliseconds(number(found, "expiration") or 0)
        return directory_form.read_information(found), expiration

    async def _call(
        self,
        interface: Interface,
        operation: str,
        texts: Sequence[str],
        contents: Sequence[bytes] = (),
    ) -> Envelope:
        try:
            answer = await self._client.call(
                self._urls,
                self._authorise,
                operation,
                texts,
                contents,
                (DOWNLOADED_CONTENT,) if operation == "DownloadMessages" else (),
            )
        except Refusal as refusal:
            if refusal.rule is Rule.ACCESS_DENIED:
                # The token may be one that a restarted node has forgotten.
                self._token = None
            raise
        # Cl. 3.5.5: what comes back is checked as well.
        interface.schema.validate(answer.body)
        if answer.name != f"{{http://mades.entsoe.eu/}}{operation}Response":
            raise Refusal(Rule.BAD_VALUE, f"{operation} is answered with {clip(answer.name)}")
        return answer
