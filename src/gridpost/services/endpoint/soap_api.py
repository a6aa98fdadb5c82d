"""The SOAP channel (503 cl. 11.1): who may ask, which service is meant, how a refusal becomes a fault."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import structlog
from lxml import etree
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gridpost.core.channels import Channel
from gridpost.core.refusal import Code, Refusal, Rule
from gridpost.core.refusal import Fault as AtFault
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.refusing import keep_refusal
from gridpost.services.endpoint.request_counts import ANSWERED, RequestCounts
from gridpost.services.endpoint.soap_operations import Operation, Reply
from gridpost.services.endpoint.users import User, Users, check_channel
from gridpost.wire.mades.endpoint_service import (
    ENDPOINT_SERVICE,
    ServiceError,
    error,
    error_item,
)
from gridpost.wire.mades11 import endpoint_service as endpoint_service11
from gridpost.wire.mades11 import services as endpoint11
from gridpost.wire.soap.envelope import Envelope, EnvelopeLimits, EnvelopeReader
from gridpost.wire.soap.fault import Fault, FaultCode, SoapError, envelope_text, render
from gridpost.wire.soap.interface import Interface
from gridpost.wire.soap.mtom import MtomMessage, MtomReader, MtomType
from gridpost.wire.soap.version import MediaType

log = structlog.get_logger(__name__)

PATH = "/mades/2"
ClientChain = Callable[[Scope], tuple[bytes, ...]]

# How much of a request that was refused at the door is read, to learn which service it wanted.
_PEEK = 64 * 1024
# 503 Table 27 for what the catalogue of rules sees as a mistake of a peer.
_CODES = {
    Rule.MALFORMED_XML: Code.INVALID_PARAMETERS,
    Rule.FORBIDDEN_XML: Code.INVALID_PARAMETERS,
    Rule.SCHEMA_INVALID: Code.INVALID_PARAMETERS,
    Rule.BAD_VALUE: Code.INVALID_PARAMETERS,
}


class ByName(Protocol):
    by_name: dict[str, Operation]


@dataclass(frozen=True, slots=True)
class Described:
    """An interface that the channel serves, and how its errors read."""

    path: str
    interface: Interface
    error: Callable[[str, ServiceError, str | None], str]
    error_item: Callable[[str, etree._Element], str | None]


SERVICE = Described(PATH, ENDPOINT_SERVICE, error, error_item)
OLD_SERVICE = Described(
    "/mades/1", endpoint11.ENDPOINT, endpoint_service11.error, endpoint_service11.error_item
)
"""MADES 1.1 cl. 5.2, for applications that still use it."""


class SoapApi:
    """An ASGI application."""

    def __init__(
        self,
        context: EndpointContext,
        users: Users,
        operations: ByName,
        client_chain: ClientChain,
        spool: Callable[[], BinaryIO],
        counts: RequestCounts,
        *,
        url: str = "",
        requests_per_user: int = 64,
        max_envelope: int = 1024 * 1024,
        service: Described = SERVICE,
    ) -> None:
        self._context = context
        self._service = service
        self._users = users
        self._operations = operations
        self._client_chain = client_chain
        self._spool = spool
        self._counts = counts
        self._url = url
        self._requests_per_user = requests_per_user
        self._max_envelope = max_envelope
        self._in_progress: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method == "POST":
            response = await self._post(request)
        elif request.method == "GET" and any(k.lower() == "wsdl" for k in request.query_params):
            url = self._url or str(request.url.replace(query=""))
            response = Response(self._service.interface.wsdl(url), media_type="text/xml")
        else:
            told = "POST a SOAP request; GET with ?wsdl describes the service\n"
            response = PlainTextResponse(told, 405, {"allow": "GET, POST"})
        await response(scope, receive, send)

    async def _post(self, request: Request) -> Response:
        try:
            exchange = self._exchange(request)
        except Refusal as refusal:
            await keep_refusal(self._context, refusal, user="", security=False)
            return PlainTextResponse(refusal.message + "\n", 415)
        try:
            return await self._answer(request, exchange)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        finally:
            exchange.reader.discard()

    def _exchange(self, request: Request) -> _Exchange:
        said = request.headers.get("content-type", ""), request.headers.get("soapaction")
        limits = EnvelopeLimits(self._context.settings.max_content, self._max_envelope)
        large = self._service.interface.large
        mtom = MtomType.read(*said)
        if mtom is not None:
            reader: EnvelopeReader | MtomReader = MtomReader(mtom, large, limits, self._spool)
            return _Exchange(mtom.media, request.stream(), reader)
        media = MediaType.read(*said)
        reader = EnvelopeReader(media.version, large, limits, self._spool)
        return _Exchange(media, request.stream(), reader)

    async def _answer(self, request: Request, exchange: _Exchange) -> Response:
        name, status = "", None
        try:
            try:
                user = await self._users.who(
                    request.headers.get("authorization", ""), self._client_chain(request.scope)
                )
            except Refusal:
                status = 401
                raise
            name = user.name
            check_channel(user, Channel.SOAP)
            with self._one_more(user):
                envelope = await exchange.read()
                operation = self._service.interface.choose(envelope, exchange.media.action)
                self._service.interface.schema.validate(envelope.body)
                reply = await self._operations.by_name[operation.name](user, envelope)
            self._counts.count(Channel.SOAP, operation.name, ANSWERED)
            return _response(exchange, reply)
        except Refusal as refusal:
            found = refusal
        except ClientDisconnect:
            raise
        except OSError as failed:
            # The file into which the document was spooled.
            full = failed.errno in (errno.ENOSPC, errno.EDQUOT)
            found = Refusal(
                Rule.STORE_FULL if full else Rule.INTERNAL, "the document could not be stored"
            )
            log.error("document not spooled", id=found.id, reason=str(failed))
        except Exception:
            found = Refusal(Rule.INTERNAL, "unexpected error")
            log.exception("unexpected error", id=found.id, path=request.url.path)
        return await self._refused(exchange, found, name, status)

    @contextmanager
    def _one_more(self, user: User) -> Iterator[None]:
        """503 Table 27: what one client has in progress is limited."""
        if self._in_progress[user.name] >= self._requests_per_user:
            raise Refusal(
                Rule.BUSY, f"{user.name} has {self._requests_per_user} requests in progress"
            )
        self._in_progress[user.name] += 1
        try:
            yield
        finally:
            self._in_progress[user.name] -= 1

    async def _refused(
        self, exchange: _Exchange, refusal: Refusal, user: str, status: int | None
    ) -> Response:
        await keep_refusal(
            self._context,
            refusal,
            user=user,
            security=refusal.rule is Rule.ACCESS_DENIED,
        )
        if not exchange.reader.name:
            await exchange.peek(_PEEK)
        # Most clients read an answer only when they have sent their whole request.
        await exchange.drain(2 * self._context.settings.max_content)
        operation = self._service.interface.find(exchange.reader.name)
        name = "" if operation is None else operation.name
        code = _CODES.get(refusal.rule, refusal.code)
        self._counts.count(Channel.SOAP, name, code)
        version = exchange.media.version
        fault = _fault(self._service, refusal, code, name, exchange.envelope)
        headers = {"www-authenticate": 'Basic realm="gridpost"'} if status == 401 else None
        return Response(
            render(version, fault).encode(),
            status or fault.status(version),
            headers,
            version.content_type,
        )


class _Exchange:
    """One request as it comes in."""

    def __init__(
        self,
        media: MediaType,
        chunks: AsyncIterator[bytes],
        reader: EnvelopeReader | MtomReader,
    ) -> None:
        self.media = media
        self.reader = reader
        self.envelope: Envelope | None = None
        self._chunks = chunks

    async def read(self) -> Envelope:
        async for chunk in self._chunks:
            self.reader.feed(chunk)
        self.envelope = self.reader.close()
        return self.envelope

    async def peek(self, limit: int) -> None:
        """Until the service is known that is asked for."""
        seen = 0
        with suppress(Refusal, OSError):
            async for chunk in self._chunks:
                self.reader.feed(chunk[: limit - seen])
                seen += len(chunk)
                if self.reader.name or seen >= limit:
                    return

    async def drain(self, limit: int) -> None:
        seen = 0
        with suppress(Refusal):
            async for chunk in self._chunks:
                seen += len(chunk)
                if seen > limit:
                    return


def _fault(
    service: Described, refusal: Refusal, code: Code, operation: str, envelope: Envelope | None
) -> Fault:
    if isinstance(refusal, SoapError):
        return Fault(refusal.fault_code, refusal.message, not_understood=refusal.not_understood)
    ours = refusal.fault in (AtFault.OURSELVES, AtFault.OPERATOR)
    detail = ""
    if operation:
        item = None if envelope is None else service.error_item(operation, envelope.body)
        told = ServiceError(code, refusal.id, refusal.message, refusal.details)
        detail = service.error(operation, told, item)
    return Fault(FaultCode.RECEIVER if ours else FaultCode.SENDER, refusal.message, detail)


def _response(exchange: _Exchange, reply: Reply) -> Response:
    version = exchange.media.version
    head, tail = envelope_text(version)
    before, after = head + reply.before, reply.after + tail
    if reply.content and isinstance(exchange.reader, MtomReader):
        # Whoever sends attachments understands them.
        message = MtomMessage.of(version, before, after, reply.content)
        return _streamed(message.pieces(), message.size, message.content_type)
    whole = Reply(before, after, reply.content)
    return _streamed(whole.pieces(), whole.size, version.content_type)


def _streamed(pieces: Iterator[bytes | memoryview], size: int, content_type: str) -> Response:
    headers = {"content-length": str(size), "content-type": content_type}
    return StreamingResponse(pieces, headers=headers)
