"""One entry of the directory as XML (503 cl. 7.8.1, 7.8.3), and how much of a faulty one is kept.

Three readers meet here. A component-directory reads what a component pushes: strictly, and only
what the component owns (Table 18). A component reads the entry that its directory answers with.
And everybody reads entries of others in a synchronisation: there a fault costs the faulty item and
leads to a warning, because 503 cl. 7.3.2 does not let one component's data stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from lxml import etree

from gridpost.core.certificate import Certificate
from gridpost.core.component import Component, ComponentType, Implementation
from gridpost.core.identifiers import (
    ANY,
    ComponentCode,
    MessageTypePattern,
    clip,
    component_code,
    message_type_pattern,
)
from gridpost.core.instant import Instant
from gridpost.core.message_path import MessagePath, Restriction, Route, senders_of
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.directory import document as doc
from gridpost.wire.mades.values import named
from gridpost.wire.xml_text import attribute, element

T = TypeVar("T")

ELEMENTS: dict[ComponentType, str] = {
    ComponentType.ENDPOINT: "endpoint",
    ComponentType.BROKER: "broker",
    ComponentType.COMPONENT_DIRECTORY: "componentDirectory",
}
TYPES = {name: kind for kind, name in ELEMENTS.items()}


def encode_component(component: Component) -> bytes:
    """A document of its own, as pushed and as answered to a push (503 Table 25)."""
    if component.type is ComponentType.COMPONENT_DIRECTORY:
        raise ValueError("a component-directory is never pushed")
    return doc.document(ELEMENTS[component.type], content(component))


def decode_pushed(data: bytes, expected: ComponentType, home: ComponentCode) -> Component:
    """What an endpoint or broker pushes, without what its directory owns.

    Certificates, timestamps, type and home in the document are not even looked at (see
    divergences, directory owned attributes); the code is returned as written for the caller to compare.
    """
    entry = doc.read("components", ELEMENTS[expected], data)
    return Component(
        code=named("code", component_code, doc.text(entry, "code")),
        type=expected,
        contact=doc.read_contact(entry),
        component_directory=home,
        implementation=_read_implementation(entry),
        urls=_texts(entry, "urls/url"),
        paths=tuple(_read_path(path) for path in entry.findall("paths/path")),
        restriction=_read_restriction(entry, component_code, message_type_pattern),
    )


def decode_entry(data: bytes, expected: ComponentType) -> tuple[Component, tuple[str, ...]]:
    """The entry that a component-directory answers to a push with, and what is wrong with it."""
    entry = doc.read("components", ELEMENTS[expected], data)
    warnings: list[str] = []
    component = read_entry(entry, expected, None, warnings.append)
    if component is None:
        raise Refusal(Rule.BAD_VALUE, "the entry cannot be used", "; ".join(warnings))
    return component, tuple(warnings)


def content(component: Component) -> str:
    """Everything inside the element of an entry."""
    implementation = component.implementation
    parts = [
        doc.contact(component.contact),
        element("code", component.code),
        f"<type>{component.type.value}</type>",
        _wrapped("urls", "url", component.urls) if component.urls else "",
        doc.certificates(component.certificates),
        _instant("creationTimestamp", component.created),
        _instant("modificationTimestamp", component.modified),
        element("componentDirectory", component.component_directory),
        "<madesImplementation",
        attribute("name", implementation.name) if implementation.name else "",
        attribute("version", implementation.version) if implementation.version else "",
        attribute("compatibleVersions", implementation.compatible_versions)
        if implementation.compatible_versions
        else "",
        attribute("madesVersion", implementation.mades_version),
        "/>",
    ]
    if component.type is ComponentType.ENDPOINT:
        parts.append(f"<paths>{''.join([_path(path) for path in component.paths])}</paths>")
    elif component.type is ComponentType.BROKER:
        parts.append(_restriction(component.restriction or Restriction()))
    return "".join(parts)


def read_entry(
    entry: etree._Element,
    kind: ComponentType,
    home: ComponentCode | None,
    warn: Callable[[str], None],
) -> Component | None:
    """An entry of somebody else; None when not even its name can be used.

    `home` stands in for an absent home, which the schema allows.
    """
    code = doc.text(entry, "code")
    stated = doc.text(entry, "type")
    own_home = doc.text(entry, "componentDirectory")
    if not own_home:
        own_home = code if kind is ComponentType.COMPONENT_DIRECTORY else home or ""
    try:
        named("code", component_code, code)
        named("componentDirectory", component_code, own_home)
        if stated != kind.value:
            raise Refusal(Rule.BAD_VALUE, f"type {stated} in an element {ELEMENTS[kind]}")
    except Refusal as refusal:
        warn(f"entry '{clip(code)}' is left out: {refusal.message}")
        return None

    def tolerated(what: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except Refusal as refusal:
            warn(f"{what} of {code} is left out: {refusal.message}")
            return None

    certificates: list[Certificate] = []
    for item in doc.certificate_elements(entry):
        certificate = tolerated(
            f"a certificate {doc.text(item, 'type')}", partial(doc.one_certificate, item)
        )
        if certificate is not None:
            certificates.append(certificate)
    paths: list[MessagePath] = []
    for item in entry.findall("paths/path"):
        path = tolerated(
            f"a message-path {clip(doc.text(item, 'messageType'))}",
            partial(_read_foreign_path, item),
        )
        if path is not None:
            paths.append(path)
    return Component(
        code=ComponentCode(code),
        type=kind,
        contact=doc.read_contact(entry),
        component_directory=ComponentCode(own_home),
        implementation=_read_implementation(entry),
        urls=_texts(entry, "urls/url"),
        certificates=tuple(certificates),
        created=tolerated("creationTimestamp", partial(_read_instant, entry, "creationTimestamp")),
        modified=tolerated(
            "modificationTimestamp", partial(_read_instant, entry, "modificationTimestamp")
        ),
        paths=tuple(paths),
        # A list that lost its unreadable items could become empty, and an empty one allows all:
        # such names are kept as they are and match nothing.
        restriction=_read_restriction(entry, ComponentCode, MessageTypePattern),
    )


def _path(path: MessagePath) -> str:
    # See divergences, senders of a path: '*' for any, an empty element for nobody.
    senders = [ANY] if path.senders is None else sorted(path.senders)
    return (
        "<path>"
        + _wrapped("senderComponent", "component", senders)
        + element("messageType", path.message_type)
        + element("path", str(path.route))
        + _instant("validFrom", path.valid_from)
        + _instant("validUntil", path.valid_until)
        + "</path>"
    )


def _read_path(path: etree._Element) -> MessagePath:
    valid_from = _read_instant(path, "validFrom")
    if valid_from is None:
        raise Refusal(Rule.BAD_VALUE, "validFrom is empty")
    listed = path.find("senderComponent")
    return MessagePath(
        message_type=named("messageType", message_type_pattern, doc.text(path, "messageType")),
        route=named("path", Route.parse, doc.text(path, "path")),
        valid_from=valid_from,
        valid_until=_read_instant(path, "validUntil"),
        senders=None if listed is None else senders_of(_texts(listed, "component")),
    )


def _read_foreign_path(path: etree._Element) -> MessagePath:
    """Names that can match nothing stay, so that a path never gets wider than it was written."""
    valid_from = _read_instant(path, "validFrom")
    if valid_from is None:
        raise Refusal(Rule.BAD_VALUE, "validFrom is empty")
    listed = path.find("senderComponent")
    senders = None if listed is None else frozenset(map(ComponentCode, _texts(listed, "component")))
    return MessagePath(
        message_type=MessageTypePattern(doc.text(path, "messageType")),
        route=named("path", Route.parse, doc.text(path, "path")),
        valid_from=valid_from,
        valid_until=_read_instant(path, "validUntil"),
        senders=None if senders is not None and ANY in senders else senders,
    )


def _restriction(restriction: Restriction) -> str:
    return (
        "<restriction>"
        + _wrapped("components", "component", sorted(restriction.components))
        + _wrapped("messageTypes", "messageType", restriction.message_types)
        + "</restriction>"
    )


def _read_restriction(
    entry: etree._Element,
    code: Callable[[str], ComponentCode],
    pattern: Callable[[str], MessageTypePattern],
) -> Restriction | None:
    found = entry.find("restriction")
    if found is None:
        return None
    return Restriction(
        frozenset(named("component", code, c) for c in _texts(found, "components/component")),
        tuple(named("messageType", pattern, m) for m in _texts(found, "messageTypes/messageType")),
    )


def _read_implementation(entry: etree._Element) -> Implementation:
    found = entry.find("madesImplementation")
    if found is None:
        raise Refusal(Rule.SCHEMA_INVALID, "madesImplementation is missing")
    return Implementation(
        mades_version=found.get("madesVersion", ""),
        name=found.get("name", ""),
        version=found.get("version", ""),
        compatible_versions=found.get("compatibleVersions", ""),
    )


def _instant(name: str, at: Instant | None) -> str:
    return "" if at is None else element(name, at.text)


def _read_instant(parent: etree._Element, name: str) -> Instant | None:
    lexical = doc.token(parent, name)
    return named(name, Instant.parse, lexical) if lexical else None


def _wrapped(wrapper: str, name: str, values: Iterable[str]) -> str:
    return f"<{wrapper}>{''.join([element(name, value) for value in values])}</{wrapper}>"


def _texts(parent: etree._Element, path: str) -> tuple[str, ...]:
    return tuple(found.text or "" for found in parent.findall(path))
