"""What `gridpost check-config` finds in the configuration of a bus."""

from __future__ import annotations

from gridpost.assembly.bus_configuration import BusConfiguration
from gridpost.assembly.bus_parts import typed_services
from gridpost.assembly.bus_security import SoapSecurity
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.directory_configuration import is_loopback
from gridpost.assembly.surroundings import doubts
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.routing import HeaderRule
from gridpost.services.operations.passwords import check_hash
from gridpost.wire.envelope.transform import Xslt


def bus_doubts(configuration: BusConfiguration) -> list[str]:
    """Everything that is read at the start is read; mistakes are refused, doubts are returned."""
    configuration.settings()
    typed_services(configuration)
    if configuration.postgres is not None:
        configuration.postgres.settings()
    sheets = [section.xslt for section in configuration.routes]
    sheets += [section.xslt for section in configuration.subscribers]
    sheets += [section.xslt for section in configuration.sources]
    for sheet in sheets:
        if sheet is not None:
            Xslt(sheet)
    for route in configuration.routes:
        if route.when:
            HeaderRule(route.when)
    try:
        configuration.rabbitmq.client()
    except OSError as error:
        raise Refusal(
            Rule.USAGE, "rabbitmq: roots, certificate and key cannot be used", str(error)
        ) from None
    roots = configuration.rabbitmq.roots
    return [
        *_transport(configuration),
        *_web(configuration),
        *_around(configuration),
        *doubts(configuration, configuration.home, [roots] if roots else [], SystemClock().now()),
    ]


def _transport(configuration: BusConfiguration) -> list[str]:
    found = []
    if any(url.startswith("amqp://") for url in configuration.rabbitmq.urls):
        found.append("rabbitmq.urls has amqp://: anybody on the way reads and changes messages")
    if len(configuration.contexts) > 1:
        found.append(
            "several contexts share one broker and store: give each a virtual host or a broker"
            " and a bus of its own"
        )
    if not configuration.guard.replay_required:
        found.append("guard.replay_required is false: a message without a nonce can be replayed")
    return found


def _web(configuration: BusConfiguration) -> list[str]:
    web = configuration.web
    if web is None:
        return []
    SoapSecurity(web.security, SystemClock())
    for user in web.users:
        check_hash(user.password.get_secret_value())
    if not is_loopback(web.host) and not web.users and web.client_roots is None:
        return ["web has neither users nor client_roots: whoever reaches it may ask"]
    return []


def _around(configuration: BusConfiguration) -> list[str]:
    found = []
    for place in (
        *(subscriber.to for subscriber in configuration.subscribers),
        *(source.take for source in configuration.sources),
    ):
        if place.startswith(("ftp://", "http://")):
            found.append(f"{place.partition('@')[2] or place} is reached without encryption")
    if not configuration.reference_handlers and not configuration.handlers:
        found.append("there are no handlers: this bus serves nothing by itself")
    return found
