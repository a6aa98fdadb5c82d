"""Octets of AMQP 1.0 values (part 1.6): every form is read, and no length in them is trusted.

What we write takes the forms that Qpid Proton takes, so that equal messages are equal octets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.amqp.types import (
    DEFAULT_LIMITS,
    AmqpLimits,
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Long,
    Map,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)

Buffer: TypeAlias = bytes | memoryview

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

_VARIABLE = BINARY | STRING | SYMBOL
_COMPOUND = LIST | MAP | ARRAY

_CODES = [bytes((code,)) for code in range(256)]
_UINT32 = struct.Struct(">I")
_TWO_UINT32 = struct.Struct(">II")


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
_FIXED: dict[int, tuple[struct.Struct, Callable[[Any], Value], Callable[[Any], Any]]] = {
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
_CONSTANT: dict[int, Value] = {0x40: None, 0x41: True, 0x42: False, 0x43: UInt(0), 0x44: ULong(0)}

# How far the octets of a value reach: its width, or how wide the size in front of it is.
_WIDTH = [-1] * 256
_SIZE_WIDTH = [0] * 256
for _code in (EMPTY_LIST, *_CONSTANT):
    _WIDTH[_code] = 0
for _code, (_layout, _, _) in _FIXED.items():
    _WIDTH[_code] = _layout.size
for _code in _VARIABLE | _COMPOUND:
    _SIZE_WIDTH[_code] = 4 if _code & 0x10 else 1


# ---------------------------------------------------------------- reading


def skip(data: Buffer, at: int, end: int) -> int:
    """Where the value that starts at `at` ends, without looking into it."""
    wanted = 1
    while wanted:
        if at >= end:
            raise malformed("it ends in front of a value")
        code = data[at]
        at += 1
        if code == DESCRIBED:
            # A descriptor, then the value it describes; either may be described again.
            wanted += 1
            continue
        width = _SIZE_WIDTH[code]
        if width == 0:
            if _WIDTH[code] < 0:
                raise malformed(f"0x{code:02x} is no type")
            at += _WIDTH[code]
        elif at + width > end:
            raise malformed("it ends inside a length")
        elif width == 1:
            at += 1 + data[at]
        else:
            at += 4 + int(_UINT32.unpack_from(data, at)[0])
        if at > end:
            raise malformed("a value is longer than what holds it")
        wanted -= 1
    return at


def decode(data: Buffer, limits: AmqpLimits = DEFAULT_LIMITS) -> Value:
    """The one value that these octets are."""
    value, at = _Reader(data, limits).value(0, len(data), 0)
    if at != len(data):
        raise malformed("octets are left over after a value")
    return value


def elements(data: Buffer, limits: AmqpLimits = DEFAULT_LIMITS) -> list[memoryview]:
    """The octets of each element of a list, none of them copied or decoded."""
    if not data or (data[0] != EMPTY_LIST and data[0] not in LIST):
        raise malformed("a list is missing")
    count, at, end = 0, 1, 1
    if data[0] != EMPTY_LIST:
        count, at, end = _bounds(data, data[0], 1, len(data))
    if end != len(data):
        raise malformed("octets are left over after a list")
    if count > limits.max_items:
        raise _too_many(limits)
    view, found = memoryview(data), []
    for _ in range(count):
        start, at = at, skip(data, at, end)
        found.append(view[start:at])
    if at != end:
        raise malformed("octets are left over in a list")
    return found


def binary(data: Buffer) -> memoryview:
    """The content of a binary, not copied."""
    if not data or data[0] not in BINARY or skip(data, 0, len(data)) != len(data):
        raise malformed("a binary is missing")
    return memoryview(data)[1 + _SIZE_WIDTH[data[0]] :]


class _Reader:
    """Recursion goes no deeper than the limit."""

    def __init__(self, data: Buffer, limits: AmqpLimits) -> None:
        self._data = data
        self._limits = limits
        self._items_left = limits.max_items

    def value(self, at: int, end: int, depth: int) -> tuple[Value, int]:
        if at >= end:
            raise malformed("it ends in front of a value")
        code = self._data[at]
        if code == DESCRIBED:
            self._check_depth(depth)
            descriptor, at = self.value(at + 1, end, depth + 1)
            value, at = self.value(at, end, depth + 1)
            return Described(descriptor, value), at
        return self._of_code(code, at + 1, end, depth)

    def _of_code(self, code: int, at: int, end: int, depth: int) -> tuple[Value, int]:
        data, width = self._data, _SIZE_WIDTH[code]
        if width:
            if code in _COMPOUND:
                return self._compound(code, at, end, depth)
            start = at + width
            if start > end:
                raise malformed("it ends inside a length")
            stop = start + (data[at] if width == 1 else _UINT32.unpack_from(data, at)[0])
            if stop > end:
                raise malformed("a value is longer than what holds it")
            return _variable(code, data[start:stop]), stop
        if code in _CONSTANT:
            return _CONSTANT[code], at
        if code == EMPTY_LIST:
            return [], at
        if code not in _FIXED:
            raise malformed(f"0x{code:02x} is no type")
        layout, read, _ = _FIXED[code]
        stop = at + layout.size
        if stop > end:
            raise malformed("a value is longer than what holds it")
        return read(layout.unpack_from(data, at)[0]), stop

    def _compound(self, code: int, at: int, end: int, depth: int) -> tuple[Value, int]:
        self._check_depth(depth)
        count, at, stop = _bounds(self._data, code, at, end)
        self._items_left -= count
        if self._items_left < 0:
            raise _too_many(self._limits)
        if code in ARRAY:
            return self._array(count, at, stop, depth + 1), stop
        values: list[Value] = []
        for _ in range(count):
            value, at = self.value(at, stop, depth + 1)
            values.append(value)
        if at != stop:
            raise malformed("octets are left over in a list or map")
        if code in LIST:
            return values, stop
        if count % 2:
            raise malformed("a map has a key without a value")
        return Map(tuple(zip(values[::2], values[1::2], strict=True))), stop

    def _array(self, count: int, at: int, end: int, depth: int) -> Array:
        descriptors: list[Value] = []
        while at < end and self._data[at] == DESCRIBED:
            self._check_depth(depth + len(descriptors))
            descriptor, at = self.value(at + 1, end, depth + len(descriptors))
            descriptors.append(descriptor)
        if at >= end:
            raise malformed("an array has no constructor")
        code, at = self._data[at], at + 1
        items: list[Value] = []
        for _ in range(count):
            item, at = self._of_code(code, at, end, depth)
            items.append(item)
        if at != end:
            raise malformed("octets are left over in an array")
        if _WIDTH[code] < 0 and not _SIZE_WIDTH[code]:
            raise malformed(f"0x{code:02x} is no type")
        return Array(code, tuple(items), tuple(descriptors))

    def _check_depth(self, depth: int) -> None:
        if depth >= self._limits.max_depth:
            raise Refusal(
                Rule.LIMIT_EXCEEDED, f"AMQP values are nested deeper than {self._limits.max_depth}"
            )


def _bounds(data: Buffer, code: int, at: int, end: int) -> tuple[int, int, int]:
    """Number of elements of a compound, where the first one starts and where the last one ends."""
    width = _SIZE_WIDTH[code]
    if at + 2 * width > end:
        raise malformed("it ends inside a length")
    size: int
    count: int
    if width == 1:
        size, count = data[at], data[at + 1]
    else:
        size, count = _TWO_UINT32.unpack_from(data, at)
    stop = at + width + size
    if size < width or stop > end:
        raise malformed("a list, map or array is longer than what holds it")
    return count, at + 2 * width, stop


def _variable(code: int, octets: Buffer) -> Value:
    if code in BINARY:
        return bytes(octets)
    try:
        return str(octets, "utf-8") if code in STRING else Symbol(str(octets, "ascii"))
    except UnicodeDecodeError:
        raise malformed("a string or symbol is not text in its encoding") from None


def _too_many(limits: AmqpLimits) -> Refusal:
    return Refusal(Rule.LIMIT_EXCEEDED, f"an AMQP value has more than {limits.max_items} parts")


# ---------------------------------------------------------------- writing


def encode(value: Value) -> bytes:
    """One value. A value of no AMQP type, or out of its type's range, is our own mistake."""
    if isinstance(value, Described):
        return _CODES[DESCRIBED] + encode(value.descriptor) + encode(value.value)
    code = _code_of(value)
    return _CODES[code] + _pack(code, value)


