"""The REST API of 503 Table 25: which request reaches what, for whom, and how it is answered.

Who is asking is settled before anything else is looked at. A request is read only as far as it may
be long; it is answered after what it asked for is durable.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gridpost.core.component import ComponentType
from gridpost.core.directory_ports import RegistryStore
from gridpost.core.identifiers import clip
from gridpost.core.journal import refusal_row
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import Registration
from gridpost.core.registry_office import Applicant
from gridpost.services.component_directory.answers import (
    SECURITY,
    render,
    status_of,
    unauthenticated,
)
from gridpost.services.component_directory.entries import Entries
from gridpost.services.component_directory.gatekeeper import Gatekeeper
from gridpost.services.component_directory.metrics import DirectoryMetrics
from gridpost.services.component_directory.office import RegistryOffice
from gridpost.services.component_directory.publication import Publication
from gridpost.wire.directory import (
    MEDIA_TYPE,
    EncodedComponents,
    decode_pushed,
    decode_query,
    decode_request,
    encode_component,
    encode_components,
    encode_response,
)

log = structlog.get_logger(__name__)

PREFIX = "/api/v1"
MEDIA_TYPES = frozenset({"application/xml", "text/xml"})

Handler = Callable[[Request, Applicant, str], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Resource:
    """A pattern of URLs and the one operation that Table 25 gives it."""

    name: str
    path: re.Pattern[str]
    method: str
    handler: Handler


class DirectoryApi:
    """An ASGI application. `chain_of` reads the verified client chain out of a request's scope."""

    def __init__(
        self,
        store: RegistryStore,
        clock: Clock,
        gatekeeper: Gatekeeper,
        office: RegistryOffice,
        entries: Entries,
        publication: Publication,
        metrics: DirectoryMetrics,
        chain_of: Callable[[Scope], Sequence[bytes]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._gatekeeper = gatekeeper
        self._office = office
        self._entries = entries
        self._publication = publication
        self._metrics = metrics
        self._chain_of = chain_of
        self._encoded = EncodedComponents()
        self.contacts: dict[str, datetime] = {}
        """When each component last synchronised, since this directory started."""
        # 503 cl. 9.2: the version is part of the path; an incompatible change gets another one.
        self._resources = (
            _resource("registrations", r"/registrations", "POST", self._file),
            _resource("registration", r"/registrations/([^/]+)", "GET", self._registration),
            _resource("endpoint", r"/endpoints/([^/]+)", "PUT", self._push_endpoint),
            _resource("broker", r"/brokers/([^/]+)", "PUT", self._push_broker),
            _resource("components", r"/components", "GET", self._components),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError("the directory speaks HTTP only")
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        peer = ""
        name = "none"
        try:
            chain = self._chain_of(request.scope)
            try:
                applicant = await self._gatekeeper.identify(chain)
            except Refusal as refusal:
                if status_of(refusal) >= 500:
                    raise
                return await self._refused(
                    refusal, unauthenticated(refusal), name, self._gatekeeper.claimed(chain)
                )
            peer = applicant.code
            resource, argument = self._route(request.url.path)
            name = resource.name
            if request.method != resource.method:
                wrong = Refusal(Rule.METHOD_NOT_ALLOWED, f"only {resource.method} is allowed here")
                return await self._refused(wrong, 405, name, peer, {"allow": resource.method})
            response = await resource.handler(request, applicant, argument)
            if response.status_code < 300 and not response.body:
                # 503 Table 24: success that returns nothing is 204, never an empty 200.
                response = Response(status_code=204)
            self._metrics.answered(name, response.status_code)
            return response
        except Refusal as refusal:
            return await self._refused(refusal, status_of(refusal), name, peer)
        except ClientDisconnect:
            raise
        except Exception:
            bug = Refusal(Rule.INTERNAL, "unexpected error")
            log.exception("unexpected error", refusal=bug.id, resource=name, peer=peer)
            return await self._refused(bug, 500, name, peer)

    def _route(self, path: str) -> tuple[Resource, str]:
        for resource in self._resources:
            match = resource.path.fullmatch(path)
            if match is not None:
                return resource, match[1] if match.lastindex else ""
        raise Refusal(Rule.RESOURCE_UNKNOWN, f"there is no resource '{clip(path)}'")

    async def _file(self, request: Request, applicant: Applicant, _: str) -> Response:
        body = decode_request(await self._body(request))
        filed = await self._office.file(body, applicant)
        location = {"location": f"{PREFIX}/registrations/{filed.registration.registration_id}"}
        if filed.repeated:
            # Whoever lost the first answer finds its registration again.
            refusal = Refusal(
                Rule.REGISTRATION_REPEATED,
                "this registration was filed before",
                filed.registration.registration_id,
            )
            return await self._refused(refusal, 409, "registrations", applicant.code, location)
        return _xml(_registration(filed.registration), 201, location)

    async def _registration(
        self, request: Request, applicant: Applicant, registration_id: str
    ) -> Response:
        return _xml(_registration(await self._office.find(registration_id, applicant)))

    async def _push_endpoint(self, request: Request, applicant: Applicant, code: str) -> Response:
        return await self._push(request, applicant, code, ComponentType.ENDPOINT)

    async def _push_broker(self, request: Request, applicant: Applicant, code: str) -> Response:
        return await self._push(request, applicant, code, ComponentType.BROKER)

    async def _push(
        self, request: Request, applicant: Applicant, code: str, kind: ComponentType
    ) -> Response:
        self._entries.may_push(kind, code, applicant)
        pushed = decode_pushed(await self._body(request), kind, self._publication.settings.code)
        return _xml(encode_component(await self._entries.push(pushed, code, applicant)))

    async def _components(self, request: Request, applicant: Applicant, _: str) -> Response:
        if applicant.installing:
            raise Refusal(
                Rule.INSTALLATION_CERTIFICATE,
                "an installation certificate opens /registrations only",
            )
        query = decode_query(await self._body(request))
        answer = await self._publication.answer(query.couples, only_home=query.only_home)
        self._metrics.synchronised(len(answer.components))
        self.contacts[applicant.code] = self._clock.now()
        return _xml(encode_components(answer, self._encoded))

    async def _body(self, request: Request) -> bytes:
        """The body, if it is XML and not longer than anything real."""
        limit = self._publication.settings.max_body
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > limit:
            raise _too_large(limit)
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type not in MEDIA_TYPES:
            raise Refusal(
                Rule.MEDIA_TYPE, f"the body must be {MEDIA_TYPE}, not '{clip(media_type)}'"
            )
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise _too_large(limit)
        return bytes(body)

    async def _refused(
        self,
        refusal: Refusal,
        status: int,
        resource: str,
        peer: str,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Every refusal is logged and journalled with the id that the other side gets."""
        at = self._clock.now()
        row = refusal_row(
            refusal, at, peer=peer, security=status == 401 or refusal.rule in SECURITY
        )
        log.warning(
            "request refused",
            refusal=refusal.id,
            rule=refusal.rule.name,
            status=status,
            reason=refusal.message,
            details=refusal.details,
            resource=resource,
            peer=peer,
        )
        self._metrics.answered(resource, status)
        self._metrics.refused(refusal.rule)
        try:
            await self._store.run(lambda unit: unit.journal.append(row))
        except Exception:
            # The peer gets its answer even when the journal cannot be written.
            log.exception("refusal not journalled", refusal=refusal.id)
        return render(refusal, status, headers)


def _registration(registration: Registration) -> bytes:
    return encode_response(registration)


def _resource(name: str, pattern: str, method: str, handler: Handler) -> Resource:
    return Resource(name, re.compile(re.escape(PREFIX) + pattern), method, handler)


def _xml(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, status, dict(headers or {}), MEDIA_TYPE)


def _too_large(limit: int) -> Refusal:
    return Refusal(Rule.LIMIT_EXCEEDED, f"a body may have {limit} bytes at most")
