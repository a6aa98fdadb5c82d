"""A SOAP envelope as it arrives: large values go to a file on the way, the rest is read as a whole.

expat walks through the bytes, refuses what SOAP and we forbid, and finds the places where a large
base64 value stands. Those bytes never become part of a tree; everything else is kept as it came and
read by `wire.xml`, the one reader of foreign XML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, cast
from xml.parsers import expat

from lxml import etree

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.soap.base64_text import Base64Reader
from gridpost.wire.soap.fault import FaultCode, SoapError
from gridpost.wire.soap.version import SoapVersion, version_of
from gridpost.wire.xml import XmlLimits, parse

Path = tuple[str, ...]
"""Names from the child of the body downwards, `{namespace}local` or `local`."""


@dataclass(frozen=True, slots=True)
class EnvelopeLimits:
    max_binary: int
    """Bytes of one large value, decoded."""
    max_rest: int = 1024 * 1024
    """Bytes of everything else."""
    max_depth: int = 64
    max_documents: int = 1
    """Large values in one envelope; with more than one, `Envelope.document` tells them apart."""


@dataclass(slots=True)
class Envelope:
    version: SoapVersion
    headers: list[etree._Element]
    body: etree._Element
    """The one child of the SOAP body; large values in it are empty."""
    binaries: Mapping[Path, Spooled] = field(default_factory=dict)
    documents: Sequence[Spooled] = ()
    """Where more than one is allowed: all of them, in the order in which they are referred to."""

    @property
    def name(self) -> str:
        return str(self.body.tag)

    def document(self, holder: etree._Element) -> Spooled | None:
        """The large value of this element, where several are allowed; None when it is empty."""
        token = (holder.text or "").strip()
        return self.documents[int(token)] if token else None


@dataclass(slots=True)
class Spooled:
    file: BinaryIO
    size: int

    def read(self) -> bytes:
        self.file.seek(0)
        return self.file.read()


class InMemory:
    """A spool for what is in memory anyway: the pieces are kept as they are, and joined when read."""

    def __init__(self) -> None:
        self._pieces: list[bytes | memoryview] = []

    def write(self, piece: bytes | memoryview) -> int:
        self._pieces.append(piece)
        return len(piece)

    def seek(self, place: int) -> int:
        return place

    def read(self) -> bytes:
        return b"".join(self._pieces)

    def close(self) -> None:
        self._pieces.clear()


def in_memory() -> BinaryIO:
    return cast(BinaryIO, InMemory())


class EnvelopeReader:
    """Feed bytes, then close. Whoever makes one also calls `discard`, whatever happens."""

    def __init__(
        self,
        version: SoapVersion,
        large: Collection[Path],
        limits: EnvelopeLimits,
        spool: Callable[[], BinaryIO],
        understood: Collection[str] = (),
    ) -> None:
        """`understood`: tags of the header blocks that whoever asks looks at."""
        self._understood = frozenset(understood)
        self._version = version
        self._large = frozenset(large)
        self._limits = limits
        self._spool = spool
        self._path: list[str] = []
        self.name = ""
        """The child of the body, as soon as it is known."""
        # Bytes not yet sorted into kept and large, and where in the document they begin.
        self._raw = bytearray()
        self._raw_start = 0
        self._kept = bytearray()
        self._binaries: dict[Path, Spooled] = {}
        self._documents: list[Spooled] = []
        self._reader: Base64Reader | None = None
        self._cutting = False
        self._text: list[str] = []
        parser = self._parser = expat.ParserCreate(namespace_separator="}")
        parser.buffer_text = False
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = _no_doctype
        parser.CommentHandler = self._no_split
        parser.ProcessingInstructionHandler = self._no_split

    # ------------------------------------------------------------ bytes in

    def feed(self, data: bytes) -> None:
        self._raw += data
        self._parse(data, last=False)
        at = self._parser.CurrentByteIndex
        if self._cutting:
            self._decode()
            self._drop_until(at)
        else:
            self._keep_until(at)
        if len(self._kept) + len(self._raw) > self._limits.max_rest + len(data):
            raise Refusal(
                Rule.LIMIT_EXCEEDED,
                f"the envelope is larger than {self._limits.max_rest} bytes beside its document",
            )

    def close(self) -> Envelope:
        self._parse(b"", last=True)
        self._kept += self._raw
        limits = XmlLimits(max_bytes=self._limits.max_rest, max_depth=self._limits.max_depth)
        root = parse(bytes(self._kept), limits)
        return _open(root, self._binaries, self._documents, self._understood)

    def discard(self) -> None:
        """The files go, and what they hold."""
        for spooled in self._documents:
            spooled.file.close()

    def _parse(self, data: bytes, *, last: bool) -> None:
        try:
            self._parser.Parse(data, last)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise Refusal(
                Rule.MALFORMED_XML, f"the XML is not well-formed: {reason}, line {error.lineno}"
            ) from None

    def _keep_until(self, at: int) -> None:
        count = at - self._raw_start
        if count > 0:
            self._kept += self._raw[:count]
            self._drop_until(at)

    def _drop_until(self, at: int) -> None:
        count = at - self._raw_start
        if count > 0:
            del self._raw[:count]
            self._raw_start = at

    # ------------------------------------------------------------ what expat finds

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._parser.CharacterDataHandler = None
        tag = "{" + name if "}" in name else name
        self._path.append(tag)
        depth = len(self._path)
        if depth > self._limits.max_depth:
            raise Refusal(
                Rule.LIMIT_EXCEEDED, f"the envelope has more than {self._limits.max_depth} levels"
            )
        if self._cutting:
            raise Refusal(Rule.BAD_BASE64, f"an element stands inside the text of {self._path[-2]}")
        if depth == 1:
            _check_root(tag, self._version)
        elif depth == 3 and self._path[1] == self._version.tag("Body") and not self.name:
            self.name = tag
        if depth > 3 and tuple(self._path[2:]) in self._large:
            self._parser.CharacterDataHandler = self._first_text

    def _first_text(self, text: str) -> None:
        """The value begins here: up to now everything is kept, from now on nothing."""
        if text.isspace():
            return  # in front of a value, or of a reference to an attachment
        place = tuple(self._path[2:])
        most = self._limits.max_documents
        if most == 1 and place in self._binaries:
            raise Refusal(Rule.SCHEMA_INVALID, f"{place[-1]} stands in the request twice")
        if most > 1 and len(self._documents) >= most:
            raise too_many(most)
        self._keep_until(self._parser.CurrentByteIndex)
        if most > 1:
            self._kept += document_token(len(self._documents)).encode(_encoding(self._kept))
        spooled = Spooled(self._spool(), 0)
        self._documents.append(spooled)
        self._binaries[place] = spooled
        self._reader = Base64Reader(spooled.file, self._limits.max_binary)
        self._cutting = True
        self._text.append(text)
        self._parser.CharacterDataHandler = self._text.append

    def _end(self, name: str) -> None:
        if self._cutting:
            self._decode()
            assert self._reader is not None
            self._reader.close()
            self._documents[-1].size = self._reader.size
            self._drop_until(self._parser.CurrentByteIndex)
            self._cutting = False
            self._reader = None
        self._parser.CharacterDataHandler = None
        self._path.pop()

    def _decode(self) -> None:
        if self._text and self._reader is not None:
            self._reader.feed("".join(self._text))
            self._text.clear()

    def _no_split(self, *_: str) -> None:
        if self._cutting:
            raise Refusal(
                Rule.FORBIDDEN_XML, "a comment or processing instruction stands inside a value"
            )


def standalone(element: etree._Element) -> bytes:
    """An element of a body as a document of its own, without prefixes that only the envelope used."""
    octets = etree.tostring(element, encoding="UTF-8", with_tail=False)
    root = etree.fromstring(octets)
    # A prefix may also stand in a value (`xsi:type="p:Kind"`).
    text = octets.decode()
    kept = [p for p in root.nsmap if p and re.search(rf"(?<![\w.-]){re.escape(p)}:", text)]
    etree.cleanup_namespaces(root, keep_ns_prefixes=kept)
    return etree.tostring(root, encoding="UTF-8")


def document_token(number: int) -> str:
    """Stands in the tree for a large value that was taken out; the schema sees base64."""
    return f"{number:08d}"


def too_many(most: int) -> Refusal:
    return Refusal(Rule.LIMIT_EXCEEDED, f"there are more than {most} documents")


def _encoding(kept: bytearray) -> str:
    if kept.startswith(b"\xff\xfe"):
        return "utf-16-le"
    return "utf-16-be" if kept.startswith(b"\xfe\xff") else "ascii"


def _no_doctype(*_: object) -> None:
    raise Refusal(Rule.FORBIDDEN_XML, "a document type declaration is not allowed")


def _check_root(tag: str, version: SoapVersion) -> None:
    """SOAP 1.1 cl. 4.1.2, SOAP 1.2 part 1 cl. 5.4.7."""
    if tag == version.tag("Envelope"):
        return
    namespace, _, local = tag.removeprefix("{").rpartition("}")
    if local != "Envelope":
        raise SoapError(FaultCode.SENDER, "the message is not a SOAP envelope")
    other = version_of(namespace)
    reason = (
        f"the envelope is SOAP {other.name}, but the media type says SOAP {version.name}"
        if other
        else "the envelope is neither SOAP 1.1 nor SOAP 1.2"
    )
    raise SoapError(FaultCode.VERSION_MISMATCH, reason)


def _open(
    root: etree._Element,
    binaries: Mapping[Path, Spooled],
    documents: Sequence[Spooled],
    understood: frozenset[str],
) -> Envelope:
    version = version_of(etree.QName(root).namespace or "")
    assert version is not None  # expat has seen the root
    parts = list(root.iterchildren(tag=etree.Element))
    names = [str(part.tag) for part in parts]
    header, body = version.tag("Header"), version.tag("Body")
    if names not in ([body], [header, body]):
        raise SoapError(FaultCode.SENDER, "an envelope holds a header, if any, and a body")
    content = list(parts[-1].iterchildren(tag=etree.Element))
    if len(content) != 1:
        raise SoapError(FaultCode.SENDER, f"the body holds {len(content)} elements instead of one")
    headers = list(parts[0].iterchildren(tag=etree.Element)) if len(parts) == 2 else []
    _check_understood(version, [h for h in headers if h.tag not in understood])
    return Envelope(version, headers, content[0], binaries, documents)


def _check_understood(version: SoapVersion, headers: list[etree._Element]) -> None:
    """These blocks are not understood: one that must be understood by us is refused."""
    role = version.tag("actor" if version.name == "1.1" else "role")
    ultimate = {"", version.namespace + "/role/ultimateReceiver", version.next_role}
    missed = tuple(
        (etree.QName(block).namespace or "", etree.QName(block).localname)
        for block in headers
        if block.get(version.tag("mustUnderstand"), "0").strip() in ("1", "true")
        and block.get(role, "").strip() in ultimate
    )
    if missed:
        names = ", ".join(name for _, name in missed)
        raise SoapError(
            FaultCode.MUST_UNDERSTAND, f"these headers are not understood here: {names}", missed
        )
