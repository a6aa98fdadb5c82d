"""Entries of the directory (503 Tables 18 to 22) and what makes an own entry consistent (7.3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from urllib.parse import urlsplit

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.identifiers import ComponentCode, message_type_pattern
from gridpost.core.instant import Instant
from gridpost.core.message_path import MessagePath, Restriction
from gridpost.core.refusal import Refusal


class ComponentType(StrEnum):
    """503 Table 18."""

    BROKER = "BROKER"
    COMPONENT_DIRECTORY = "COMPONENT_DIRECTORY"
    ENDPOINT = "ENDPOINT"


# 503 Table 18, row certificates.
CERTIFICATE_KINDS: dict[ComponentType, frozenset[CertificateKind]] = {
    ComponentType.BROKER: frozenset({CertificateKind.AUTHENTICATION}),
    ComponentType.COMPONENT_DIRECTORY: frozenset(
        {CertificateKind.AUTHENTICATION, CertificateKind.INTEGRATED_CA}
    ),
    ComponentType.ENDPOINT: frozenset(
        {CertificateKind.AUTHENTICATION, CertificateKind.SIGNING, CertificateKind.ENCRYPTION}
    ),
}

# 503 Table 18, row urls.
URL_SCHEMES: dict[ComponentType, str] = {
    ComponentType.BROKER: "amqps",
    ComponentType.COMPONENT_DIRECTORY: "https",
    ComponentType.ENDPOINT: "amqps",
}


@dataclass(frozen=True, slots=True)
class Contact:
    """Who owns a component and whom to call."""

    organization: str
    person: str
    email: str
    phone: str


@dataclass(frozen=True, slots=True)
class Implementation:
    """503 Table 20."""

    mades_version: str
    name: str = ""
    version: str = ""
    compatible_versions: str = ""


@dataclass(frozen=True, slots=True)
class Component:
    """One entry of the directory. `paths` belongs to endpoints, `restriction` to brokers."""

    code: ComponentCode
    type: ComponentType
    contact: Contact
    component_directory: ComponentCode
    implementation: Implementation
    urls: tuple[str, ...] = ()
    certificates: tuple[Certificate, ...] = ()
    created: Instant | None = None
    modified: Instant | None = None
    paths: tuple[MessagePath, ...] = ()
    restriction: Restriction | None = None

    @property
    def takes_connections(self) -> bool:
        """503 Table 18: an endpoint without URLs accepts no incoming direct transfer."""
        return bool(self.urls)


def inconsistencies(component: Component) -> Iterator[str]:
    """503 cl. 7.3.1: what the owner must mend before this entry may be pushed."""
    yield from _contact_problems(component.contact)
    for url in component.urls:
        yield from _url_problems(url, URL_SCHEMES[component.type])
    if component.type is not ComponentType.ENDPOINT and component.paths:
        yield "only an endpoint has message-paths"
    if (component.type is ComponentType.BROKER) != (component.restriction is not None):
        yield "a broker has a restriction, and nothing else has one"
    for path in component.paths:
        yield from _path_problems(path)
    # Message-types are compared as texts: AB and A* are different.
    for first, second in combinations(component.paths, 2):
        if first.message_type == second.message_type and first.overlaps(second):
            yield (
                f"two message-paths for {first.message_type} overlap "
                f"from {max(first.valid_from, second.valid_from)}"
            )


def system_inconsistencies(component: Component, others: dict[str, Component]) -> Iterator[str]:
    """503 cl. 7.3.2: own data that the rest of the system makes useless. Warned of, never refused."""
    for path in component.paths:
        for sender in sorted(path.senders or ()):
            if sender not in others:
                yield f"message-path {path.message_type} names the unknown sender {sender}"
        if path.route.broker is None:
            if not component.takes_connections:
                yield (
                    f"message-path {path.message_type} is DIRECT, but this endpoint publishes no URL"
                )
            continue
        broker = others.get(path.route.broker)
        if broker is None or broker.type is not ComponentType.BROKER:
            yield f"message-path {path.message_type} names the unknown broker {path.route.broker}"
        elif broker.restriction and not broker.restriction.allows_component(component.code):
            yield f"broker {broker.code} does not admit {component.code}"
        elif broker.restriction and not _may_pass(path, broker.restriction):
            yield f"broker {broker.code} lets no message-type of the path {path.message_type} pass"
    for code in sorted(component.restriction.components if component.restriction else ()):
        if code not in others:
            yield f"the restriction names the unknown endpoint {code}"


def _contact_problems(contact: Contact) -> Iterator[str]:
    for name in ("organization", "person", "email", "phone"):
        if not getattr(contact, name).strip():
            yield f"{name} is empty"


def _url_problems(url: str, scheme: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        yield f"'{url}' is not a URL"
        return
    if parts.scheme.lower() != scheme:
        yield f"'{url}' must begin with {scheme}://"
    elif not host or any(c.isspace() for c in url):
        yield f"'{url}' names no host"
    elif parts.username or parts.password or parts.query or parts.fragment:
        yield f"'{url}' may hold a host, a port and a path only"


def _path_problems(path: MessagePath) -> Iterator[str]:
    try:
        message_type_pattern(path.message_type)
    except Refusal as refusal:
        yield refusal.message
    if path.valid_until is not None and path.valid_until <= path.valid_from:
        yield f"message-path {path.message_type} ends at or before its start {path.valid_from}"


def _may_pass(path: MessagePath, restriction: Restriction) -> bool:
    """Is there a message-type that both the path and the restriction match?"""
    if not restriction.message_types:
        return True
    return any(_intersect(path.message_type, allowed) for allowed in restriction.message_types)


def _intersect(a: str, b: str) -> bool:
    stem_a, stem_b = a.removesuffix("*"), b.removesuffix("*")
    if a == stem_a and b == stem_b:
        return a == b
    if a == stem_a:
        return a.startswith(stem_b)
    if b == stem_b:
        return b.startswith(stem_a)
    return stem_a.startswith(stem_b) or stem_b.startswith(stem_a)
