"""Short ways to make core values for tests. Certificates made here are facts only, not X.509."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.identifiers import (
    ComponentCode,
    MessageType,
    MessageTypePattern,
    new_message_id,
)
from gridpost.core.instant import Instant
from gridpost.core.message import InternalType, Metadata
from gridpost.core.message_path import MessagePath, Restriction, Route, senders_of
from gridpost.core.synchronisation import Directory, Subsystem, content_id

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOME = ComponentCode("CD-1")
CONTACT = Contact("Grid of Examplia", "A. Operator", "ops@grid.example", "+00 1 234")


def certificate(
    kind: CertificateKind,
    owner: str = "E1",
    *,
    start: datetime = NOW - timedelta(days=1),
    end: datetime = NOW + timedelta(days=365),
) -> Certificate:
    name = f"{owner}-{kind}-{end.timestamp()}-{start.timestamp()}"
    return Certificate(f"CN={HOME}{name}", kind, name.encode(), start, end, owner)


def path(
    message_type: str,
    route: str = "INDIRECT:B1",
    *,
    start: datetime = NOW - timedelta(days=1),
    end: datetime | None = None,
    senders: list[str] | None = None,
) -> MessagePath:
    return MessagePath(
        MessageTypePattern(message_type),
        Route.parse(route),
        Instant.of(start),
        None if end is None else Instant.of(end),
        None if senders is None else senders_of(senders),
    )


def endpoint(
    code: str,
    *paths: MessagePath,
    urls: tuple[str, ...] = (),
    certificates: tuple[Certificate, ...] | None = None,
    home: str = HOME,
    version: str = "2",
) -> Component:
    if certificates is None:
        certificates = tuple(
            certificate(kind, code)
            for kind in (
                CertificateKind.AUTHENTICATION,
                CertificateKind.SIGNING,
                CertificateKind.ENCRYPTION,
            )
        )
    return Component(
        ComponentCode(code),
        ComponentType.ENDPOINT,
        CONTACT,
        ComponentCode(home),
        Implementation(version),
        urls,
        certificates,
        Instant.of(NOW - timedelta(days=2)),
        Instant.of(NOW - timedelta(days=2)),
        paths,
    )


def broker(
    code: str,
    *,
    components: tuple[str, ...] = (),
    message_types: tuple[str, ...] = (),
    home: str = HOME,
) -> Component:
    return Component(
        ComponentCode(code),
        ComponentType.BROKER,
        CONTACT,
        ComponentCode(home),
        Implementation("2"),
        (f"amqps://{code.lower()}.example:5671",),
        (certificate(CertificateKind.AUTHENTICATION, code),),
        restriction=Restriction(
            frozenset(ComponentCode(c) for c in components),
            tuple(MessageTypePattern(t) for t in message_types),
        ),
    )


def component_directory(code: str = HOME) -> Component:
    return Component(
        ComponentCode(code),
        ComponentType.COMPONENT_DIRECTORY,
        CONTACT,
        ComponentCode(code),
        Implementation("2"),
        (f"https://{code.lower()}.example",),
        (
            certificate(CertificateKind.AUTHENTICATION, code),
            certificate(CertificateKind.INTEGRATED_CA, code),
        ),
    )


def subsystem(
    *components: Component, home: str = HOME, valid_until: datetime | None = None
) -> Subsystem:
    return Subsystem(ComponentCode(home), content_id(components), components, valid_until)


def directory(*components: Component, valid_until: datetime | None = None) -> Directory:
    return Directory.of([subsystem(*components, valid_until=valid_until)])


def metadata(
    internal_type: InternalType = InternalType.STANDARD_MESSAGE,
    *,
    sender: str = "E1",
    receiver: str = "E2",
    message_type: str = "BP1-A",
    expires: datetime = NOW + timedelta(hours=1),
) -> Metadata:
    return Metadata(
        message_id=new_message_id(),
        receiver_code=ComponentCode(receiver),
        message_type=MessageType(message_type),
        generated=Instant.of(NOW),
        expiration_time=Instant.of(expires),
        sender_code=ComponentCode(sender),
        internal_type=internal_type,
    )
