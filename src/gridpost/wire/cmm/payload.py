"""Bodies of messages as they travel (CMM 5.1.4): plain, or gzip when content-encoding says so."""

from __future__ import annotations

import zlib

from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule

GZIP = "gzip"
# Small messages gain little from more effort, and large ones are mostly digits.
_LEVEL = 1
# A window larger than the message finds nothing more in it, and is cleared for each: that costs many
# times what the compression does.
_WINDOW, _MEMORY, _SMALL = 12, 5, 4096
_WINDOW_OF_LARGE, _MEMORY_OF_LARGE = 15, 8
_GZIP_FORMAT = 16


def pack(body: bytes, *, zipped: bool) -> tuple[bytes, str | None]:
    """The body, and the content-encoding that marks it."""
    if not zipped:
        return body, None
    window, memory = _WINDOW, _MEMORY
    if len(body) > _SMALL:
        window, memory = _WINDOW_OF_LARGE, _MEMORY_OF_LARGE
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_FORMAT + window, memory)
    return deflate.compress(body) + deflate.flush(), GZIP


def unpack(body: bytes, encoding: str | None, max_bytes: int) -> bytes:
    """The message itself; never more of it in memory than is allowed."""
    if encoding and encoding.lower() != GZIP:
        raise Refusal(
            Rule.MALFORMED_XML, f"content-encoding '{clip(encoding)}' is not known: use gzip"
        )
    if len(body) > max_bytes:
        raise _too_large(max_bytes)
    if not encoding:
        return body
    inflate = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        plain = inflate.decompress(body, max_bytes + 1)
    except zlib.error:
        raise Refusal(
            Rule.MALFORMED_XML, "content-encoding says gzip, but the body is not gzip"
        ) from None
    if len(plain) > max_bytes:
        raise _too_large(max_bytes)
    if not inflate.eof or inflate.unused_data:
        raise Refusal(Rule.MALFORMED_XML, "the gzip body is not complete, or more follows it")
    return plain


def _too_large(max_bytes: int) -> Refusal:
    return Refusal(Rule.LIMIT_EXCEEDED, f"the message has more than {max_bytes} bytes")
