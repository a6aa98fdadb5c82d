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
_FRAME: Final = Struct(">BHI")
_METHOD_START: Final = Struct(">HHH")
_HEADER_START: Final = Struct(">HHQH")
_LONG, _LONG_LONG = Struct(">I"), Struct(">Q")
_ACKNOWLEDGED: Final = Struct(">BHIHHQBB")
_OCTETS: Final = tuple(bytes((octet,)) for octet in range(256))
_NO_HEADERS: Final = bytes(4)
# A client names few exchanges, again and again; so it does kinds of contents and headers.
_KNOWN_TARGETS: Final = 1024
_KNOWN_TEXTS: Final = 256


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
    flags, fields = 0, []
    # From the highest bit on, each says that its property is there. Most are not.
    if given.content_type:
        flags |= 1 << 15
        fields.append(_known(given.content_type))
    if given.content_encoding:
        flags |= 1 << 14
        fields.append(_known(given.content_encoding))
    flags |= 1 << 13 | 1 << 12
    fields += (_table(given.headers), delivery_mode(given).to_bytes())
    if given.priority is not None:
        flags |= 1 << 11
        fields.append(given.priority.to_bytes())
    if given.correlation_id:
        flags |= 1 << 10
        fields.append(_short(given.correlation_id))
    if given.reply_to:
        flags |= 1 << 9
        fields.append(_short(given.reply_to))
    if given.expiration is not None:
        flags |= 1 << 8
        fields.append(_short(expiration_text(given.expiration)))
    if message_id:
        flags |= 1 << 7
        fields.append(_short(message_id))
    if given.timestamp is not None:
        flags |= 1 << 6
        fields.append(_LONG_LONG.pack(int(given.timestamp.timestamp())))
    for bit, text in ((5, given.type), (4, given.user_id), (3, given.app_id)):
        if text:
            flags |= 1 << bit
            fields.append(_short(text))
    return _HEADER_START.pack(_BASIC, 0, len(message.body), flags) + b"".join(fields)


def _short(text: str) -> bytes:
    octets = text.encode()
    if len(octets) > 255:
        raise ValueError(f"{len(octets)} octets are too many for a short string")
    return _OCTETS[len(octets)] + octets


_known = lru_cache(_KNOWN_TEXTS)(_short)


def _table(headers: Mapping[str, Any]) -> bytes:
    if not headers:
        return _NO_HEADERS
    parts: list[bytes] = []
    for name, value in sorted(headers.items()):
        if type(value) is not str:
            return bytes(field_table(dict(headers)))
        octets = value.encode()
        parts += (_known(name), b"S", _LONG.pack(len(octets)), octets)
    table = b"".join(parts)
    return _LONG.pack(len(table)) + table
