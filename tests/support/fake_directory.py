"""A component-directory made of our own wire code, with which the clients of one are tested.

It speaks the API over real TLS, remembers every request, and fails on demand. It judges nothing
that the real service judges.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Component, ComponentType, Implementation
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_path import Restriction
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import Registration, RegistrationStatus, component_type
from gridpost.core.synchronisation import Directory, Subsystem, answer, content_id
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.transports.https import HttpsServer, ServerTls, serve
from gridpost.wire.directory import (
    InstallationBundle,
    decode_pushed,
    decode_query,
    decode_request,
    encode_component,
    encode_components,
    encode_error,
    encode_response,
)
from gridpost.wire.x509 import KeyBundle, Validity, issue, read_certificate, write_pkcs12
from support.builders import CONTACT
from support.https import credentials, live_pki
from support.pki import rsa_key

PASSWORD = "told by telephone"


@dataclass
class Seen:
    method: str
    path: str
    body: bytes
    leaf: bytes
    media_type: str = ""


@dataclass
class FakeDirectory:
    code: str = "CD-1"
    root: str = "ROOT"
    ttl: timedelta = timedelta(hours=1)
    auto_approve: bool = False
    fail: int = 0
    """Answer everything with this status."""
    cut: Callable[[Seen], bool] = field(default=lambda seen: False)
    """Do the work, then end the connection without an answer."""
    rewrite: Callable[[bytes], bytes] = field(default=lambda document: document)
    """Change what is answered to a synchronisation."""
    seen: list[Seen] = field(default_factory=list)
    registrations: dict[str, Registration] = field(default_factory=dict)
    others: dict[str, Component] = field(default_factory=dict)
    foreign: dict[str, Subsystem] = field(default_factory=dict)
    port: int = 0
    lifetime: timedelta = timedelta(days=365)
    approvals: int = 0

    def __post_init__(self) -> None:
        self.pki = live_pki(self.code, self.root)
        self.me = self.pki.component(self.code, [CertificateKind.AUTHENTICATION])
        self.tls = credentials(self.me, self.pki.root)
        self.asked = asyncio.Event()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def entry(self) -> Component:
        authority = read_certificate(self.pki.integrated_ca, CertificateKind.INTEGRATED_CA)
        return Component(
            ComponentCode(self.code),
            ComponentType.COMPONENT_DIRECTORY,
            CONTACT,
            ComponentCode(self.code),
            Implementation("2"),
            (self.url,),
            (self.me.authentication, authority),
        )

    def subsystem(self) -> Subsystem:
        components = (self.entry, *self.others.values())
        return Subsystem(ComponentCode(self.code), content_id(components), components)

    def bundle(self, code: str, *urls: str) -> InstallationBundle:
        key = rsa_key(f"{code} installation")
        bundle = KeyBundle(
            to_pkcs8(key), self.pki.installation(code), (self.pki.integrated_ca,), code
        )
        return InstallationBundle(
            ComponentCode(code),
            ComponentCode(self.code),
            urls or (self.url,),
            self.me.authentication.der,
            (self.pki.root,),
            write_pkcs12(bundle, PASSWORD),
        )

    def approve(self) -> None:
        """Everything that is pending."""
        for number, registration in self.registrations.items():
            if registration.status is RegistrationStatus.PENDING:
                self.registrations[number] = self._approved(registration)

    def reject(self, reason: str) -> None:
        for number, registration in self.registrations.items():
            self.registrations[number] = replace(
                registration, status=RegistrationStatus.REJECTED, reason=reason
            )

    def of(self, method: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.method == method]

    @asynccontextmanager
    async def running(self, port: int = 0) -> AsyncIterator[HttpsServer]:
        async with serve(self, "127.0.0.1", port, ServerTls(lambda: self.tls)) as server:
            self.port = server.port
            yield server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        chain = scope["extensions"]["tls"]["client_chain"]
        seen = Seen(request.method, request.url.path, await request.body(), chain[0])
        seen.media_type = request.headers.get("content-type", "")
        self.seen.append(seen)
        if (seen.method, seen.path) == ("GET", "/api/v1/components"):
            self.asked.set()
        try:
            if self.fail:
                raise Refusal(Rule.INTERNAL, "told to fail")
            response = self._answer(seen)
        except Refusal as refusal:
            status = self.fail or (404 if refusal.rule is Rule.RESOURCE_UNKNOWN else 422)
            response = Response(encode_error(refusal), status, media_type="application/xml")
        if self.cut(seen):
            scope["extensions"]["tls"]["connection"].close()
            return
        await response(scope, receive, send)

    def _answer(self, seen: Seen) -> Response:
        match seen.method, seen.path.removeprefix("/api/v1/").split("/"):
            case "GET", ["components"]:
                return self._components(seen.body)
            case "PUT", ["endpoints" | "brokers", code]:
                return self._put(code, seen.body)
            case "POST", ["registrations"]:
                registration = self._post(seen)
                return Response(encode_response(registration), 201, media_type="application/xml")
            case "GET", ["registrations", number] if number in self.registrations:
                body = encode_response(self.registrations[number])
                return Response(body, media_type="application/xml")
        raise Refusal(Rule.RESOURCE_UNKNOWN, "there is no such thing")

    def _components(self, body: bytes) -> Response:
        query = decode_query(body)
        directory = Directory.of([self.subsystem(), *self.foreign.values()])
        found = answer(
            directory,
            query.couples,
            home=ComponentCode(self.code),
            ttl=self.ttl,
            only_home=query.only_home,
            at=datetime.now(UTC),
        )
        return Response(self.rewrite(encode_components(found)), media_type="application/xml")

    def _put(self, code: str, body: bytes) -> Response:
        held = self.others[code]
        pushed = decode_pushed(body, held.type, ComponentCode(self.code))
        self.others[code] = replace(
            pushed, code=held.code, certificates=held.certificates, created=held.created
        )
        return Response(encode_component(self.others[code]), media_type="application/xml")

    def _post(self, seen: Seen) -> Registration:
        request = decode_request(seen.body)
        number = sha256(seen.body).hexdigest()[:12]
        registration = self.registrations.get(number) or Registration(
            number,
            request,
            RegistrationStatus.PENDING,
            datetime.now(UTC),
            sha256(seen.leaf).digest(),
        )
        if self.auto_approve and registration.status is RegistrationStatus.PENDING:
            registration = self._approved(registration)
        self.registrations[number] = registration
        return registration

    def _approved(self, registration: Registration) -> Registration:
        request = registration.request
        # Each a little newer than the one before.
        self.approvals += 1
        start = datetime.now(UTC) - timedelta(hours=1) + timedelta(seconds=self.approvals)
        validity = Validity(start, datetime.now(UTC) + self.lifetime)
        issued = tuple(
            read_certificate(
                issue(key.kind, request.code, key.spki, self.pki.issuer, validity), key.kind
            )
            for key in request.public_keys
        )
        self._publish(request.code, component_type(request), (*issued, *request.certificates))
        return replace(registration, status=RegistrationStatus.APPROVED, issued=issued)

    def _publish(
        self, code: str, type_: ComponentType, certificates: tuple[Certificate, ...]
    ) -> None:
        held = self.others.get(code)
        if held is not None:
            self.others[code] = replace(held, certificates=(*held.certificates, *certificates))
            return
        self.others[code] = Component(
            ComponentCode(code),
            type_,
            CONTACT,
            ComponentCode(self.code),
            Implementation("2"),
            certificates=certificates,
            restriction=Restriction() if type_ is ComponentType.BROKER else None,
        )
