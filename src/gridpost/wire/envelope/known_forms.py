"""Documents that differ from a known good one in their texts alone.

Systems send the same few forms of envelopes again and again. The tree of such a document need not
be built to know that it is valid: the texts of the envelope are judged one by one, as the schema
does, and a payload is parsed when somebody asks. Whatever is not plain goes the whole way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from lxml import etree

from gridpost.core.envelope import (
    NAMESPACE,
    OTHER_NAMESPACE,
    AnyMessage,
    Error,
    Header,
    Identifier,
    Level,
    Pair,
    Payload,
    ReplayDetection,
    Reply,
    Request,
    Result,
    User,
)
from gridpost.core.instant import Instant
from gridpost.core.refusal import Refusal
from gridpost.wire.envelope.fragment import Fragment
from gridpost.wire.envelope.reader import (
    HEADER,
    ROOTS,
    TABLES,
    VERBS,
    Read,
    Reader,
    date_time,
    reader_of,
)
from gridpost.wire.envelope.settings import Reading
from gridpost.wire.xml import XmlLimits, parse
from gridpost.wire.xml_shape import KnownShapes, split_text

_Take = Callable[[list[bytes]], Any]
_BLANK = " \t\r\n"
_USUAL = bytes(range(0x20, 0x7F)) + b"\t\n"
_LEXICAL_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"
    r"(?:Z|[+-](?:(?:0[0-9]|1[0-3]):[0-5][0-9]|14:00))?"
)
_LEXICAL_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_RESULTS = {result.value: result for result in Result}
_LEVELS = {level.value: level for level in Level}


class _OtherWay(Exception):
    """This document has to be read like one that was never seen."""


class _Later:
    """A document whose tree is made when it is needed."""

    def __init__(self, octets: bytes, limits: XmlLimits) -> None:
        self._octets, self._limits = octets, limits
        self._root: etree._Element | None = None

    def find(self, path: tuple[int, ...]) -> etree._Element:
        if self._root is None:
            self._root = parse(self._octets, self._limits)
        found = self._root
        for index in path:
            found = found[index]
        return found


class _Compiler:
    """Turns a document that was read into what makes the same value of other texts."""

    def __init__(self, namespace: str, root: etree._Element, zone: tzinfo | None) -> None:
        self._prefix = "{" + namespace + "}"
        self._zone = zone
        self._reader = reader_of(namespace, zone)
        self._slots: dict[int, int] = {}
        self._kept: list[etree._Element] = []
        self.texts = 0
        for event, element in etree.iterwalk(root, events=("start", "end")):
            text = element.text if event == "start" else element.tail
            if text and text[0] not in _BLANK:
                if event == "start":
                    # Proxies are told apart by identity, so they must live as long as this does.
                    self._slots[id(element)] = self.texts
                    self._kept.append(element)
                self.texts += 1
        self.message = self._message(root)

    def _message(self, root: etree._Element) -> Callable[[list[bytes], _Later], AnyMessage]:
        make = ROOTS[self._local(root)]
        takes: dict[str, _Take] = {}
        payload: Callable[[_Later], Payload] | None = None
        for index, child in enumerate(root):
            local = self._local(child)
            if local == "Header":
                takes["header"] = self._value(Header, child, HEADER_FIELDS)
            elif local == "Payload":
                payload = self._payload(index, child)
            else:
                kind: Any = Request if local == "Request" else Reply
                takes[local.lower()] = self._value(kind, child, TABLES[local])
        items = tuple(takes.items())

        def message(texts: list[bytes], later: _Later) -> AnyMessage:
            fields = {name: take(texts) for name, take in items}
            if payload is not None:
                fields["payload"] = payload(later)
            made: AnyMessage = make(**fields)
            return made

        return message

    def _payload(self, index: int, element: etree._Element) -> Callable[[_Later], Payload]:
        """Foreign elements alone; everything else of a payload is read the whole way."""
        tags = [str(child.tag) for child in element]
        if any(tag.startswith(self._prefix) or tag[0] != "{" for tag in tags):
            raise _OtherWay
        numbered = tuple((tag, (index, place)) for place, tag in enumerate(tags))

        def payload(later: _Later) -> Payload:
            return Payload(
                tuple(
                    Fragment.later(tag, lambda path=path: later.find(path))  # type: ignore[misc]
                    for tag, path in numbered
                )
            )

        return payload

    def _value(
        self, kind: Any, element: etree._Element, table: dict[str, tuple[str, Read, bool]]
    ) -> _Take:
        takes: list[tuple[str, _Take]] = []
        several: dict[str, list[_Take]] = {}
        for child in element:
            field, read, many = table[self._local(child)]
            take = self._field(child, read)
            if many:
                several.setdefault(field, []).append(take)
            else:
                takes.append((field, take))
        for field, found in several.items():
            takes.append((field, lambda texts, found=found: tuple(t(texts) for t in found)))  # type: ignore[misc]
        fixed = tuple(takes)
        return lambda texts: kind(**{field: take(texts) for field, take in fixed})

    def _field(self, element: etree._Element, read: Read) -> _Take:
        if len(element):
            return self._composite(element, read)
        slot = self._slots.get(id(element))
        if slot is None or element.attrib:
            if slot is not None:
                raise _OtherWay
            value = read(self._reader, element)
            return lambda texts: value
        judge = _JUDGES.get(read)
        if judge is None:
            raise _OtherWay
        zone = self._zone
        return lambda texts: judge(texts[slot].decode("ascii"), zone)

    def _composite(self, element: etree._Element, read: Read) -> _Take:
        if read in (Reader._pair, Reader._user):
            kind: Any = Pair if read is Reader._pair else User
            parts = [self._field(child, Reader._text) for child in element]
            return lambda texts: kind(*(part(texts) for part in parts))
        if read is Reader._replay:
            nonce = self._field(element[0], Reader._text)
            created = self._field(element[1], Reader._time)
            return lambda texts: ReplayDetection(nonce(texts), created(texts))
        if read is Reader._error:
            return self._value(Error, element, TABLES["Error"])
        raise _OtherWay

    def _local(self, element: etree._Element) -> str:
        tag = element.tag
        if not isinstance(tag, str) or not tag.startswith(self._prefix):
            raise _OtherWay
        return tag[len(self._prefix) :]


def _judge_time(text: str, zone: tzinfo | None) -> Instant:
    if _LEXICAL_TIME.fullmatch(text) is None:
        raise _OtherWay
    try:
        return date_time(text, zone)
    except Refusal:
        # The schema has the first word about what is wrong.
        raise _OtherWay from None


def _judge_integer(text: str, zone: tzinfo | None) -> int:
    if _LEXICAL_INTEGER.fullmatch(text) is None:
        raise _OtherWay
    return int(text)


_JUDGES: dict[Read, Callable[[str, tzinfo | None], Any]] = {
    Reader._text: lambda text, zone: text,
    Reader._verb: lambda text, zone: VERBS[text],
    Reader._result: lambda text, zone: _RESULTS[text],
    Reader._level: lambda text, zone: _LEVELS[text],
    Reader._boolean: lambda text, zone: _BOOLEANS[text],
    Reader._id: lambda text, zone: Identifier(text),
    Reader._time: _judge_time,
    Reader._integer: _judge_integer,
}
HEADER_FIELDS: dict[str, tuple[str, Read, bool]] = {
    name: (field, read or Reader._text, name == "Property")
    for name, (field, read) in HEADER.items()
}


@dataclass(frozen=True, slots=True)
class _Template:
    message: Callable[[list[bytes], _Later], AnyMessage]
    reading: Reading


class Templates:
    def __init__(self) -> None:
        self._known: KnownShapes[_Template] = KnownShapes()

    def read(self, octets: bytes, reading: Reading) -> AnyMessage | None:
        shape, texts = split_text(octets)
        template = self._known.get(shape)
        if (
            template is None
            or template.reading != reading
            or len(octets) > reading.limits.max_bytes
        ):
            return None
        if octets.translate(None, _USUAL) or b"]]>" in octets:
            return None
        try:
            return template.message(texts, _Later(octets, reading.limits))
        except (_OtherWay, KeyError):
            return None

    def learn(self, octets: bytes, root: etree._Element, reading: Reading) -> None:
        shape, texts = split_text(octets)
        if not shape or self._known.get(shape) is not None:
            return
        if octets.translate(None, _USUAL) or OTHER_NAMESPACE.encode() in octets:
            return
        try:
            compiler = _Compiler(NAMESPACE, root, reading.zone)
        except (_OtherWay, KeyError):
            return
        if compiler.texts == len(texts):
            self._known.learn(shape, _Template(compiler.message, reading))
