"""Requests for allocations that differ from a known good one in the values of their attributes alone.

Systems send the same few forms again and again. The tree of such a document need not be built to know
that it is valid: its values are judged one by one, more strictly than the schema does. Whatever is not
plain goes the whole way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from lxml import etree

from gridpost.core.allocation import AllocationType
from gridpost.wire.cmm.messages import Alc, AllocationReq, Allocations
from gridpost.wire.xml import XmlLimits
from gridpost.wire.xml_shape import MAX_DOCUMENT, KnownShapes

# Octets of all forms together: each is remembered with a plan of some ten times its size.
_MAX_FORMS = 128 * 1024
_KNOWN_VALUES = 4096
# What XML hands over as it stands, whatever the schema calls it.
_TEXT = re.compile(r"[ !#-%(-;=?-~]{1,64}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{3})?Z")
_QUANTITY = re.compile(r"[1-9][0-9]{0,11}")
_KINDS = {kind.value: kind for kind in AllocationType}


class _OtherWay(Exception):
    """This document has to be read like one that was never seen."""


def _text(value: str) -> str:
    if _TEXT.fullmatch(value) is None:
        raise _OtherWay
    return value


def _perhaps(value: str) -> str:
    return value and _text(value)


@lru_cache(_KNOWN_VALUES)
def _time(value: str) -> datetime:
    if _TIME.fullmatch(value) is None:
        raise _OtherWay
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise _OtherWay from None


def _quantity(value: str) -> int:
    if _QUANTITY.fullmatch(value) is None:
        raise _OtherWay
    return int(value)


def _kind(value: str) -> AllocationType:
    kind = _KINDS.get(value)
    if kind is None:
        raise _OtherWay
    return kind


_READERS: dict[tuple[str, str], Callable[[str], Any]] = {
    ("AllocationReq", "type"): _kind,
    ("AllocationReq", "allocationType"): _kind,
    ("Allocations", "inArea"): _text,
    ("Allocations", "outArea"): _text,
    ("Alc", "clientId"): _text,
    ("Alc", "bmCode"): _perhaps,
    ("Alc", "periodStart"): _time,
    ("Alc", "periodEnd"): _time,
    ("Alc", "quantity"): _quantity,
}
_ALC = ("clientId", "periodStart", "periodEnd", "quantity", "bmCode")


@dataclass(frozen=True, slots=True)
class _Form:
    """How each value is read, in the order of the document, and where it belongs."""

    limits: XmlLimits
    readers: tuple[Callable[[str], Any], ...]
    kind: int
    parts: tuple[tuple[int, int, tuple[tuple[int, ...], ...]], ...]
    """Places of inArea and outArea, and for each Alc those of its attributes."""

    def read(self, values: Sequence[str]) -> AllocationReq:
        found = [read(value) for read, value in zip(self.readers, values, strict=True)]
        return AllocationReq(
            found[self.kind],
            tuple(
                Allocations(
                    found[in_area],
                    found[out_area],
                    tuple(Alc(*[found[place] for place in places]) for places in items),
                )
                for in_area, out_area, items in self.parts
            ),
        )


class KnownForms:
    def __init__(self) -> None:
        self._forms: KnownShapes[_Form] = KnownShapes(_MAX_FORMS)

    def read(self, octets: bytes, limits: XmlLimits) -> AllocationReq | None:
        """None: it has to be read as a whole, whether it is good or not."""
        shape, values = _split(octets)
        form = self._forms.get(shape)
        if form is None or form.limits is not limits or len(octets) > limits.max_bytes:
            return None
        try:
            return form.read(values)
        except _OtherWay:
            return None

    def learn(self, octets: bytes, limits: XmlLimits, root: etree._Element) -> None:
        """From a request that was read as a whole, and was good."""
        shape, values = _split(octets)
        form = _form(root, values, limits) if shape else None
        if form is not None:
            self._forms.learn(shape, form)


def _split(octets: bytes) -> tuple[bytes, list[str]]:
    """The document without the values of its attributes, and these; empty where it is not plain.

    Two documents of one shape differ only between double quotes, as long as nothing else quotes.
    """
    declaration, rest = b"", octets
    if octets.startswith(b"<?xml "):
        end = octets.find(b"?>") + 2
        declaration, rest = octets[:end], octets[end:]
    if len(rest) > MAX_DOCUMENT or not rest.isascii() or b"&" in rest or b"'" in rest:
        return b"", []
    pieces = rest.decode("ascii").split('"')
    return declaration + '""'.join(pieces[::2]).encode("ascii"), pieces[1::2]


def _form(root: etree._Element, values: Sequence[str], limits: XmlLimits) -> _Form | None:
    named = [
        (element, str(name)) for element in root.iter(etree.Element) for name in element.attrib
    ]
    if [element.attrib[name] for element, name in named] != values:
        # A comment has quotes too, or what is quoted is not what is meant.
        return None
    places = {(element, name): place for place, (element, name) in enumerate(named)}
    readers = [_READERS.get((str(element.tag), name)) for element, name in named]
    kinds = [places[root, name] for name in ("type", "allocationType") if (root, name) in places]
    if len(kinds) != 1:
        return None
    parts = []
    for part in root.iterchildren("Allocations"):
        items = []
        for alc in part.iterchildren("Alc"):
            wanted = _ALC if (alc, "bmCode") in places else _ALC[:-1]
            items.append(tuple(places[alc, name] for name in wanted))
        parts.append((places[part, "inArea"], places[part, "outArea"], tuple(items)))
    known = tuple(reader for reader in readers if reader is not None)
    if len(known) != len(readers):
        return None
    return _Form(limits, known, kinds[0], tuple(parts))