def encode_composite(descriptor: int, fields: Sequence[Value]) -> bytes:
    """A described list of the specification's own: nulls at its end are left out."""
    count = len(fields)
    while count and fields[count - 1] is None:
        count -= 1
    content = b"".join([encode(field) for field in fields[:count]])
    head = b"\x00\x53" + _CODES[descriptor]
    if not count:
        return head + _CODES[EMPTY_LIST]
    if len(content) < 255:
        return head + bytes((0xC0, len(content) + 1, count)) + content
    return head + _CODES[LIST32] + _TWO_UINT32.pack(len(content) + 4, count) + content


def compound(code: int, encoded: Sequence[Buffer]) -> list[Buffer]:
    """A list32 or map32 of elements that are encoded already, in pieces that are to be joined."""
    size = 4 + sum([len(element) for element in encoded])
    return [_CODES[code] + _TWO_UINT32.pack(size, len(encoded)), *encoded]


def _code_of(value: Value) -> int:
    """The code that Proton chooses: small forms of numbers, texts and binaries, else the wide one."""
    kind = type(value)
    if kind in _NARROW and isinstance(value, int):
        zero, narrow, wide, low, high = _NARROW[kind]
        if value == 0 and zero:
            return zero
        return narrow if low <= value <= high else wide
    if isinstance(value, bool):
        return 0x41 if value else 0x42
    if kind in _TEXTS and isinstance(value, str | bytes):
        narrow = _TEXTS[kind]
        length = len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode())
        return narrow if length < 256 else narrow | 0x10
    if isinstance(value, Decimal):
        return _DECIMALS[len(value.octets)]
    if kind is list:
        return LIST32 if value else EMPTY_LIST
    if kind not in _ONE_FORM:
        raise TypeError(f"{kind.__name__} is no AMQP type")
    return _ONE_FORM[kind]


