"""Frames of AMQP 0-9-1 that are written by the hundred: publications and acknowledgements, as octets.

The library writes the same octets; it makes an object for each field of each frame on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from pamqp.encode import field_table

from gridpost.core.amqp091 import Publication
from gridpost.transports.amqp091.properties import delivery_mode, expiration_text

_END: Final = b"\xce"
_METHOD, _HEADER, _BODY = 1, 2, 3
_BASIC, _PUBLISH, _ACK = 60, 40, 80
_BITS: Final = tuple(1 << bit for bit in range(15, 2, -1))
_FRAME: Final = Struct(">BHI")
_METHOD_START: Final = Struct(">HHH")
_HEADER_START: Final = Struct(">HHQH")
_LONG, _LONG_LONG = Struct(">I"), Struct(">Q")
_ACKNOWLEDGED: Final = Struct(">BHIHHQBB")
# A client names few exchanges, again and again.
_KNOWN_TARGETS: Final = 1024


def publication(channel: int, message: Publication, message_id: str | None, most: int) -> bytes:
    """Method, header and body; `most`: octets of a body in one frame."""
    body = message.body
    target = _target(channel, message.exchange, message.routing_key, message.mandatory)
    header = _header(message, message_id)
    parts = [target, _FRAME.pack(_HEADER, channel, len(header)), header, _END]
    for start in range(0, len(body), most):
        piece = body[start : start + most]
        parts += (_FRAME.pack(_BODY, channel, len(piece)), piece, _END)
    return b"".join(parts)


def acknowledgements(channel: int, tags: Iterable[int]) -> bytes:
    return b"".join(
        _ACKNOWLEDGED.pack(_METHOD, channel, 13, _BASIC, _ACK, tag, 0, _END[0]) for tag in tags
    )


@lru_cache(_KNOWN_TARGETS)
def _target(channel: int, exchange: str, routing_key: str, mandatory: bool) -> bytes:
    method = (
        _METHOD_START.pack(_BASIC, _PUBLISH, 0)
        + _short(exchange)
        + _short(routing_key)
        + bytes((mandatory,))
    )
    return _FRAME.pack(_METHOD, channel, len(method)) + method + _END


def _header(message: Publication, message_id: str | None) -> bytes:
    given = message.properties
    fields = (
        _text(given.content_type),
        _text(given.content_encoding),
        _table(given.headers),
        delivery_mode(given).to_bytes(),
        None if given.priority is None else given.priority.to_bytes(),
        _text(given.correlation_id),
        _text(given.reply_to),
        _text(expiration_text(given)),
        _text(message_id),
        None if given.timestamp is None else _LONG_LONG.pack(int(given.timestamp.timestamp())),
        _text(given.type),
        _text(given.user_id),
        _text(given.app_id),
    )
    # From the highest bit on, each says that its property is there.
    flags = sum(bit for bit, octets in zip(_BITS, fields, strict=True) if octets is not None)
    start = _HEADER_START.pack(_BASIC, 0, len(message.body), flags)
    return start + b"".join(octets for octets in fields if octets is not None)


def _text(text: str | None) -> bytes | None:
    return _short(text) if text else None


def _short(text: str) -> bytes:
    octets = text.encode()
    if len(octets) > 255:
        raise ValueError(f"{len(octets)} octets are too many for a short string")
    return bytes((len(octets),)) + octets


def _table(headers: Mapping[str, Any]) -> bytes:
    parts: list[bytes] = []
    for name, value in sorted(headers.items()):
        if type(value) is not str:
            return bytes(field_table(dict(headers)))
        octets = value.encode()
        parts += (_short(name), b"S", _LONG.pack(len(octets)), octets)
    table = b"".join(parts)
    return _LONG.pack(len(table)) + table
