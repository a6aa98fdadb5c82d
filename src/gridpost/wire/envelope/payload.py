"""What a payload carries (61968-100 cl. 6.4, Table 2): XML as it is, everything else in Compressed."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import re
import zlib
from collections.abc import Iterator

from gridpost.core.envelope import Payload
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.envelope.fragment import Fragment
from gridpost.wire.xml import DEFAULT_LIMITS, XmlLimits

COMPRESS_ABOVE = 1024 * 1024
"""61968-100 cl. 8.2: XML larger than this goes compressed."""
MAX_UNPACKED = 256 * 1024 * 1024
_CHUNK = 64 * 1024
_TEXT_CHUNK = 4 * _CHUNK
_BLANKS = re.compile(r"[ \t\r\n]+")
# Table 2: a structure that is only encoded, and an archive that is compressed already.
_NOT_COMPRESSED = frozenset({"BINARY", "GZIP"})


def xml_payload(
    content: str | bytes | Fragment, *, compress_above: int = COMPRESS_ABOVE
) -> Payload:
    """One element: as it is, or compressed when it is large."""
    fragment = content if isinstance(content, Fragment) else None
    octets = fragment.text.encode() if fragment is not None else _octets(content)
    if len(octets) > compress_above:
        return file_payload(octets, "XML")
    return Payload(content=(fragment or Fragment.parse(octets),))


def _octets(content: object) -> bytes:
    return content.encode() if isinstance(content, str) else bytes(content)  # type: ignore[call-overload]


def file_payload(data: bytes, format_: str) -> Payload:
    """What is not XML, or is to travel compressed; `BINARY` and `GZIP` are only encoded."""
    packed = data if format_ in _NOT_COMPRESSED else gzip.compress(data, mtime=0)
    return Payload(compressed=base64.b64encode(packed).decode("ascii"), format=format_)


def unpacked(payload: Payload, limit: int = MAX_UNPACKED) -> bytes:
    """The bytes that Compressed stands for."""
    return b"".join(stream(payload, limit))


def stream(payload: Payload, limit: int = MAX_UNPACKED) -> Iterator[bytes]:
    """The same, piece by piece and never more than `limit` of it: a bomb is refused as it swells."""
    if payload.compressed is None:
        raise Refusal(Rule.ENVELOPE_PAYLOAD, "the payload is not in Compressed")
    chunks = _decoded(payload.compressed)
    if payload.format not in _NOT_COMPRESSED:
        chunks = _gunzipped(chunks)
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > limit:
            raise Refusal(
                Rule.LIMIT_EXCEEDED, f"the payload is larger than {limit} bytes when unpacked"
            )
        yield chunk


def content(
    payload: Payload, *, limit: int = MAX_UNPACKED, limits: XmlLimits = DEFAULT_LIMITS
) -> tuple[Fragment, ...]:
    """The XML of a payload, whether it travelled compressed or not (Table 2, first two rows)."""
    if payload.compressed is not None:
        if (payload.format or "XML") not in ("XML", "RDF"):
            raise Refusal(Rule.ENVELOPE_PAYLOAD, f"the payload is {payload.format}, not XML")
        return (Fragment.parse(unpacked(payload, min(limit, limits.max_bytes)), limits),)
    return tuple(part for part in payload.content if isinstance(part, Fragment))


def expanded(payload: Payload, *, limit: int = MAX_UNPACKED) -> Payload:
    """Annex F: for a receiver that cannot decompress; only XML can stand uncompressed."""
    if payload.compressed is None or (payload.format or "XML") != "XML":
        return payload
    return Payload(content=content(payload, limit=limit), format=payload.format)


def _decoded(text: str) -> Iterator[bytes]:
    text = _BLANKS.sub("", text)
    try:
        for start in range(0, len(text), _TEXT_CHUNK):
            yield base64.b64decode(text[start : start + _TEXT_CHUNK], validate=True)
    except binascii.Error:
        raise Refusal(Rule.ENVELOPE_COMPRESSION, "Compressed is not base64") from None


def _gunzipped(chunks: Iterator[bytes]) -> Iterator[bytes]:
    source = gzip.GzipFile(fileobj=io.BufferedReader(_Source(chunks)))
    try:
        while chunk := source.read(_CHUNK):
            yield chunk
    except (OSError, EOFError, zlib.error):
        raise Refusal(
            Rule.ENVELOPE_COMPRESSION, "Compressed is not gzip, or not all of it is there"
        ) from None


class _Source(io.RawIOBase):
    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        target = memoryview(buffer)  # type: ignore[arg-type]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
