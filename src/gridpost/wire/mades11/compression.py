"""Compression of MADES 1.1 (cl. 3.14.2): a ZIP archive with one entry; other forms of ZIP are read too."""

from __future__ import annotations

import zlib
from dataclasses import replace
from io import BytesIO
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from gridpost.core.message import (
    COMPRESSOR,
    Entry,
    InternalMessage,
    InternalType,
    Processor,
    ValueType,
)
from gridpost.core.refusal import Refusal, Rule

COMPRESSION = "Compression"
_ENTRY = "content"
_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_PIECE = 64 * 1024


def compress(message: InternalMessage) -> InternalMessage:
    """Before it is signed. Tracing-messages and acknowledgements stay as they are."""
    if message.metadata.internal_type is not InternalType.STANDARD_MESSAGE:
        return message
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        # A fixed time, so that one document is always packed alike.
        info = ZipInfo(_ENTRY, (1980, 1, 1, 0, 0, 0))
        info.compress_type = ZIP_DEFLATED
        archive.writestr(info, message.content)
    entry = Entry(COMPRESSION, ValueType.BOOLEAN, "true")
    processors = (*message.metadata.processors, Processor(COMPRESSOR, (entry,)))
    return replace(
        message, metadata=message.metadata.with_processors(processors), content=packed.getvalue()
    )


def is_compressed(message: InternalMessage) -> bool:
    return any(
        entry.value.strip() in ("true", "1")
        for processor in message.metadata.processors_named(COMPRESSOR)
        for entry in processor.all(COMPRESSION)
    )


def expand(message: InternalMessage, limit: int) -> bytes:
    """The document for an application; a packed one that grows beyond `limit` bytes is refused."""
    content = message.content
    if not is_compressed(message):
        return content
    try:
        if content.startswith(_ZIP):
            return _unzip(content, limit)
        if content.startswith(_GZIP):
            return _inflate(content, 31, limit)
        try:
            return _inflate(content, 15, limit)
        except zlib.error:
            return _inflate(content, -15, limit)
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise Refusal(
            Rule.SEAL_CONTENT, "the content says that it is compressed, but is not", str(error)
        ) from None


def _unzip(content: bytes, limit: int) -> bytes:
    with ZipFile(BytesIO(content)) as archive:
        names = archive.namelist()
        if len(names) != 1:
            raise BadZipFile(f"{len(names)} entries instead of one")
        pieces, size = [], 0
        with archive.open(names[0]) as packed:
            while piece := packed.read(_PIECE):
                size += len(piece)
                if size > limit:
                    raise _too_large(limit)
                pieces.append(piece)
    return b"".join(pieces)


def _inflate(content: bytes, window: int, limit: int) -> bytes:
    running = zlib.decompressobj(window)
    found = running.decompress(content, limit + 1)
    if len(found) > limit:
        raise _too_large(limit)
    if not running.eof:
        raise EOFError("the end is missing")
    return found


def _too_large(limit: int) -> Refusal:
    return Refusal(Rule.CONTENT_TOO_LARGE, f"the document is larger than {limit} bytes unpacked")
