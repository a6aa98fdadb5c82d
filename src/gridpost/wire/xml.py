"""The one way in which Gridpost reads XML from outside: what a document may hold and how large it may be.

No document type, no entity, no network, no file; sizes are limited; what goes wrong is a Refusal.
In a tree from here the text of an element without child elements is always one piece.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from lxml import etree

from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.xml_shape import KnownShapes, in_own_thread, shape_of


@dataclass(frozen=True, slots=True)
class XmlLimits:
    """How much one document may ask of us. libxml2 itself stops at a depth of 256."""

    max_bytes: int = 8 * 1024 * 1024
    max_depth: int = 64
    max_elements: int = 200_000
    max_attributes: int = 200_000
    """In the whole document. Namespace declarations count as attributes."""
    max_attributes_per_element: int = 256
    """lxml looks attributes up one after the other: many of them on one element cost their square.
    What looks like an element is counted even where it is only character data."""
    max_attribute_length: int = 64 * 1024


DEFAULT_LIMITS = XmlLimits()

_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_DECLARATION = re.compile(
    rb"<\?xml[ \t\r\n]+version[ \t\r\n]*=[ \t\r\n]*(?P<q>[\"'])(?P<version>[^\"'<>]*)(?P=q)"
    rb"(?:[ \t\r\n]+encoding[ \t\r\n]*=[ \t\r\n]*(?P<r>[\"'])(?P<encoding>[^\"'<>]*)(?P=r))?"
    rb"(?:[ \t\r\n]+standalone[ \t\r\n]*=[ \t\r\n]*(?:'(?:yes|no)'|\"(?:yes|no)\"))?[ \t\r\n]*\?>"
)
# Atomic, and not possessive: see `xml_shape`.
_MISC = re.compile(rb"(?>(?:[ \t\r\n]++|<!--.*?-->|<\?.*?\?>)*)", re.DOTALL)
_CHUNK = 64 * 1024


class _OwnParser(threading.local):
    """A parser serves one thread at a time, and is worth keeping."""

    def __init__(self) -> None:
        self.parser = etree.XMLParser(
            encoding="utf-8",
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=False,
        )


_own = _OwnParser()

# libxml2 makes its table of built-in types with the first schema of a process. Two threads that do so at once
# leave it half made, and no schema compiles from then on: so it is made here, under the lock of the import.
etree.XMLSchema(etree.XML(b'<schema xmlns="http://www.w3.org/2001/XMLSchema"/>'))

_ERR_RESOURCE_LIMIT = 114  # libxml2's own limits; not named in every version of the bindings
_ERR_NAME_TOO_LONG = 110

# A comment or processing instruction inside a value would make `.text` end in front of it, and two
# readers of one signed document could see different values. Between elements both are harmless.
_SPLIT_TEXT = etree.XPath(
    "boolean(//*[not(*)][comment() or processing-instruction()])", regexp=False
)


def parse(data: bytes | str, limits: XmlLimits = DEFAULT_LIMITS) -> etree._Element:
    """The root of a well-formed document within the limits."""
    octets = _admit(data, limits)
    return in_own_thread(lambda: _build(octets, limits))


def parse_here(data: bytes | str, limits: XmlLimits = DEFAULT_LIMITS) -> etree._Element:
    """The same in the caller's thread, which must end soon: it keeps every name it has read."""
    return _build(_admit(data, limits), limits)


class Schema:
    """A compiled XSD of ours. Can be shared between threads."""

    def __init__(self, name: str, tree: etree._Element) -> None:
        self.name = name
        self._xsd = etree.XMLSchema(tree)
        # The error log belongs to the compiled schema, not to one validation.
        self._lock = threading.Lock()
        self._known: KnownShapes[XmlLimits] = KnownShapes()

    def read(self, data: bytes | str, limits: XmlLimits = DEFAULT_LIMITS) -> etree._Element:
        """Parse and validate."""
        octets = _admit(data, limits)
        shape = shape_of(octets)
        within = self._known.get(shape)
        if within is None:
            root = in_own_thread(lambda: _build(octets, limits))
        elif within is limits and not _long_attribute(limits.max_attribute_length, octets):
            # Only texts and values differ from a document that was within these limits.
            root = _parse(octets)
        else:
            root = _build(octets, limits)
        self.validate(root)
        if within is None:
            self._known.learn(shape, limits)
        return root

    def validate(self, root: etree._Element) -> None:
        with self._lock:
            if self._xsd.validate(root):
                return
            errors = [
                f"line {error.line}: {clip(error.message, 300)}"
                for _, error in zip(range(5), self._xsd.error_log, strict=False)
            ]
        raise Refusal(
            Rule.SCHEMA_INVALID,
            f"the document does not follow {self.name}; {errors[0] if errors else 'no reason given'}",
            "; ".join(errors[1:]),
        )


