"""The services of a node (MADES 1.1 cl. 5.3): what a request asks for, and the answer in XML."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog
from lxml import etree

from gridpost.core.certificate import CertificateKind
from gridpost.core.identifiers import clip
from gridpost.core.instant import Instant
from gridpost.core.message_box import Content
from gridpost.core.node import NodeComponent
from gridpost.core.node_rules import check_registered, check_version_accepted, choose_certificate
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.version import nodes_synchronise, understands
from gridpost.services.node.authentication import Authentication
from gridpost.services.node.directory import NodeDirectory
from gridpost.services.node.messaging import Messaging, Outcome, Uploaded
from gridpost.wire.mades11 import directory as directory_form
from gridpost.wire.mades11 import message as message_form
from gridpost.wire.mades11.forms import (
    ServiceError,
    SignedText,
    container,
    error_elements,
    number,
    read_auth_token,
    required,
    text,
)
from gridpost.wire.soap.envelope import Envelope
from gridpost.wire.xml_text import element

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """The body of an answer: a content stands between each two texts."""

    texts: tuple[str, ...]
    contents: tuple[bytes, ...] = ()


Operation = Callable[[Envelope], Awaitable[Reply]]


class NodeOperations:
    def __init__(
        self,
        clock: Clock,
        directory: NodeDirectory,
        authentication: Authentication,
        messaging: Messaging,
    ) -> None:
        self._clock = clock
        self._directory = directory
        self._authentication = authentication
        self._messaging = messaging
        self.by_name: dict[str, Operation] = {
            "GetAuthenticationToken": self._token,
            "UploadMessages": self._upload,
            "DownloadMessages": self._download,
            "ConfirmDownload": self._confirm,
            "SetComponentMversion": self._set_mversion,
            "GetCertificate": self._certificate,
            "GetComponent": self._component,
            "GetNodeMversion": self._node_mversion,
            "GetAllDirectoryData": self._all_data,
        }

    # ------------------------------------------------------------ authentication

    async def _token(self, envelope: Envelope) -> Reply:
        body = envelope.body
        code = required(body, "componentCode").strip()
        token, expires = self._authentication.issue(code, number(body, "serviceMversion"))
        return _reply(
            "GetAuthenticationTokenResponse",
            element("authToken", token)
            + element("expiration", str(Instant.of(expires).milliseconds))
            + element("serviceMversion", str(self._directory.settings.mversion)),
        )

    def _client(self, body: etree._Element) -> NodeComponent:
        self._check_service(body)
        return self._authentication.client(read_auth_token(body))

    def _registered(self, body: etree._Element) -> NodeComponent:
        """Cl. 3.5.4."""
        client = self._client(body)
        return check_registered(client, client.code, self._directory.settings.code)

    def _check_service(self, body: etree._Element) -> None:
        asked, own = number(body, "serviceMversion"), self._directory.settings.mversion
        if asked is not None and not understands(own, asked):
            raise Refusal(
                Rule.ENDPOINT_VERSION,
                f"this node of MADES version {own} has no service of version {asked}",
            )

    # ------------------------------------------------------------ messages

    async def _upload(self, envelope: Envelope) -> Reply:
        client = self._client(envelope.body)
        with self._authentication.one_transfer(client.code, "UploadMessages"):
            found = list(envelope.body.iterfind("messages"))
            most = self._directory.settings.max_messages
            if len(found) > most:
                raise Refusal(Rule.LIMIT_EXCEEDED, f"a transfer has at most {most} messages")
            messages = await asyncio.to_thread(self._read_messages, found, envelope)
            outcomes = await self._messaging.upload(client.code, messages)
        return _reply(
            "UploadMessagesResponse",
            "".join(
                element("uploadedMessages", o.message_id) for o in outcomes if o.refused is None
            )
            + "".join(_not_uploaded(o, o.refused) for o in outcomes if o.refused is not None),
        )

    def _read_messages(self, found: list[etree._Element], envelope: Envelope) -> list[Uploaded]:
        messages: list[Uploaded] = []
        for item in found:
            holder = item.find("content")
            spooled = None if holder is None else envelope.document(holder)
            try:
                content = b"" if spooled is None else self._messaging.stage(spooled.file)
            except BaseException:
                self._messaging.discard(messages)
                raise
            messages.append(_read_message(item, content))
        return messages

    async def _download(self, envelope: Envelope) -> Reply:
        client = self._registered(envelope.body)
        asked = list(envelope.body.iterfind("endpoints"))
        if len(asked) != 1:
            raise Refusal(Rule.BAD_VALUE, "endpoints has exactly one element (Table 37)")
        shown = SignedText(
            required(asked[0], "code").strip(),
            required(asked[0], "signature"),
            required(asked[0], "certificateID"),
        )
        endpoint = self._authentication.check_component_id(shown)
        if endpoint.code != client.code:
            raise Refusal(
                Rule.ACCESS_DENIED, f"{client.code} downloads the messages of {endpoint.code}"
            )
        with self._authentication.one_transfer(client.code, "DownloadMessages"):
            messages, waiting = await self._messaging.download(endpoint.code)
        texts, contents = [""], []
        for metadata, content in messages:
            before, after = message_form.encode(metadata)
            texts[-1] += before
            texts.append(after)
            contents.append(content)
        texts[-1] += element("waitingMessages", str(waiting))
        whole = container("DownloadMessagesResponse", "\0")
        head, _, tail = whole.partition("\0")
        texts[0] = head + texts[0]
        texts[-1] += tail
        return Reply(tuple(texts), tuple(contents))

    async def _confirm(self, envelope: Envelope) -> Reply:
        client = self._registered(envelope.body)
        ids = [(item.text or "").strip() for item in envelope.body.iterfind("messageIDs")]
        with self._authentication.one_transfer(client.code, "ConfirmDownload"):
            await self._messaging.confirm(client.code, ids)
        return _reply("ConfirmDownloadResponse", "")

    # ------------------------------------------------------------ directory

    async def _set_mversion(self, envelope: Envelope) -> Reply:
        """Cl. 4.2.2: not accepted is an answer, not an error."""
        body, own = envelope.body, self._directory.settings
        client = self._authentication.client(read_auth_token(body))
        shown = SignedText(
            required(body, "componentCode").strip(),
            required(body, "signature"),
            required(body, "certificateID"),
        )
        wanted = number(body, "componentMVersion")
        try:
            endpoint = self._authentication.check_component_id(shown)
            if endpoint.code != client.code:
                raise Refusal(Rule.ACCESS_DENIED, f"{client.code} speaks for {clip(endpoint.code)}")
            check_registered(endpoint, endpoint.code, own.code)
            check_version_accepted(own.mversion, wanted or 0)
        except Refusal as refusal:
            log.warning(
                "endpoint rejected", endpoint=client.code, refusal=refusal.id,
                reason=refusal.message, mversion=wanted,
            )  # fmt: skip
            return _acceptance(own.mversion, False)
        await self._directory.set_mversion(endpoint.code, wanted or 0)
        return _acceptance(own.mversion, True)

    async def _certificate(self, envelope: Envelope) -> Reply:
        body = envelope.body
        self._registered(body)
        now = self._clock.now()
        found = choose_certificate(
            self._directory.find(required(body, "componentCode").strip()),
            CertificateKind(text(body, "type").strip()),
            text(body, "certificateID"),
            now,
        )
        expiration = now + self._directory.settings.ttl
        shown = "" if found is None else directory_form.certificate(found, expiration)
        return _reply("GetCertificateResponse", shown)

    async def _component(self, envelope: Envelope) -> Reply:
        body = envelope.body
        self._registered(body)
        found = self._directory.find(required(body, "componentCode").strip())
        expiration = self._clock.now() + self._directory.settings.ttl
        shown = "" if found is None else directory_form.information("component", found, expiration)
        return _reply("GetComponentResponse", shown)

    # ------------------------------------------------------------ nodes among themselves

    async def _node_mversion(self, envelope: Envelope) -> Reply:
        own = self._directory.settings
        return _reply(
            "GetNodeMversionResponse",
            element("mversion", str(own.mversion)) + element("nodeCode", own.code),
        )

    async def _all_data(self, envelope: Envelope) -> Reply:
        body, own = envelope.body, self._directory.settings
        asked = number(body, "serviceMversion")
        if asked is not None and not nodes_synchronise(own.mversion, asked):
            raise Refusal(
                Rule.ENDPOINT_VERSION,
                f"this node of MADES version {own.mversion} has no service of version {asked}",
            )
        known, current = number(body, "dversion"), self._directory.dversion
        content = element("dversion", str(current)) + element("nodeCode", own.code)
        if known is None or current > known:
            components = self._directory.own()
            content += await asyncio.to_thread(
                lambda: "".join(map(directory_form.description, components))
            )
        return _reply("GetAllDirectoryDataResponse", content)


def _read_message(item: etree._Element, content: Content) -> Uploaded:
    message_id = text(item, "messageID").strip()
    missing = [n for n in ("expirationTime", "messageMversion") if not text(item, n).strip()]
    if missing:
        # Table 61 requires them, the description does not: such a message is taken.
        log.warning(
            "message without what Table 61 requires", message_id=message_id, missing=missing
        )
    try:
        return Uploaded(message_id, message_form.decode(item), content)
    except Refusal as refusal:
        return Uploaded(message_id, None, content, refusal)


def _not_uploaded(outcome: Outcome, refused: Refusal) -> str:
    """Table 73."""
    told = ServiceError(refused.code, refused.id, refused.message, refused.details)
    return (
        "<notUploadedMessages>"
        + element("messageID", outcome.message_id)
        + element("fatal", "true" if outcome.fatal else "false")
        + error_elements(told)
        + "</notUploadedMessages>"
    )


def _acceptance(mversion: int, accepted: bool) -> Reply:
    return _reply(
        "SetComponentMversionResponse",
        element("nodeMversion", str(mversion))
        + element("acceptance", "true" if accepted else "false"),
    )


def _reply(name: str, content: str) -> Reply:
    return Reply((container(name, content),))
