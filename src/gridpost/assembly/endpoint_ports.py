"""The network side of one endpoint: which ports it opens, and how it dials others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from gridpost.assembly.broker import PemCredentials
from gridpost.assembly.console import console_port
from gridpost.assembly.directory_configuration import read_certificates
from gridpost.assembly.endpoint_channels_configuration import ApiSection
from gridpost.assembly.endpoint_configuration import EndpointConfiguration
from gridpost.assembly.endpoint_console import endpoint_console
from gridpost.assembly.endpoint_parts import EndpointCore
from gridpost.assembly.renewed_files import RenewedFiles
from gridpost.console.frame import Frame
from gridpost.core.certificate import Certificate
from gridpost.core.channels import Channel
from gridpost.core.https import TlsCredentials
from gridpost.core.links import LinkKeeper, ServerCheck
from gridpost.core.ports import Clock, Store
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.services.endpoint.soap_api import OLD_SERVICE, SERVICE
from gridpost.stores.keys import pkcs8
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.transports.amqp10 import AmqpClient, AmqpLimits, AmqpServer, SessionKeeper
from gridpost.transports.https import ClientCertificate, Limits, ServerTls, serve
from gridpost.transports.https.tls import server_context
from gridpost.transports.loopback import serve_loopback
from gridpost.wire.mades.amqp_message import MESSAGE_ROOM


def amqp_limits(configuration: EndpointConfiguration) -> AmqpLimits:
    """503 cl. 6.3: the largest document, and what travels with it."""
    largest = configuration.max_content + MESSAGE_ROOM
    return AmqpLimits(max_message_size=largest, max_incoming_octets=2 * largest)


def dialler(
    configuration: EndpointConfiguration, credentials: PemCredentials, limits: AmqpLimits
) -> Callable[[Sequence[str], ServerCheck, Callable[[bool, str], None]], LinkKeeper]:
    proxy = configuration.proxy()

    def dial(
        urls: Sequence[str], check: ServerCheck, on_state: Callable[[bool, str], None]
    ) -> LinkKeeper:
        client = AmqpClient(
            urls,
            container=configuration.code,
            tls=credentials,
            check=check,
            proxy=proxy,
            limits=limits,
        )
        exactly_once = configuration.connections.exactly_once
        return SessionKeeper(client, on_state=on_state, exactly_once=exactly_once)

    return dial


@asynccontextmanager
async def serve_direct(
    configuration: EndpointConfiguration,
    core: EndpointCore,
    clock: Clock,
    credentials: PemCredentials,
    limits: AmqpLimits,
) -> AsyncIterator[int | None]:
    """503 cl. 4.5.2: an endpoint that takes no direct transfers has no AMQP port at all."""
    section = configuration.direct
    if section is None:
        yield None
        return
    server = AmqpServer(container=configuration.code, clock=clock, limits=limits)
    port = await server.listen(section.host, section.port, core.door, tls=credentials)
    try:
        yield port
    finally:
        await server.drain(configuration.drain.total_seconds())


@asynccontextmanager
async def serve_api(
    configuration: EndpointConfiguration, core: EndpointCore
) -> AsyncIterator[int | None]:
    section = configuration.api
    if section is None:
        yield None
        return
    app = _pull_app(section, core)
    if section.certificate is None or section.key is None:
        async with serve_loopback(app, section.host, section.port) as port:
            yield port
        return
    shown = _api_credentials(section, section.certificate, section.key)
    asked = ClientCertificate.OPTIONAL if section.client_roots else ClientCertificate.NONE
    # base64 makes a document a third larger, line ends a little more. The channels refuse in their
    # own words what is too large; this ends what goes on sending after that.
    limits = Limits(
        max_body=2 * configuration.max_content + 2 * MESSAGE_ROOM,
        body_seconds=section.body_timeout.total_seconds(),
    )
    async with serve(app, section.host, section.port, ServerTls(shown, asked), limits) as server:
        yield server.port


def _pull_app(section: ApiSection, core: EndpointCore) -> ASGIApp:
    """Each channel answers for what it does not have, in its own way."""
    json, soap = core.api.app(), core.soap
    if Channel.SOAP not in section.channels:
        return json
    rest: ASGIApp = json if Channel.JSON in section.channels else soap
    at: dict[str, ASGIApp] = {SERVICE.path: soap, OLD_SERVICE.path: core.old_soap}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await at.get(scope.get("path", "").rstrip("/"), rest)(scope, receive, send)

    return app


@asynccontextmanager
async def serve_console(
    configuration: EndpointConfiguration,
    core: EndpointCore,
    client: DirectoryClient,
    store: Store,
    certificates: Callable[[], Sequence[Certificate]],
    file: Path | None,
) -> AsyncIterator[tuple[Frame | None, int | None]]:
    section = configuration.console
    if section is None:
        yield None, None
        return
    frame, console = endpoint_console(
        core,
        client,
        store,
        core.context.clock,
        lambda: core.configuration,
        file,
        certificates,
    )
    async with console_port(section, console.app(), client.tls, configuration.max_content) as port:
        yield frame, port


def _api_credentials(
    section: ApiSection, certificate: Path, key: Path
) -> RenewedFiles[TlsCredentials]:
    def read() -> TlsCredentials:
        private = pkcs8.read(key.read_bytes(), None, str(key))
        roots = tuple(der for file in section.client_roots for der in read_certificates(file))
        found = TlsCredentials(read_certificates(certificate), to_pkcs8(private), roots)
        # Fails unless they belong together.
        server_context(found, ClientCertificate.NONE)
        return found

    return RenewedFiles((certificate, key, *section.client_roots), read)
