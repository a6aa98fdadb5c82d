"""A large payload one element after the other: what is held in memory is one of them, never all."""

from __future__ import annotations

from collections.abc import Iterator

from lxml import etree

from gridpost.core.envelope import Payload
from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.envelope.payload import MAX_UNPACKED, content, stream
from gridpost.wire.xml import DEFAULT_LIMITS, XmlLimits, parse

_DOCTYPE = b"<!DOCTYPE"


def parts(
    payload: Payload,
    *,
    noun: str = "",
    limit: int = MAX_UNPACKED,
    limits: XmlLimits = DEFAULT_LIMITS,
) -> Iterator[etree._Element]:
    """The children of the element that a payload is, in their order; `noun`: its name must be this.

    `limit` bounds the whole when it is unpacked, `limits` each child. What is wrong with it is raised
    where it stands: whoever takes the first ones has to be able to undo that.
    """
    if payload.compressed is None:
        for whole in content(payload):
            _check_name(whole.element, noun)
            yield from whole.element.iterchildren(tag=etree.Element)
        return
    if (payload.format or "XML") not in ("XML", "RDF"):
        raise Refusal(Rule.ENVELOPE_PAYLOAD, f"the payload is {payload.format}, not XML")
    try:
        yield from _Splitter(noun, limits).split(stream(payload, limit))
    except etree.XMLSyntaxError as error:
        raise Refusal(Rule.MALFORMED_XML, f"the payload is not well-formed: {error.msg}") from None


class _Splitter:
    def __init__(self, noun: str, limits: XmlLimits) -> None:
        self._noun, self._limits = noun, limits
        # As in wire.xml: nothing is fetched, nothing is expanded, and only UTF-8 is read.
        self._parser = etree.XMLPullParser(
            events=("start", "end"),
            encoding="utf-8",
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=False,
        )
        self._head = b""
        """What came before the first element."""
        self._depth = 0
        self._held = 0
        """Octets since the last child that is done with."""

    def split(self, chunks: Iterator[bytes]) -> Iterator[etree._Element]:
        for chunk in chunks:
            self._admit(chunk)
            self._parser.feed(chunk)
            yield from self._found()
        self._parser.close()
        yield from self._found()

    def _admit(self, chunk: bytes) -> None:
        if not self._depth:
            self._head += chunk
            if _DOCTYPE in self._head:
                raise Refusal(Rule.FORBIDDEN_XML, "a document type declaration is not allowed")
        self._held += len(chunk)
        if self._held > self._limits.max_bytes:
            raise Refusal(
                Rule.LIMIT_EXCEEDED,
                f"one element of the payload has more than {self._limits.max_bytes} bytes",
            )

    def _found(self) -> Iterator[etree._Element]:
        for event, element in self._parser.read_events():
            if event == "start":
                self._depth += 1
                if self._depth == 1:
                    self._head = b""
                    _check_name(element, self._noun)
                continue
            self._depth -= 1
            if self._depth == 1:
                # Read again by itself: every rule for a document holds for it.
                yield parse(etree.tostring(element, with_tail=False), self._limits)
                self._held = 0
                _forget(element)


def _check_name(root: etree._Element, noun: str) -> None:
    name = etree.QName(root).localname
    if noun and name != noun:
        raise Refusal(
            Rule.ENVELOPE_NOUN, f"the payload is a {clip(name)}, and the noun {clip(noun)}"
        )


def _forget(element: etree._Element) -> None:
    """All of it but the element itself, at which the parser still stands."""
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]
