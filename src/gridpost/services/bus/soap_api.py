"""Web services of a bus: the generic one of Annex D, and the typed ones of each noun (Annex C)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO

import structlog
from lxml import etree
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from gridpost.core.envelope import NAMESPACE, OTHER_NAMESPACE
from gridpost.core.envelope_exchange import fault as fault_of
from gridpost.core.identifiers import clip
from gridpost.core.refusal import Fault as AtFault
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.calling import ACTIONS
from gridpost.services.bus.door import Given, WebDoor
from gridpost.services.bus.settings import BusSettings
from gridpost.wire.envelope import encode
from gridpost.wire.envelope.typed import TypedService
from gridpost.wire.envelope.wsdl import PATTERNS, generic_wsdl, message_xsd
from gridpost.wire.soap.envelope import Envelope, EnvelopeLimits, EnvelopeReader, standalone
from gridpost.wire.soap.fault import Fault, FaultCode, SoapError, envelope_text, render
from gridpost.wire.soap.mtom import MtomReader, MtomType
from gridpost.wire.soap.version import MediaType, SoapVersion

log = structlog.get_logger(__name__)

Authenticate = Callable[[Request], Awaitable[None]]
"""Who may ask; a Refusal ACCESS_DENIED is answered with 401."""
Check = Callable[[Envelope], None]
"""Looks at the header blocks, for instance a signature."""
Sign = Callable[[bytes], bytes]
_GENERIC = {
    "RequestMessage": "Request",
    "ResponseMessage": "Response",
    "EventMessage": "PublishEvent",
}
Work = Callable[[Envelope, MediaType], Awaitable[tuple[Given, Callable[[bytes], str]]]]


async def anybody(request: Request) -> None:
    """On this machine alone, where nothing else is configured."""


@dataclass(frozen=True, slots=True)
class Security:
    """What is demanded of a SOAP message beyond its transport, and put on its answer."""

    understood: frozenset[str] = frozenset()
    check: Check = lambda envelope: None
    sign: Sign = lambda message: message


@dataclass(frozen=True, slots=True)
class SoapSettings:
    spool: Callable[[], BinaryIO]
    authenticate: Authenticate = anybody
    security: Security = field(default_factory=Security)
    base_url: str = ""
    """As clients see it, where something stands in front of the bus; empty: as they asked."""


class SoapApi:
    """Routes for the ASGI application of a bus."""

    def __init__(
        self,
        door: WebDoor,
        bus: BusSettings,
        typed: Iterable[TypedService],
        settings: SoapSettings,
    ) -> None:
        self._door = door
        self._bus = bus
        self._typed: Mapping[str, TypedService] = {service.noun: service for service in typed}
        self._settings = settings

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/bus/{context}/soap", self._generic, methods=["GET", "POST"]),
            Route("/bus/{context}/xsd/Message.xsd", self._message_xsd),
            Route("/bus/{context}/typed/{noun}/xsd/{file}", self._typed_xsd),
            Route("/bus/{context}/typed/{noun}/{pattern}", self._strong, methods=["GET", "POST"]),
        ]

    # -- descriptions

    def _url(self, request: Request) -> str:
        if self._settings.base_url:
            return self._settings.base_url.rstrip("/") + request.url.path
        return str(request.url.replace(query=""))

    async def _message_xsd(self, request: Request) -> Response:
        return Response(message_xsd(), media_type="text/xml")

    async def _typed_xsd(self, request: Request) -> Response:
        service = self._typed.get(request.path_params["noun"])
        name = f"xsd/{request.path_params['file']}"
        if service is None or name not in service.files:
            return PlainTextResponse("there is no such schema here\n", 404)
        return Response(service.files[name], media_type="text/xml")

    # -- services

    async def _generic(self, request: Request) -> Response:
        context = request.path_params["context"]
        if context not in self._bus.contexts:
            return PlainTextResponse("there is no such context here\n", 404)
        if request.method == "GET":
            return _described(request, lambda: generic_wsdl(self._url(request)))

        async def work(
            envelope: Envelope, media: MediaType
        ) -> tuple[Given, Callable[[bytes], str]]:
            name = etree.QName(envelope.body)
            operation = _GENERIC.get(name.localname)
            if operation is None or name.namespace not in (NAMESPACE, OTHER_NAMESPACE):
                raise SoapError(
                    FaultCode.SENDER, f"there is no operation with {clip(name.localname)} here"
                )
            if media.action and media.action != f"{ACTIONS}/{operation}":
                raise SoapError(
                    FaultCode.SENDER, f"the action '{clip(media.action)}' is not {operation}"
                )
            body = standalone(envelope.body)
            given = await self._do(operation, body, context, request.url.path)
            return given, _as_it_is

        return await self._post(request, work, _as_it_is)

    async def _strong(self, request: Request) -> Response:
        context, noun = request.path_params["context"], request.path_params["noun"]
        pattern = request.path_params["pattern"]
        service = self._typed.get(noun)
        if service is None or context not in self._bus.contexts or pattern not in PATTERNS:
            return PlainTextResponse("there is no such service here\n", 404)
        if request.method == "GET":
            return _described(request, lambda: service.wsdl(pattern, self._url(request)))
        prefix = "Get" if pattern in ("Get", "Retrieve") else ""
        namespace = f"http://iec.ch/TC57/2011/{prefix}{noun}Message"

        def written(answer: bytes) -> str:
            return service.answer(answer, namespace)

        async def work(
            envelope: Envelope, media: MediaType
        ) -> tuple[Given, Callable[[bytes], str]]:
            call = service.read(pattern, envelope.body)
            if media.action and media.action != service.action(call.operation):
                raise SoapError(
                    FaultCode.SENDER, f"the action '{clip(media.action)}' is not {call.operation}"
                )
            kind = "Request"
            if pattern in ("Send", "Receive", "Reply"):
                kind = "PublishEvent"
            elif pattern == "Show":
                kind = "Response"
            given = await self._do(kind, call.envelope, context, request.url.path)
            # 61968-100 Annex C.4: Show is one way.
            return (Given(None) if pattern == "Show" and not given.fault else given), written

        return await self._post(request, work, written)

    async def _do(self, operation: str, body: bytes, context: str, path: str) -> Given:
        if operation == "Request":
            return await self._door.request(body, context, path)
        if operation == "Response":
            return await self._door.response(body, context, path)
        return await self._door.event(body, context, path)

    # -- one exchange

    async def _post(
        self, request: Request, work: Work, written: Callable[[bytes], str]
    ) -> Response:
        said = request.headers.get("content-type", ""), request.headers.get("soapaction")
        limits = EnvelopeLimits(self._bus.max_bytes, self._bus.max_bytes)
        spool, understood = self._settings.spool, self._settings.security.understood
        try:
            mtom = MtomType.read(*said)
            media = MediaType.read(*said) if mtom is None else mtom.media
        except Refusal as refusal:
            return PlainTextResponse(refusal.message + "\n", 415)
        reader: EnvelopeReader | MtomReader
        if mtom is None:
            reader = EnvelopeReader(media.version, (), limits, spool, understood)
        else:
            reader = MtomReader(mtom, (), limits, spool, understood=understood, inline=True)
        try:
            return await self._answered(request, reader, media, work, written)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        finally:
            reader.discard()

    async def _answered(
        self,
        request: Request,
        reader: EnvelopeReader | MtomReader,
        media: MediaType,
        work: Work,
        written: Callable[[bytes], str],
    ) -> Response:
        status = None
        try:
            try:
                await self._settings.authenticate(request)
            except Refusal:
                status = 401
                raise
            async for chunk in request.stream():
                reader.feed(chunk)
            envelope = reader.close()
            self._settings.security.check(envelope)
            given, written = await work(envelope, media)
        except Refusal as refusal:
            # Most clients read an answer only when they have sent their whole request.
            with suppress(Refusal, RuntimeError):
                async for _ in request.stream():
                    pass
            return self._fault(media.version, refusal, written, status)
        except ClientDisconnect:
            raise
        except Exception:
            broken = Refusal(Rule.INTERNAL, "unexpected error")
            log.exception("unexpected error", id=broken.id, path=request.url.path)
            return self._fault(media.version, broken, written, None)
        if given.body is None:
            return Response(status_code=202)
        if given.fault:
            fault = Fault(FaultCode.SENDER, "the message was not understood", written(given.body))
            return self._rendered(media.version, render(media.version, fault), fault)
        head, tail = envelope_text(media.version)
        return self._rendered(media.version, head + written(given.body) + tail)

    def _fault(
        self,
        version: SoapVersion,
        refusal: Refusal,
        written: Callable[[bytes], str],
        status: int | None,
    ) -> Response:
        log.info("refused a SOAP message", refusal=refusal.id, reason=refusal.message)
        if isinstance(refusal, SoapError):
            fault = Fault(
                refusal.fault_code, refusal.message, not_understood=refusal.not_understood
            )
        else:
            ours = refusal.fault in (AtFault.OURSELVES, AtFault.OPERATOR)
            # 61968-100 cl. 6.3.6: FaultMessage is what a failed attempt is told by.
            detail = written(encode(fault_of(refusal)))
            code = FaultCode.RECEIVER if ours else FaultCode.SENDER
            fault = Fault(code, refusal.message, detail)
        return self._rendered(version, render(version, fault), fault, status)

    def _rendered(
        self, version: SoapVersion, text: str, fault: Fault | None = None, status: int | None = None
    ) -> Response:
        code = status or (200 if fault is None else fault.status(version))
        headers = {"www-authenticate": 'Basic realm="gridpost"'} if status == 401 else None
        body = self._settings.security.sign(text.encode())
        return Response(body, code, headers, version.content_type)


def _as_it_is(answer: bytes) -> str:
    """An envelope without its XML declaration."""
    return etree.tostring(etree.fromstring(answer), encoding="unicode")


def _described(request: Request, wsdl: Callable[[], str]) -> Response:
    if any(key.lower() == "wsdl" for key in request.query_params):
        return Response(wsdl(), media_type="text/xml")
    told = "POST a SOAP request; GET with ?wsdl describes the service\n"
    return PlainTextResponse(told, 405, {"allow": "GET, POST"})
