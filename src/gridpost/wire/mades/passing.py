"""What a broker reads of an internal message that passes through (503 cl. 6.5.1): AMQP fields only.

The header is taken off, because ttl and delivery-count are the broker's to write (AMQP 3.2.1);
everything behind it passes on as it came and is never decoded beyond the properties. Messages in
the forms that everybody writes are read by a short way; whatever is unusual in them goes the long
way through `read_fields`, which alone refuses anything.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from gridpost.core.identifiers import (
    ComponentCode,
    MessageId,
    MessageType,
    component_code,
    message_type,
)
from gridpost.core.message import InternalType
from gridpost.core.refusal import Refusal
from gridpost.wire.amqp.codec import Buffer
from gridpost.wire.amqp.sections import decode_header, decode_properties, split_head
from gridpost.wire.mades.amqp_message import FIELD_LIMITS, MAX_TTL, read_fields

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HEAD: Final = 2_048
"""Octets within which the fields of a usual message lie."""
_TWO_UINT32: Final = struct.Struct(">II")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_INTERNAL_TYPES: Final = frozenset(member.value for member in InternalType)
# The last millisecond that a datetime can hold lies in the year 9999.
_LAST_MILLISECOND: Final = 253_402_300_799_999


@dataclass(slots=True)
class Passing:
    """The fields that decide on acceptance and route, and the octets that pass on."""

    message_id: MessageId
    receiver_code: ComponentCode
    sender_code: ComponentCode
    subject: MessageType
    absolute_expiry: datetime
    ttl: int
    priority: int | None
    mversion: int
    """503 cl. 9.2: with which version of MADES the message complies, by its own word."""
    bare: Buffer
    correlation_id: str = ""
    """503 Table 6: on an acknowledgement the ID of the message that it speaks of."""

    def expires_at(self, now: datetime) -> datetime:
        """503 Tables 5 and 6: whichever is earlier; ttl counts from its arrival (AMQP 3.2.1)."""
        if self.ttl >= MAX_TTL:
            return self.absolute_expiry
        return min(self.absolute_expiry, now + timedelta(milliseconds=self.ttl))


def read_passing(message: Buffer) -> Passing:
    """Refuses a message that lacks a field of Tables 5 to 7, or is no AMQP message."""
    try:
        return _usual(message)
    except (_Unusual, IndexError, KeyError, struct.error, UnicodeDecodeError, Refusal):
        return read_any(message)


def read_any(message: Buffer) -> Passing:
    """The long way, for every form that AMQP allows."""
    sections = split_head(message)
    fields = read_fields(sections)
    return Passing(
        fields.message_id,
        fields.receiver_code,
        fields.sender_code,
        fields.subject,
        fields.absolute_expiry.at,
        fields.ttl,
        decode_header(sections, FIELD_LIMITS).priority,
        fields.mversion,
        sections.after_header,
        fields.correlation_id,
    )


def correlation_of(bare: Buffer) -> str:
    """Of a message that was taken in before, without its header."""
    found: object
    try:
        found = _section(bytes(bare[:_HEAD]), 0, 0x73)[0][5]
    except (_Unusual, IndexError, struct.error, UnicodeDecodeError):
        try:
            found = decode_properties(split_head(bare), FIELD_LIMITS).correlation_id
        except Refusal:
            return ""
    return found if isinstance(found, str) else ""


def passing_header(priority: int | None, ttl: int, failed_deliveries: int) -> bytes:
    """The header of the next transfer: durable, with the time that is left."""
    ttl = max(0, min(ttl, MAX_TTL))
    if priority is None and not failed_deliveries:
        return b"\x00\x53\x70\xc0\x0a\x05\x41\x40\x70" + _UINT32.pack(ttl) + b"\x41\x43"
    count = b"\x43" if not failed_deliveries else b"\x70" + _UINT32.pack(failed_deliveries)
    first = b"\x42" if failed_deliveries else b"\x41"
    level = b"\x40" if priority is None else bytes((0x50, priority))
    body = b"\x05\x41" + level + b"\x70" + _UINT32.pack(ttl) + first + count
    return b"\x00\x53\x70\xc0" + bytes((len(body),)) + body


# ---------------------------------------------------------------- the short way


class _Unusual(Exception):
    """Not necessarily wrong."""


class _Moment(int):
    """An AMQP timestamp."""


_code = lru_cache(4_096)(component_code)
_type = lru_cache(4_096)(message_type)


def _usual(message: Buffer) -> Passing:
    head = message if type(message) is bytes else bytes(message[:_HEAD])
    header, end = _section(head, 0, 0x70)
    properties, at = _section(head, end, 0x73)
    pairs, at = _section(head, at, 0x74)
    # Something else in front of the body is for the long way to judge.
    if head[at] != 0 or head[at + 1] != 0x53 or not 0x75 <= head[at + 2] <= 0x77:
        raise _Unusual
    ttl = header[2]
    priority = header[1]
    subject, expiry = properties[3], properties[8]
    found = dict(zip(pairs[::2], pairs[1::2], strict=True))
    if (
        len(header) > 5
        or len(properties) > 13
        or len(found) * 2 != len(pairs)
        or type(ttl) is not int
        or priority is not None
        or type(expiry) is not _Moment
        or not 0 <= expiry <= _LAST_MILLISECOND
        or type(found["generated"]) is not _Moment
        or not 0 <= found["generated"] <= _LAST_MILLISECOND
        or type(found["messageMversion"]) is not _Int
        or found["internalType"] not in _INTERNAL_TYPES
        or _UUID.fullmatch(found["messageID"]) is None
        or not _texts(header[3:], found, properties)
    ):
        raise _Unusual
    return Passing(
        found["messageID"],
        _code(found["receiverCode"]),
        _code(found["senderCode"]),
        _type(subject),
        _EPOCH + timedelta(milliseconds=expiry),
        ttl,
        None,
        found["messageMversion"],
        memoryview(message)[end:],
        properties[5] or "",
    )


class _Int(int):
    """An AMQP int or long, in distinction to a uint."""


def _texts(rest: list[Any], found: dict[Any, Any], properties: list[Any]) -> bool:
    """Are the optional fields that `read_fields` looks at of the type that it wants?"""
    for name in ("senderApplication", "baMessageID", "receiverCode", "senderCode"):
        if type(found.get(name, "")) is not str:
            return False
    correlation = properties[5]
    return (
        type(properties[3]) is str
        and (correlation is None or type(correlation) is str)
        and all(type(key) is str for key in found)
        and (not rest or rest[0] is None or type(rest[0]) is bool)
        and (len(rest) < 2 or rest[1] is None or type(rest[1]) is int)
    )


def _section(data: bytes, at: int, descriptor: int) -> tuple[list[Any], int]:
    """The items of a list or map section, if all of them are of a usual form."""
    if data[at] != 0 or data[at + 1] != 0x53 or data[at + 2] != descriptor:
        raise _Unusual
    code = data[at + 3]
    if code != (0xC1 if descriptor == 0x74 else 0xC0):
        if code != (0xD1 if descriptor == 0x74 else 0xD0):
            raise _Unusual
        size, count = _TWO_UINT32.unpack_from(data, at + 4)
        end = at + 8 + size
        at += 12
    else:
        count = data[at + 5]
        end = at + 5 + data[at + 4]
        at += 6
    if count > 64 or end > len(data):
        raise _Unusual
    items: list[Any] = []
    for _ in range(count):
        code = data[at]
        if code == 0xA1:
            stop = at + 2 + data[at + 1]
            items.append(data[at + 2 : stop].decode())
            at = stop
        elif code == 0x40:
            items.append(None)
            at += 1
        elif code == 0x83:
            items.append(_Moment(_INT64.unpack_from(data, at + 1)[0]))
            at += 9
        elif code == 0x70:
            items.append(_UINT32.unpack_from(data, at + 1)[0])
            at += 5
        elif code == 0x54:
            items.append(_Int(data[at + 1]))
            at += 2
        elif code == 0x41 or code == 0x42:
            items.append(code == 0x41)
            at += 1
        elif code == 0x52:
            items.append(data[at + 1])
            at += 2
        elif code == 0x43:
            items.append(0)
            at += 1
        else:
            raise _Unusual
    if at != end:
        raise _Unusual
    if descriptor == 0x73:
        items += [None] * (13 - len(items))
    elif descriptor == 0x70:
        items += [None] * (5 - len(items))
    return items, end