@cache
def load_schema(name: str) -> Schema:
    """The schema in `wire/schemas/<name>`, compiled once; `name` may start with a folder."""
    return Schema(name, schema_tree(name))


def schema_tree(name: str) -> etree._Element:
    """The schema document itself; what it includes is looked up beside it and nowhere else."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    parser.resolvers.add(_PackagedSchemas())
    octets = files("gridpost.wire.schemas").joinpath(name).read_bytes()
    return etree.fromstring(octets, parser, base_url=f"gridpost:/{name}")


class _PackagedSchemas(etree.Resolver):
    def resolve(self, system_url: str | None, public_id: str | None, context: Any) -> Any:
        # Schemas that belong together share a folder, as `types.xsd` is a name of one standard only.
        name = (system_url or "").removeprefix("gridpost:").lstrip("/")
        if ".." in name or ":" in name:
            raise ValueError(f"{system_url} is not one of our schemas")
        octets = files("gridpost.wire.schemas").joinpath(name).read_bytes()
        return self.resolve_string(octets, context, base_url=f"gridpost:/{name}")


def _admit(data: bytes | str, limits: XmlLimits) -> bytes:
    """The document in UTF-8, after the checks that must come before any parser sees it."""
    if len(data) > limits.max_bytes:
        raise _too_much("bytes", limits.max_bytes)
    octets, allowed = _as_utf8(data)
    if len(octets) > limits.max_bytes:
        raise _too_much("bytes", limits.max_bytes)
    start = 0
    if octets.startswith((b"<?xml ", b"<?xml\t", b"<?xml\r", b"<?xml\n")):
        declaration = _DECLARATION.match(octets)
        if declaration is None:
            raise Refusal(Rule.MALFORMED_XML, "the XML declaration is not well-formed")
        if declaration["version"] != b"1.0":
            raise Refusal(Rule.FORBIDDEN_XML, "only XML 1.0 is read")
        encoding = declaration["encoding"]
        if encoding is not None and encoding.upper() not in allowed:
            name = clip(encoding.decode("latin-1"))
            raise Refusal(
                Rule.FORBIDDEN_XML,
                f"the declared encoding '{name}' is not that of the document, or not UTF-8 or UTF-16",
            )
        start = declaration.end()
    misc = _MISC.match(octets, start)
    # After comments and processing instructions, '<!' can only begin a document type.
    if misc is not None and octets.startswith(b"<!", misc.end()):
        raise Refusal(Rule.FORBIDDEN_XML, "a document type declaration is not allowed")
    return octets


def _as_utf8(data: bytes | str) -> tuple[bytes, tuple[bytes, ...]]:
    """The document in UTF-8 without a byte order mark, and the encodings it may declare.

    XML 1.0 4.3.3: UTF-16 always starts with a byte order mark. What arrives as text has already
    been decoded, and its declaration says only what it once was.
    """
    try:
        if isinstance(data, str):
            return data.removeprefix("\ufeff").encode(), (b"UTF-8", b"UTF-16")
        if data.startswith(_UTF16_BOMS):
            return data.decode("utf-16").encode(), (b"UTF-16",)
    except UnicodeError:
        raise Refusal(Rule.MALFORMED_XML, "the document is not text in its encoding") from None
    return data.removeprefix(_UTF8_BOM), (b"UTF-8",)


def _build(octets: bytes, limits: XmlLimits) -> etree._Element:
    """The tree, without ever holding much more of it than the limits allow."""
    tags = octets.count(b"<")
    if b"<!" not in octets:
        # Nothing can hide a '<', so what is no end tag is an element, but for the declaration.
        elements = tags - octets.count(b"</") - octets.count(b"<?")
        if elements > limits.max_elements:
            raise _too_much("elements", limits.max_elements)
    else:
        elements = tags
    # Each attribute has a '=': few of them need no exact count.
    equals = octets.count(b"=")
    if equals > limits.max_attributes_per_element and _crowded_tag(
        limits.max_attributes_per_element
    ).search(octets):
        raise _too_much("attributes of one element", limits.max_attributes_per_element)
    few = (
        elements <= limits.max_elements
        and equals <= limits.max_attributes
        and not _long_attribute(limits.max_attribute_length, octets)
    )
    if few:
        root = _parse(octets)
        if _deeper_than(limits.max_depth)(root):
            raise _too_much("levels", limits.max_depth)
    else:
        root = _parse_counting(octets, limits)
    if (b"<!--" in octets or b"<?" in octets) and _SPLIT_TEXT(root):
        raise Refusal(
            Rule.FORBIDDEN_XML,
            "a comment or processing instruction inside a value is not allowed",
        )
    return root


def _parse(octets: bytes) -> etree._Element:
    try:
        return etree.fromstring(octets, _own.parser)
    except etree.XMLSyntaxError as error:
        raise _not_well_formed(error) from None


def _parse_counting(octets: bytes, limits: XmlLimits) -> etree._Element:
    parser = etree.XMLPullParser(
        events=("start", "end", "start-ns"),
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
    )
    count = _Count(limits)
    try:
        for start in range(0, len(octets), _CHUNK):
            parser.feed(octets[start : start + _CHUNK])
            for event, item in parser.read_events():
                if event == "end":
                    count.depth -= 1
                elif event == "start-ns":
                    count.attribute(str(item[1]))
                else:
                    count.element(item)
        return parser.close()
    except etree.XMLSyntaxError as error:
        raise _not_well_formed(error) from None


class _Count:
    """What a document has held so far; raises when that is too much."""

    def __init__(self, limits: XmlLimits) -> None:
        self._limits = limits
        self.depth = 0
        self._elements = 0
        self._attributes = 0

    def element(self, element: etree._Element) -> None:
        self.depth += 1
        if self.depth > self._limits.max_depth:
            raise _too_much("levels", self._limits.max_depth)
        self._elements += 1
        if self._elements > self._limits.max_elements:
            raise _too_much("elements", self._limits.max_elements)
        for value in element.attrib.values():
            self.attribute(value)

    def attribute(self, value: str) -> None:
        self._attributes += 1
        if self._attributes > self._limits.max_attributes:
            raise _too_much("attributes", self._limits.max_attributes)
        if len(value) > self._limits.max_attribute_length:
            raise _too_much("characters in an attribute", self._limits.max_attribute_length)


def _long_attribute(length: int, octets: bytes) -> bool:
    """May there be an attribute longer than this? Text that looks like one counts as well."""
    return len(octets) > length and _long_quotes(length).search(octets) is not None


@lru_cache(maxsize=16)
def _long_quotes(length: int) -> re.Pattern[bytes]:
    count = b"{%d}" % (length + 1)
    return re.compile(rb"=[ \t\r\n]*(?:\"[^\"]" + count + rb"|'[^']" + count + rb")")


@lru_cache(maxsize=16)
def _deeper_than(depth: int) -> etree.XPath:
    return etree.XPath("boolean(" + "/*" * (depth + 1) + ")", regexp=False)


@lru_cache(maxsize=16)
def _crowded_tag(attributes: int) -> re.Pattern[bytes]:
    return re.compile(
        rb"<[^ \t\r\n<>/!?](?:[^<>\"'=]*+=[ \t\r\n]*+(?:\"[^\"<]*+\"|'[^'<]*+')){%d}"
        % (attributes + 1)
    )


def _not_well_formed(error: etree.XMLSyntaxError) -> Refusal:
    if error.code in (_ERR_RESOURCE_LIMIT, _ERR_NAME_TOO_LONG):
        return Refusal(Rule.LIMIT_EXCEEDED, "the XML document is too deep or too long")
    reason = clip(error.msg or "no reason given", 300)
    return Refusal(Rule.MALFORMED_XML, f"the XML is not well-formed: {reason}")


def _too_much(what: str, limit: int) -> Refusal:
    return Refusal(Rule.LIMIT_EXCEEDED, f"the XML document has more than {limit} {what}")
