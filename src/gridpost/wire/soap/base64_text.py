"""base64Binary in pieces: a document of any size passes through without being held as text.

Strict: nothing but the alphabet and white space (XML Schema 3.2.16), and padding only at the end.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from typing import BinaryIO

from gridpost.core.refusal import Refusal, Rule

_SPACE = b" \t\r\n"
# A multiple of three bytes becomes text without padding.
_PIECE = 3 * 16 * 1024


class Base64Reader:
    """Text in, bytes into a file."""

    def __init__(self, out: BinaryIO, limit: int) -> None:
        self._out = out
        self._limit = limit
        self._rest = b""
        self._padded = False
        self.size = 0

    def feed(self, text: str) -> None:
        try:
            octets = self._rest + text.encode("ascii").translate(None, _SPACE)
        except UnicodeEncodeError:
            raise _not_base64() from None
        whole = len(octets) - len(octets) % 4
        self._rest = octets[whole:]
        if whole == 0:
            return
        if self._padded:
            raise _not_base64()
        quads = octets[:whole]
        self._padded = quads.endswith(b"=")
        try:
            data = binascii.a2b_base64(quads, strict_mode=True)
        except binascii.Error:
            raise _not_base64() from None
        self.size += len(data)
        if self.size > self._limit:
            raise Refusal(
                Rule.CONTENT_TOO_LARGE, f"the document is larger than {self._limit} bytes"
            )
        self._out.write(data)

    def close(self) -> None:
        if self._rest:
            raise _not_base64()


def encoded_size(size: int) -> int:
    return (size + 2) // 3 * 4


def encode_pieces(data: bytes) -> Iterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(view), _PIECE):
        yield binascii.b2a_base64(view[start : start + _PIECE], newline=False)


def _not_base64() -> Refusal:
    return Refusal(Rule.BAD_BASE64, "the document is not base64: it must hold nothing else")
