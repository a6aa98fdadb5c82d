"""The constructors of AMQP 1.0 (part 1.6): which code is which type, how wide, and which one we write."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal,
    Float,
    Int,
    Long,
    Map,
    Short,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)

DESCRIBED = 0x00
NULL = 0x40
EMPTY_LIST = 0x45
BINARY = frozenset((0xA0, 0xB0))
STRING = frozenset((0xA1, 0xB1))
SYMBOL = frozenset((0xA3, 0xB3))
LIST = frozenset((0xC0, 0xD0))
MAP = frozenset((0xC1, 0xD1))
ARRAY = frozenset((0xE0, 0xF0))
LIST32, MAP32, ARRAY32 = 0xD0, 0xD1, 0xF0

VARIABLE = BINARY | STRING | SYMBOL
COMPOUND = LIST | MAP | ARRAY


def malformed(message: str) -> Refusal:
    return Refusal(Rule.MALFORMED_AMQP, f"the AMQP message is not well-formed: {message}")


def _boolean(octet: int) -> bool:
    if octet > 1:
        raise malformed("a boolean is neither 0 nor 1")
    return octet == 1


def _char(point: int) -> Char:
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise malformed("a char is not a Unicode character")
    return Char(chr(point))


def _uuid(octets: bytes) -> UUID:
    return UUID(bytes=octets)


# Codes of a fixed width: the layout, the value from what the layout gives, and the way back.
FIXED: dict[int, tuple[struct.Struct, Callable[[Any], Value], Callable[[Any], Any]]] = {
    code: (struct.Struct(layout), read, write)
    for code, layout, read, write in (
        (0x50, ">B", UByte, int),
        (0x51, ">b", Byte, int),
        (0x52, ">B", UInt, int),
        (0x53, ">B", ULong, int),
        (0x54, ">b", Int, int),
        (0x55, ">b", Long, int),
        (0x56, ">B", _boolean, int),
        (0x60, ">H", UShort, int),
        (0x61, ">h", Short, int),
        (0x70, ">I", UInt, int),
        (0x71, ">i", Int, int),
        (0x72, ">f", Float, float),
        (0x73, ">I", _char, ord),
        (0x74, "4s", Decimal, lambda value: value.octets),
        (0x80, ">Q", ULong, int),
        (0x81, ">q", Long, int),
        (0x82, ">d", float, float),
        (0x83, ">q", Timestamp, int),
        (0x84, "8s", Decimal, lambda value: value.octets),
        (0x94, "16s", Decimal, lambda value: value.octets),
        (0x98, "16s", _uuid, lambda value: value.bytes),
    )
}
CONSTANT: dict[int, Value] = {0x40: None, 0x41: True, 0x42: False, 0x43: UInt(0), 0x44: ULong(0)}

# How far the octets of a value reach: its width, or how wide the size in front of it is.
WIDTH = [-1] * 256
SIZE_WIDTH = [0] * 256
for _code in (EMPTY_LIST, *CONSTANT):
    WIDTH[_code] = 0
for _code, (_layout, _, _) in FIXED.items():
    WIDTH[_code] = _layout.size
for _code in VARIABLE | COMPOUND:
    SIZE_WIDTH[_code] = 4 if _code & 0x10 else 1

# What Proton writes: small forms of numbers, texts and binaries, the wide forms of everything else.

# zero form (0: none), narrow form, wide form, and the values that the narrow form can say.
NARROW: dict[type, tuple[int, int, int, int, int]] = {
    UInt: (0x43, 0x52, 0x70, 0, 255),
    ULong: (0x44, 0x53, 0x80, 0, 255),
    Int: (0, 0x54, 0x71, -128, 127),
    Long: (0, 0x55, 0x81, -128, 127),
}
DECIMALS = {4: 0x74, 8: 0x84, 16: 0x94}
ONE_FORM: dict[type, int] = {
    type(None): NULL,
    UByte: 0x50,
    Byte: 0x51,
    UShort: 0x60,
    Short: 0x61,
    Float: 0x72,
    Char: 0x73,
    float: 0x82,
    Timestamp: 0x83,
    UUID: 0x98,
    Map: MAP32,
    Array: ARRAY32,
}
