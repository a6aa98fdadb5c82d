"""MTOM: a SOAP envelope whose documents travel beside it as binary parts (XOP 1.0), streamed both ways.

Only what SOAP toolkits use is read: one root part, parts in binary, each referred to at most once
and only from places where the interface has a document.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from typing import BinaryIO
from urllib.parse import unquote
from uuid import uuid4

from lxml import etree
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser

from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.soap.envelope import (
    Envelope,
    EnvelopeLimits,
    EnvelopeReader,
    Path,
    Spooled,
    document_token,
    too_many,
)
from gridpost.wire.soap.version import SOAP_12, MediaType, SoapVersion, parse_content_type
from gridpost.wire.xml_text import attribute

MULTIPART = "multipart/related"
XOP = "application/xop+xml"
INCLUDE = "{http://www.w3.org/2004/08/xop/include}Include"

# A root and its documents; nobody needs more.
_MAX_PARTS = 16
_PIECE = 256 * 1024


@dataclass(frozen=True, slots=True)
class MtomType:
    """What the Content-Type of a request with attachments says."""

    media: MediaType
    boundary: str
    start: str
    """Content-ID of the root; empty: the first part."""

    @classmethod
    def read(cls, content_type: str, soap_action: str | None) -> MtomType | None:
        """None for a request that is not multipart."""
        parsed = parse_content_type(content_type)
        if parsed.get_content_type() != MULTIPART or not content_type.strip():
            return None
        boundary = parsed.get_boundary()
        if _parameter(parsed, "type").lower() != XOP or not boundary:
            raise Refusal(
                Rule.MEDIA_TYPE, f"'{clip(content_type)}' is not MTOM: its type must be {XOP}"
            )
        # JAX-WS puts the action of SOAP 1.2 into start-info, others beside it.
        info = _parameter(parsed, "start-info")
        media = MediaType.read(info, soap_action)
        if media.version is SOAP_12 and not media.action:
            media = MediaType(SOAP_12, _parameter(parsed, "action"))
        return cls(media, boundary, _parameter(parsed, "start").strip("<>"))


class MtomReader:
    """Like an EnvelopeReader, for a request with attachments."""

    def __init__(
        self,
        found: MtomType,
        large: Collection[Path],
        limits: EnvelopeLimits,
        spool: Callable[[], BinaryIO],
        *,
        understood: Collection[str] = (),
        inline: bool = False,
    ) -> None:
        """`inline`: documents may stand anywhere, and become text where they stand."""
        self._inline = inline
        self._found = found
        self._large = frozenset(large)
        self._limits = limits
        self._spool = spool
        self._envelope = EnvelopeReader(found.media.version, large, limits, spool, understood)
        self._parts: dict[str, Spooled] = {}
        self._seen = 0
        self._root_seen = False
        self._ended = False
        self._into: EnvelopeReader | Spooled | None = None
        self._headers: dict[str, str] = {}
        self._header = [b"", b""]
        try:
            self._parser = MultipartParser(
                found.boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": lambda data, a, b: self._add(0, data[a:b]),
                    "on_header_value": lambda data, a, b: self._add(1, data[a:b]),
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._open,
                    "on_part_data": lambda data, a, b: self._take(memoryview(data)[a:b]),
                    "on_part_end": self._close_part,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise _not_mtom(str(error)) from None

    @property
    def name(self) -> str:
        return self._envelope.name

    def feed(self, data: bytes) -> None:
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise _not_mtom(str(error)) from None

    def close(self) -> Envelope:
        if not self._ended:
            raise _not_mtom("the last boundary is missing")
        if not self._root_seen:
            raise _not_mtom("there is no root part")
        return self._joined(self._envelope.close())

    def discard(self) -> None:
        self._envelope.discard()
        for part in self._parts.values():
            part.file.close()

    # ------------------------------------------------------------ parts

    def _begin(self) -> None:
        self._seen += 1
        most = max(_MAX_PARTS, self._limits.max_documents + 1)
        if self._seen > most:
            raise Refusal(Rule.LIMIT_EXCEEDED, f"the request has more than {most} parts")
        self._headers = {}

    def _add(self, which: int, data: bytes) -> None:
        self._header[which] += data

    def _end_header(self) -> None:
        name, value = (part.decode("latin-1").strip() for part in self._header)
        self._headers[name.lower()] = value
        self._header = [b"", b""]

    def _open(self) -> None:
        identifier = self._headers.get("content-id", "").strip("<>")
        encoding = self._headers.get("content-transfer-encoding", "binary").lower()
        if encoding not in ("binary", "8bit", "7bit"):
            raise _not_mtom(f"the transfer encoding '{clip(encoding)}' is not binary")
        start = self._found.start
        if not self._root_seen and (identifier == start if start else self._seen == 1):
            self._check_root()
            self._root_seen = True
            self._into = self._envelope
            return
        if not identifier or identifier in self._parts:
            raise _not_mtom("a part has no Content-ID of its own")
        self._into = self._parts[identifier] = Spooled(self._spool(), 0)

    def _check_root(self) -> None:
        root = parse_content_type(self._headers.get("content-type", ""))
        version = self._found.media.version
        if root.get_content_type() != XOP:
            raise _not_mtom(f"the root part is not {XOP}")
        inner = parse_content_type(_parameter(root, "type") or version.media_type)
        if inner.get_content_type() != version.media_type:
            raise _not_mtom("the root part is of another version of SOAP than the request")

    def _take(self, data: memoryview) -> None:
        into = self._into
        if isinstance(into, Spooled):
            into.size += len(data)
            if into.size > self._limits.max_binary:
                raise Refusal(
                    Rule.CONTENT_TOO_LARGE,
                    f"the document is larger than {self._limits.max_binary} bytes",
                )
            into.file.write(data)
        elif into is not None:
            into.feed(bytes(data))

    def _close_part(self) -> None:
        self._into = None

    def _end(self) -> None:
        self._ended = True

    # ------------------------------------------------------------ joining

    def _joined(self, envelope: Envelope) -> Envelope:
        """Each reference is replaced by the part that it names (XOP 1.0 cl. 3.2)."""
        binaries, unused = dict(envelope.binaries), dict(self._parts)
        documents, most = list(envelope.documents), self._limits.max_documents
        for include in list(envelope.body.iter(INCLUDE)):
            holder = include.getparent()
            place = () if holder is None else _path(holder, envelope.body)
            allowed = self._inline or (
                place in self._large and not (most == 1 and place in binaries)
            )
            if holder is None or not allowed:
                raise _not_mtom("a document is referred to where none belongs")
            if len(holder) != 1 or (holder.text or "").strip() or (include.tail or "").strip():
                raise _not_mtom("a reference to a document must stand alone")
            identifier = unquote(include.get("href", "").removeprefix("cid:"))
            part = unused.pop(identifier, None)
            if part is None:
                raise _not_mtom(f"there is no part '{clip(identifier)}' to refer to")
            holder.remove(include)
            holder.text = None
            if self._inline:
                holder.text = b64encode(part.read()).decode("ascii")
                continue
            if most > 1:
                if len(documents) >= most:
                    raise too_many(most)
                holder.text = document_token(len(documents))
            documents.append(part)
            binaries[place] = part
        return Envelope(envelope.version, envelope.headers, envelope.body, binaries, documents)


def _path(element: etree._Element, top: etree._Element) -> Path:
    names = [str(element.tag)]
    while element is not top:
        parent = element.getparent()
        if parent is None:
            return ()
        element = parent
        names.append(str(element.tag))
    return tuple(reversed(names))


@dataclass(frozen=True, slots=True)
class MtomMessage:
    """An envelope with documents beside it; a reference stands between each two of `texts`."""

    version: SoapVersion
    texts: tuple[str, ...]
    contents: tuple[bytes, ...]
    boundary: str
    name: str

    @classmethod
    def of(cls, version: SoapVersion, before: str, after: str, content: bytes) -> MtomMessage:
        return cls.of_many(version, (before, after), (content,))

    @classmethod
    def of_many(
        cls, version: SoapVersion, texts: Sequence[str], contents: Sequence[bytes]
    ) -> MtomMessage:
        return cls(
            version, tuple(texts), tuple(contents), f"gridpost-{uuid4().hex}", f"{uuid4()}@gridpost"
        )

    @property
    def content_type(self) -> str:
        return (
            f'{MULTIPART}; type="{XOP}"; start="<root@gridpost>"; '
            f'start-info="{self.version.media_type}"; boundary="{self.boundary}"'
        )

    @property
    def size(self) -> int:
        return (
            len(self._root())
            + sum(len(self._part(number)) + len(c) for number, c in enumerate(self.contents))
            + len(self._tail())
        )

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Small ones are joined; of a large content they are parts, and no copies."""
        small = bytearray(self._root())
        for number, content in enumerate(self.contents):
            small += self._part(number)
            if len(small) + len(content) <= _PIECE:
                small += content
                continue
            yield bytes(small)
            small.clear()
            view = memoryview(content)
            for start in range(0, len(view), _PIECE):
                yield view[start : start + _PIECE]
        yield bytes(small) + self._tail()

    def _root(self) -> bytes:
        body = [self.texts[0]]
        for number, text in enumerate(self.texts[1:]):
            body.append(
                '<xop:Include xmlns:xop="http://www.w3.org/2004/08/xop/include"'
                f"{attribute('href', f'cid:{number}-{self.name}')}/>"
            )
            body.append(text)
        return (
            f"--{self.boundary}\r\n"
            f'Content-Type: {XOP}; charset=UTF-8; type="{self.version.media_type}"\r\n'
            "Content-Transfer-Encoding: binary\r\nContent-ID: <root@gridpost>\r\n\r\n"
            f"{''.join(body)}"
        ).encode()

    def _part(self, number: int) -> bytes:
        return (
            f"\r\n--{self.boundary}\r\n"
            "Content-Type: application/octet-stream\r\n"
            "Content-Transfer-Encoding: binary\r\n"
            f"Content-ID: <{number}-{self.name}>\r\n\r\n"
        ).encode()

    def _tail(self) -> bytes:
        return f"\r\n--{self.boundary}--\r\n".encode()


def _parameter(parsed: Message, name: str) -> str:
    found = parsed.get_param(name)
    return found if isinstance(found, str) else ""


def _not_mtom(reason: str) -> Refusal:
    return Refusal(Rule.SOAP_FORM, f"the request is not well-formed MTOM: {reason}")
