"""How directory entries and registration requests stand in a database: as JSON that reads back equal."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.identifiers import ComponentCode, MessageTypePattern
from gridpost.core.instant import Instant
from gridpost.core.message_path import MessagePath, Restriction, Route
from gridpost.core.registration import PublicKey, RegistrationRequest
from gridpost.stores.values import from_microseconds, read_json, to_microseconds, write_json


def write_component(component: Component) -> str:
    return write_json(
        {
            "code": component.code,
            "type": component.type.value,
            "contact": _plain_contact(component.contact),
            "component_directory": component.component_directory,
            "implementation": [
                component.implementation.mades_version,
                component.implementation.name,
                component.implementation.version,
                component.implementation.compatible_versions,
            ],
            "urls": list(component.urls),
            "certificates": _plain_certificates(component.certificates),
            "created": _plain_instant(component.created),
            "modified": _plain_instant(component.modified),
            "paths": [
                [
                    p.message_type,
                    # Not its text: what another product called its broker need not parse again.
                    p.route.broker,
                    _plain_instant(p.valid_from),
                    _plain_instant(p.valid_until),
                    None if p.senders is None else sorted(p.senders),
                ]
                for p in component.paths
            ],
            "restriction": None
            if component.restriction is None
            else [
                sorted(component.restriction.components),
                list(component.restriction.message_types),
            ],
        }
    )


def read_component(text: str) -> Component:
    plain: dict[str, Any] = read_json(text)
    restriction = plain["restriction"]
    return Component(
        code=ComponentCode(plain["code"]),
        type=ComponentType(plain["type"]),
        contact=Contact(*plain["contact"]),
        component_directory=ComponentCode(plain["component_directory"]),
        implementation=Implementation(*plain["implementation"]),
        urls=tuple(plain["urls"]),
        certificates=_certificates(plain["certificates"]),
        created=_instant(plain["created"]),
        modified=_instant(plain["modified"]),
        paths=tuple(_path(path) for path in plain["paths"]),
        restriction=None
        if restriction is None
        else Restriction(
            frozenset(map(ComponentCode, restriction[0])),
            tuple(map(MessageTypePattern, restriction[1])),
        ),
    )


def write_request(request: RegistrationRequest) -> str:
    return write_json(
        {
            "contact": _plain_contact(request.contact),
            "code": request.code,
            "public_keys": [[k.kind.value, _base64(k.spki)] for k in request.public_keys],
            "certificates": _plain_certificates(request.certificates),
        }
    )


def read_request(text: str) -> RegistrationRequest:
    plain: dict[str, Any] = read_json(text)
    return RegistrationRequest(
        Contact(*plain["contact"]),
        ComponentCode(plain["code"]),
        tuple(PublicKey(CertificateKind(k), b64decode(s)) for k, s in plain["public_keys"]),
        _certificates(plain["certificates"]),
    )


def write_certificates(certificates: Iterable[Certificate]) -> str:
    return write_json(_plain_certificates(certificates))


def read_certificates(text: str) -> tuple[Certificate, ...]:
    return _certificates(read_json(text))


def _plain_contact(contact: Contact) -> list[str]:
    return [contact.organization, contact.person, contact.email, contact.phone]


def _plain_certificates(certificates: Iterable[Certificate]) -> list[Any]:
    return [
        [
            c.certificate_id,
            c.kind.value,
            _base64(c.der),
            to_microseconds(c.not_before),
            to_microseconds(c.not_after),
            c.subject_code,
        ]
        for c in certificates
    ]


def _certificates(plain: list[Any]) -> tuple[Certificate, ...]:
    return tuple(
        Certificate(
            identifier,
            CertificateKind(kind),
            b64decode(der),
            from_microseconds(start),
            from_microseconds(end),
            subject,
        )
        for identifier, kind, der, start, end, subject in plain
    )


def _path(plain: list[Any]) -> MessagePath:
    message_type, broker, valid_from, valid_until, senders = plain
    start = _instant(valid_from)
    if start is None:
        raise ValueError("a message-path without its start")
    return MessagePath(
        MessageTypePattern(message_type),
        Route(None if broker is None else ComponentCode(broker)),
        start,
        _instant(valid_until),
        None if senders is None else frozenset(map(ComponentCode, senders)),
    )


def _plain_instant(instant: Instant | None) -> list[Any] | None:
    return None if instant is None else [to_microseconds(instant.at), instant.text]


def _instant(plain: list[Any] | None) -> Instant | None:
    return None if plain is None else Instant(from_microseconds(plain[0]), plain[1])


def _base64(octets: bytes) -> str:
    return b64encode(octets).decode("ascii")
