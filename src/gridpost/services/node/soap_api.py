"""The services of a node over SOAP: which one is meant, how it is answered, how a refusal becomes a fault."""

from __future__ import annotations

import copy
import errno
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import structlog
from lxml import etree
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gridpost.core.journal import refusal_row
from gridpost.core.node_ports import NodeStore
from gridpost.core.ports import Clock
from gridpost.core.refusal import Code, Refusal, Rule
from gridpost.core.refusal import Fault as AtFault
from gridpost.services.node.operations import NodeOperations, Reply
from gridpost.services.node.settings import NodeSettings
from gridpost.wire.mades11.forms import ServiceError, error
from gridpost.wire.mades11.services import NODE_INTERFACES, tag
from gridpost.wire.soap.base64_text import encode_pieces, encoded_size
from gridpost.wire.soap.envelope import Envelope, EnvelopeLimits, EnvelopeReader
from gridpost.wire.soap.fault import Fault, FaultCode, SoapError, envelope_text, render
from gridpost.wire.soap.interface import Interface, Operation
from gridpost.wire.soap.mtom import MtomMessage, MtomReader, MtomType
from gridpost.wire.soap.version import MediaType

log = structlog.get_logger(__name__)

PATH = "/mades/1"

# Table 15 for what the catalogue of rules sees as a mistake of a peer.
_CODES = {
    Rule.MALFORMED_XML: Code.INVALID_PARAMETERS,
    Rule.FORBIDDEN_XML: Code.INVALID_PARAMETERS,
    Rule.SCHEMA_INVALID: Code.INVALID_PARAMETERS,
    Rule.BAD_VALUE: Code.INVALID_PARAMETERS,
    Rule.FIELD_MISSING: Code.INVALID_PARAMETERS,
    Rule.LIMIT_EXCEEDED: Code.INVALID_PARAMETERS,
    Rule.SOAP_FORM: Code.INVALID_PARAMETERS,
}


