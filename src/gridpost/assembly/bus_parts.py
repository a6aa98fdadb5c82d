"""The parts of a bus that deal with others, from its configuration."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from starlette.applications import Starlette
from starlette.requests import Request

from gridpost.assembly.bus_configuration import BusConfiguration
from gridpost.assembly.bus_links import SourceSection, SubscriberSection, WebSection
from gridpost.assembly.bus_security import SoapSecurity
from gridpost.assembly.directory_configuration import read_certificates
from gridpost.assembly.noun_schemas import read_noun_schemas
from gridpost.assembly.spool import spooling
from gridpost.core.https import TlsCredentials
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.calling import HttpPost, SoapCaller, accepted
from gridpost.services.bus.door import WebDoor
from gridpost.services.bus.forwarding import Bridge, Forwarder
from gridpost.services.bus.rest_api import RestApi
from gridpost.services.bus.routing import HeaderRule, RouteRule, Target
from gridpost.services.bus.service import BusService
from gridpost.services.bus.soap_api import Authenticate, SoapApi, SoapSettings, anybody
from gridpost.services.bus.sources import Source
from gridpost.services.bus.subscribers import Deliver, Subscriber
from gridpost.services.operations.passwords import PasswordHash
from gridpost.transports.https import Limits, serve
from gridpost.transports.https.tls import ClientCertificate, ServerTls
from gridpost.transports.loopback import serve_loopback
from gridpost.transports.mailboxes import FolderBox, FtpBox, Mailbox, SftpBox
from gridpost.transports.web_post import WebPost, web_context
from gridpost.wire.envelope import decode
from gridpost.wire.envelope.transform import Treatment, Xslt
from gridpost.wire.envelope.typed import TypedService
from gridpost.wire.envelope.wsdl import shipped_xsd

TableBox = Callable[[str], Mailbox]


def web_post(configuration: BusConfiguration) -> WebPost:
    section = configuration.calling
    return WebPost(
        web_context(
            str(section.roots or ""), str(section.certificate or ""), str(section.key or "")
        ),
        seconds=section.timeout.total_seconds(),
        max_answer=configuration.limits.message_bytes,
    )


def caller(post: HttpPost, security: SoapSecurity | None) -> SoapCaller:
    sign = security.sign if security is not None and security.signs else None
    return SoapCaller(post, sign)


def forwarder(
    configuration: BusConfiguration,
    service: BusService,
    calls: SoapCaller,
    bridge: Bridge | None,
) -> Forwarder:
    rules = [
        RouteRule(
            section.verb,
            section.noun,
            tuple(Target(target.to, target.instance) for target in section.targets),
            HeaderRule(section.when) if section.when else None,
            Treatment(Xslt(section.xslt) if section.xslt else None, section.unpack),
        )
        for section in configuration.routes
    ]
    return Forwarder(service, rules, caller=calls, bridge=bridge, proxy=configuration.proxy)


def subscribers(
    configuration: BusConfiguration, post: HttpPost, calls: SoapCaller, tables: TableBox
) -> tuple[Subscriber, ...]:
    limit = configuration.limits.message_bytes
    typed = {service.noun: service for service in typed_services(configuration)}

    def deliver(section: SubscriberSection) -> Deliver:
        if section.form == "typed":
            return _deliver_typed(section.to, typed[section.noun], calls)
        return _deliver(section, post, calls, tables, limit)

    return tuple(
        Subscriber(
            section.name,
            deliver(section),
            section.verb,
            section.noun,
            tuple(pause.total_seconds() for pause in section.retries),
            Treatment(Xslt(section.xslt) if section.xslt else None, section.unpack),
        )
        for section in configuration.subscribers
    )


def _deliver(
    section: SubscriberSection, post: HttpPost, calls: SoapCaller, tables: TableBox, limit: int
) -> Deliver:
    if not section.to.startswith("http"):
        box = mailbox(section, section.to, tables, limit)

        async def drop(envelope: bytes) -> None:
            await box.put(f"{_identity(envelope)}.xml", envelope)

        return drop

    async def soap(envelope: bytes) -> None:
        accepted(await calls.call(section.to, envelope), section.to)

    async def xml(envelope: bytes) -> None:
        status, _, _ = await post(section.to, envelope, {"content-type": "application/xml"})
        if status >= 500 or status in (408, 425, 429):
            raise Refusal(Rule.UNREACHABLE, f"{section.to} answered {status}")
        if status >= 300:
            raise Refusal(Rule.WEB_REFUSED, f"{section.to} answered {status}")

    return soap if section.form == "soap" else xml


def _deliver_typed(url: str, service: TypedService, calls: SoapCaller) -> Deliver:
    async def send(envelope: bytes) -> None:
        accepted(await calls.call_typed(url, service, envelope), url)

    return send


def _identity(envelope: bytes) -> str:
    """A name that is the same when the same event comes again."""
    header = getattr(decode(envelope), "header", None)
    known = f"{header.source}/{header.message_id}" if header and header.message_id else ""
    return sha256(known.encode() or envelope).hexdigest()[:32]


def mailbox(
    section: SubscriberSection | SourceSection, place: str, tables: TableBox, limit: int
) -> Mailbox:
    password = "" if section.password is None else section.password.get_secret_value()
    if place.startswith("folder:"):
        return FolderBox(Path(place.removeprefix("folder:")), limit)
    if place.startswith("sql:"):
        return tables(place.removeprefix("sql:"))
    if place.startswith(("ftp://", "ftps://")):
        return FtpBox(place, password, limit)
    return SftpBox(place, password, limit, str(section.known_hosts), str(section.key or ""))


def sources(configuration: BusConfiguration, tables: TableBox) -> list[Source]:
    return [
        Source(
            section.name,
            mailbox(section, section.take, tables, configuration.limits.message_bytes),
            section.context,
            section.every.total_seconds(),
            section.verb,
            section.noun,
            Xslt(section.xslt) if section.xslt else None,
        )
        for section in configuration.sources
    ]


def typed_services(configuration: BusConfiguration) -> list[TypedService]:
    found = []
    for noun in configuration.nouns:
        if noun.typed and noun.xsd is None:
            ours, profile_of_ours = shipped_xsd(noun.name), shipped_xsd(f"Get{noun.name}")
            assert ours is not None  # the section allows no other
            found.append(TypedService(noun.name, ours, profile_of_ours, Path()))
        elif noun.typed and noun.xsd is not None:
            read = read_noun_schemas(noun.xsd)
            found.append(
                TypedService(noun.name, read.schema, read.profile, noun.xsd.parent, read.more)
            )
    return found


@asynccontextmanager
async def web_services(
    configuration: BusConfiguration,
    service: BusService,
    door: WebDoor,
    security: SoapSecurity | None,
) -> AsyncIterator[int]:
    """The port of the web services; 0: there are none."""
    section = configuration.web
    if section is None:
        yield 0
        return
    authenticate = _authenticate(section)
    settings = SoapSettings(
        spooling(configuration.home / "spool"),
        authenticate,
        base_url=section.url,
    )
    if security is not None:
        settings = SoapSettings(
            settings.spool, authenticate, security.for_server(), base_url=section.url
        )
    soap = SoapApi(door, service.settings, typed_services(configuration), settings)
    rest = RestApi(door, service.settings, authenticate)
    app = Starlette(routes=[*soap.routes(), *rest.routes()])
    async with AsyncExitStack() as stack:
        if section.certificate is None or section.key is None:
            yield await stack.enter_async_context(serve_loopback(app, section.host, section.port))
            return
        certificate, key = section.certificate, section.key
        roots = () if section.client_roots is None else read_certificates(section.client_roots)

        def credentials() -> TlsCredentials:
            return TlsCredentials(read_certificates(certificate), _key(key), tuple(roots))

        client = ClientCertificate.REQUIRED if roots else ClientCertificate.NONE
        server = await stack.enter_async_context(
            serve(
                app,
                section.host,
                section.port,
                ServerTls(credentials, client),
                Limits(max_body=configuration.limits.message_bytes * 2),
            )
        )
        yield server.port


def _key(file: Path) -> bytes:
    """Of any kind that TLS knows: 503's rule for keys is about components of MADES."""
    try:
        key = load_pem_private_key(file.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise Refusal(Rule.BAD_KEY, f"{file} cannot be used: {error}") from None
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def _authenticate(section: WebSection) -> Authenticate:
    if not section.users:
        return anybody
    known = {u.name: PasswordHash(u.password.get_secret_value()) for u in section.users}

    async def check(request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        try:
            text = base64.b64decode(given, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            text = ""
        name, _, password = text.partition(":")
        found = known.get(name)
        if scheme.lower() == "basic" and found is not None and await found.fits(password):
            return
        raise Refusal(Rule.ACCESS_DENIED, "name or password is wrong")

    return check