def _pack(code: int, value: Any) -> bytes:
    """The octets after the constructor."""
    if code in _FIXED:
        layout, _, write = _FIXED[code]
        return layout.pack(write(value))
    if code in _CONSTANT or code == EMPTY_LIST:
        return b""
    if code in _VARIABLE:
        content = value if isinstance(value, bytes) else value.encode()
        size = len(content)
    elif code in ARRAY:
        described = b"".join([_CODES[DESCRIBED] + encode(d) for d in value.descriptors])
        content = described + _CODES[value.code]
        content += b"".join([_pack(value.code, item) for item in value.items])
        return _sized(code, len(content), len(value.items)) + content
    else:
        flat = [v for pair in value.pairs for v in pair] if isinstance(value, Map) else value
        content = b"".join([encode(element) for element in flat])
        return _sized(code, len(content), len(flat)) + content
    return (_CODES[size] if _SIZE_WIDTH[code] == 1 else _UINT32.pack(size)) + content


def _sized(code: int, size: int, count: int) -> bytes:
    if _SIZE_WIDTH[code] == 1:
        return bytes((size + 1, count))
    return _TWO_UINT32.pack(size + 4, count)


# zero form (0: none), narrow form, wide form, and the values that the narrow form can say.
_NARROW: dict[type, tuple[int, int, int, int, int]] = {
    UInt: (0x43, 0x52, 0x70, 0, 255),
    ULong: (0x44, 0x53, 0x80, 0, 255),
    Int: (0, 0x54, 0x71, -128, 127),
    Long: (0, 0x55, 0x81, -128, 127),
}
_TEXTS: dict[type, int] = {str: 0xA1, Symbol: 0xA3, bytes: 0xA0}
_DECIMALS = {4: 0x74, 8: 0x84, 16: 0x94}
_ONE_FORM: dict[type, int] = {
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