class NodeSoapApi:
    """An ASGI application. One URL takes all requests; each interface has its own one as well."""

    def __init__(
        self,
        operations: NodeOperations,
        settings: NodeSettings,
        store: NodeStore,
        clock: Clock,
    ) -> None:
        self._operations = operations
        self.settings = settings
        self._store = store
        self._clock = clock
        self.counts: Counter[tuple[str, str]] = Counter()
        """By operation and outcome."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        request = Request(scope, receive)
        response = await self._respond(request)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        name = request.url.path.rstrip("/").rpartition("/")[2]
        chosen = NODE_INTERFACES.get(name)
        interfaces = tuple(NODE_INTERFACES.values()) if chosen is None else (chosen,)
        if request.method == "POST":
            return await self._post(request, interfaces)
        if request.method == "GET" and any(k.lower() == "wsdl" for k in request.query_params):
            if chosen is None:
                names = ", ".join(f"{PATH}/{known}?wsdl" for known in NODE_INTERFACES)
                return PlainTextResponse(f"the descriptions are at {names}\n", 404)
            url = f"{self.settings.urls[0].rstrip('/')}/{name}"
            return Response(chosen.wsdl(url), media_type="text/xml")
        told = "POST a SOAP request; GET with ?wsdl describes a service\n"
        return PlainTextResponse(told, 405, {"allow": "GET, POST"})

    async def _post(self, request: Request, interfaces: tuple[Interface, ...]) -> Response:
        said = request.headers.get("content-type", ""), request.headers.get("soapaction")
        limits = EnvelopeLimits(
            self.settings.max_content,
            self.settings.max_envelope,
            max_documents=max(2, self.settings.max_messages),
        )
        large = tuple(path for interface in interfaces for path in interface.large)
        reader: EnvelopeReader | MtomReader
        try:
            mtom = MtomType.read(*said)
            media = MediaType.read(*said) if mtom is None else mtom.media
            reader = (
                EnvelopeReader(media.version, large, limits, self._store.arriving)
                if mtom is None
                else MtomReader(mtom, large, limits, self._store.arriving)
            )
        except Refusal as refusal:
            await self._note("", refusal, _peer(request))
            return PlainTextResponse(refusal.message + "\n", 415)
        operation: Operation | None = None
        try:
            async for chunk in request.stream():
                reader.feed(chunk)
            envelope = reader.close()
            interface, operation = _choose(interfaces, envelope, media.action)
            interface.schema.validate(_tolerated(envelope.body))
            reply = await self._operations.by_name[operation.name](envelope)
            self.counts[operation.name, "answered"] += 1
            # Whoever sends attachments, or asks for them, understands them.
            wanted = "multipart/related" in request.headers.get("accept", "").lower()
            return _response(media, reply, attach=mtom is not None or wanted)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        except Refusal as refusal:
            found = refusal
        except OSError as failed:
            full = failed.errno in (errno.ENOSPC, errno.EDQUOT)
            rule = Rule.STORE_FULL if full else Rule.INTERNAL
            found = Refusal(rule, "the request could not be kept", str(failed))
        except Exception:
            found = Refusal(Rule.INTERNAL, "unexpected error")
            log.exception("unexpected error", refusal=found.id)
        finally:
            reader.discard()
        name = operation.name if operation else _named(interfaces, reader.name)
        await self._note(name, found, _peer(request))
        fault = _fault(found, name)
        return Response(
            render(media.version, fault).encode(),
            fault.status(media.version),
            media_type=media.version.content_type,
        )

    async def _note(self, operation: str, refusal: Refusal, peer: str) -> None:
        """Every error id that a peer was told stands in log and journal."""
        self.counts[operation or "unknown", refusal.code.value] += 1
        log.warning(
            "request refused", operation=operation, refusal=refusal.id, rule=refusal.rule.name,
            reason=refusal.message, details=refusal.details, peer=peer,
        )  # fmt: skip
        row = refusal_row(
            refusal,
            self._clock.now(),
            peer=peer,
            security=refusal.code is Code.AUTHENTICATION_ERROR,
        )
        try:
            await self._store.run(lambda unit: unit.journal.append(row))
        except Refusal as failed:
            log.error("refusal not journalled", refusal=refusal.id, reason=failed.message)


def _peer(request: Request) -> str:
    """Where it came from: whoever was refused may not be who it says it is."""
    return "" if request.client is None else request.client.host


def _choose(
    interfaces: tuple[Interface, ...], envelope: Envelope, action: str
) -> tuple[Interface, Operation]:
    for interface in interfaces:
        if interface.find(envelope.name) is not None:
            return interface, interface.choose(envelope, action)
    return interfaces[0], interfaces[0].choose(envelope, action)


def _tolerated(body: etree._Element) -> etree._Element:
    """What tables and WSDL see differently is read either way (see divergences, MADES 1.1)."""
    if body.tag == tag("GetAuthenticationTokenRequest"):
        shown = copy.deepcopy(body)
        for extra in shown.findall("serviceMversion"):
            shown.remove(extra)
        return shown
    if body.tag == tag("UploadMessagesRequest"):
        for message in body.iterfind("messages"):
            if message.find("metadata") is None:
                version = message.find("messageMversion")
                metadata = etree.SubElement(message, "metadata")
                if version is not None:
                    version.addprevious(metadata)
    return body


def _named(interfaces: tuple[Interface, ...], request: str) -> str:
    found = (interface.find(request) for interface in interfaces)
    return next((operation.name for operation in found if operation is not None), "")


def _fault(refusal: Refusal, operation: str) -> Fault:
    if isinstance(refusal, SoapError):
        return Fault(refusal.fault_code, refusal.message, not_understood=refusal.not_understood)
    code = _CODES.get(refusal.rule, refusal.code)
    told = ServiceError(code, refusal.id, refusal.message, refusal.details)
    ours = refusal.fault in (AtFault.OURSELVES, AtFault.OPERATOR)
    return Fault(
        FaultCode.RECEIVER if ours else FaultCode.SENDER,
        refusal.message,
        error(operation, told) if operation else "",
    )


def _response(media: MediaType, reply: Reply, *, attach: bool) -> Response:
    head, tail = envelope_text(media.version)
    texts = list(reply.texts)
    texts[0] = head + texts[0]
    texts[-1] += tail
    if reply.contents and attach:
        message = MtomMessage.of_many(media.version, texts, reply.contents)
        return _streamed(message.pieces(), message.size, message.content_type)
    size = sum(len(t.encode()) for t in texts) + sum(encoded_size(len(c)) for c in reply.contents)
    return _streamed(_inline(texts, reply.contents), size, media.version.content_type)


def _inline(texts: list[str], contents: tuple[bytes, ...]) -> Iterator[bytes | memoryview]:
    yield texts[0].encode()
    for text, content in zip(texts[1:], contents, strict=True):
        yield from encode_pieces(content)
        yield text.encode()


def _streamed(pieces: Iterator[bytes | memoryview], size: int, content_type: str) -> Response:
    headers = {"content-length": str(size), "content-type": content_type}
    return StreamingResponse(_flowing(pieces), headers=headers)


async def _flowing(pieces: Iterator[bytes | memoryview]) -> AsyncIterator[bytes | memoryview]:
    """What is in memory needs no thread for each piece."""
    for piece in pieces:
        yield piece
