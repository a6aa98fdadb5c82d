"""Octets of AMQP 1.0 values (part 1.6): every form is read, and no length in them is trusted.

What we write takes the forms that Qpid Proton takes, so that equal messages are equal octets.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.amqp.codes import (
    ARRAY,
    BINARY,
    COMPOUND,
    CONSTANT,
    DECIMALS,
    DESCRIBED,
    EMPTY_LIST,
    FIXED,
    LIST,
    LIST32,
    MAP32,
    NARROW,
    ONE_FORM,
    SIZE_WIDTH,
    STRING,
    VARIABLE,
    WIDTH,
    malformed,
)
from gridpost.wire.amqp.types import (
    DEFAULT_LIMITS,
    AmqpLimits,
    Array,
    Decimal,
    Described,
    Int,
    Map,
    Symbol,
    Timestamp,
    UInt,
    Value,
)

Buffer: TypeAlias = bytes | memoryview

_CODES = [bytes((code,)) for code in range(256)]
# Octets of a bytes are quicker to get at than those of a view, if there are not too many to copy.
_WORTH_COPYING = 4096
_NULL, _STRING8 = 0x40, 0xA1
_NOTHING = _CODES[_NULL]
_UINT32 = struct.Struct(">I")
_TWO_UINT32 = struct.Struct(">II")
_INT64 = struct.Struct(">q")
_FLAT_ITEMS = 64


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
        width = SIZE_WIDTH[code]
        if width == 0:
            if WIDTH[code] < 0:
                raise malformed(f"0x{code:02x} is no type")
            at += WIDTH[code]
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
    if len(data) <= _WORTH_COPYING:
        data = bytes(data)
    value, at = _Reader(data, limits).value(0, len(data), 0)
    if at != len(data):
        raise malformed("octets are left over after a value")
    return value


def flat(data: Buffer, limits: AmqpLimits = DEFAULT_LIMITS) -> list[Value] | None:
    """The items of a short list or map in the forms that everybody writes, as `decode` gives them.

    None: something in it is unusual, which need not be wrong; `decode` judges it.
    """
    if len(data) > _WORTH_COPYING or limits.max_items < _FLAT_ITEMS or limits.max_depth < 1:
        return None
    data = bytes(data)
    items: list[Value] = []
    add = items.append
    try:
        code, end = data[0], len(data)
        if code == 0xC0 or code == 0xC1:
            size, count, at = 2 + data[1], data[2], 3
        elif code in (LIST32, MAP32):
            size, count = _TWO_UINT32.unpack_from(data, 1)
            size, at = size + 5, 9
        else:
            return None
        if size != end or count > _FLAT_ITEMS:
            return None
        for _ in range(count):
            code = data[at]
            if code == _STRING8:
                stop = at + 2 + data[at + 1]
                add(data[at + 2 : stop].decode())
                at = stop
            elif code == _NULL:
                add(None)
                at += 1
            elif code == 0x83:
                add(Timestamp(_INT64.unpack_from(data, at + 1)[0]))
                at += 9
            elif code == 0x70:
                add(UInt(_UINT32.unpack_from(data, at + 1)[0]))
                at += 5
            elif code == 0x54 and data[at + 1] < 128:
                add(Int(data[at + 1]))
                at += 2
            elif code == 0x41 or code == 0x42:
                add(code == 0x41)
                at += 1
            elif code == 0x52:
                add(UInt(data[at + 1]))
                at += 2
            elif code == 0x43:
                add(UInt(0))
                at += 1
            else:
                return None
    except (IndexError, struct.error, UnicodeDecodeError):
        return None
    return items if at == end else None


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
    return memoryview(data)[1 + SIZE_WIDTH[data[0]] :]


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
        if code != DESCRIBED:
            return self._of_code(code, at + 1, end, depth)
        self._check_depth(depth)
        descriptor, at = self.value(at + 1, end, depth + 1)
        value, at = self.value(at, end, depth + 1)
        return Described(descriptor, value), at

    def _of_code(self, code: int, at: int, end: int, depth: int) -> tuple[Value, int]:
        data, width = self._data, SIZE_WIDTH[code]
        if not width:
            stop = at + WIDTH[code]
            if stop > end or stop < at:
                raise malformed(f"0x{code:02x} is no type, or its value is cut off")
            if code in FIXED:
                layout, read, _ = FIXED[code]
                return read(layout.unpack_from(data, at)[0]), stop
            return [] if code == EMPTY_LIST else CONSTANT[code], stop
        if code in COMPOUND:
            return self._compound(code, at, end, depth)
        start = at + width
        if start > end:
            raise malformed("it ends inside a length")
        stop = start + (data[at] if width == 1 else _UINT32.unpack_from(data, at)[0])
        if stop > end:
            raise malformed("a value is longer than what holds it")
        octets = data[start:stop]
        if code in BINARY:
            return bytes(octets), stop
        if code in STRING:
            return _text(octets), stop
        return Symbol(_text(octets, "ascii")), stop

    def _compound(self, code: int, at: int, end: int, depth: int) -> tuple[Value, int]:
        self._check_depth(depth)
        count, at, stop = _bounds(self._data, code, at, end)
        self._items_left -= count
        if self._items_left < 0:
            raise _too_many(self._limits)
        if code in ARRAY:
            return self._array(count, at, stop, depth + 1), stop
        values: list[Value] = []
        read, data = self.value, self._data
        for _ in range(count):
            # Nearly all that messages hold are nulls and short strings.
            first = data[at] if at + 2 <= stop else -1
            if first == _NULL:
                values.append(None)
                at += 1
            elif first == _STRING8 and at + 2 + data[at + 1] <= stop:
                start, at = at + 2, at + 2 + data[at + 1]
                values.append(_text(data[start:at]))
            else:
                value, at = read(at, stop, depth + 1)
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
        if WIDTH[code] < 0 and not SIZE_WIDTH[code]:
            raise malformed(f"0x{code:02x} is no type")
        items: list[Value] = []
        for _ in range(count):
            item, at = self._of_code(code, at, end, depth)
            items.append(item)
        if at != end:
            raise malformed("octets are left over in an array")
        return Array(code, tuple(items), tuple(descriptors))

    def _check_depth(self, depth: int) -> None:
        if depth >= self._limits.max_depth:
            raise Refusal(
                Rule.LIMIT_EXCEEDED, f"AMQP values are nested deeper than {self._limits.max_depth}"
            )


def _text(octets: Buffer, encoding: str = "utf-8") -> str:
    try:
        return str(octets, encoding)
    except UnicodeDecodeError:
        raise malformed("a string or symbol is not text in its encoding") from None


def _bounds(data: Buffer, code: int, at: int, end: int) -> tuple[int, int, int]:
    """Number of elements of a compound, where the first one starts and where the last one ends."""
    width = SIZE_WIDTH[code]
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


def _too_many(limits: AmqpLimits) -> Refusal:
    return Refusal(Rule.LIMIT_EXCEEDED, f"an AMQP value has more than {limits.max_items} parts")


# ---------------------------------------------------------------- writing


def encode(value: Value) -> bytes:
    """One value. A value of no AMQP type, or out of its type's range, is our own mistake."""
    if type(value) is str:
        octets = value.encode()
        size = len(octets)
        return (bytes((0xA1, size)) if size < 256 else b"\xb1" + _UINT32.pack(size)) + octets
    if type(value) is Timestamp:
        return b"\x83" + _INT64.pack(value)
    if isinstance(value, Described):
        return _CODES[DESCRIBED] + encode(value.descriptor) + encode(value.value)
    code = _code_of(value)
    return _CODES[code] + _pack(code, value)


def encode_composite(descriptor: int, fields: Sequence[Value]) -> bytes:
    """A described list of the specification's own: nulls at its end are left out."""
    count = len(fields)
    while count and fields[count - 1] is None:
        count -= 1
    content = b"".join([_NOTHING if field is None else encode(field) for field in fields[:count]])
    head = b"\x00\x53" + _CODES[descriptor]
    if not count:
        return head + _CODES[EMPTY_LIST]
    if len(content) < 255:
        return head + bytes((0xC0, len(content) + 1, count)) + content
    return head + _CODES[LIST32] + _TWO_UINT32.pack(len(content) + 4, count) + content


def compound_head(code: int, count: int, size: int) -> bytes:
    """What stands in front of the elements of a list32 or map32 that are encoded already."""
    return _CODES[code] + _sized(code, size, count)


def binary_head(size: int) -> bytes:
    """What stands in front of the content of a binary: large contents are not copied for it."""
    return bytes((0xA0, size)) if size < 256 else b"\xb0" + _UINT32.pack(size)


def _code_of(value: Value) -> int:
    kind = type(value)
    if kind in ONE_FORM:
        return ONE_FORM[kind]
    if kind in NARROW and isinstance(value, int):
        zero, narrow, wide, low, high = NARROW[kind]
        if value == 0 and zero:
            return zero
        return narrow if low <= value <= high else wide
    if isinstance(value, bool):
        return 0x41 if value else 0x42
    if isinstance(value, Symbol | bytes):
        narrow = 0xA0 if isinstance(value, bytes) else 0xA3
        return narrow if len(value) < 256 else narrow | 0x10
    if isinstance(value, Decimal):
        return DECIMALS[len(value.octets)]
    if kind is list:
        return LIST32 if value else EMPTY_LIST
    raise TypeError(f"{kind.__name__} is no AMQP type")


def _pack(code: int, value: Any) -> bytes:
    """The octets after the constructor."""
    if code in FIXED:
        layout, _, write = FIXED[code]
        return layout.pack(write(value))
    if code in CONSTANT or code == EMPTY_LIST:
        return b""
    if code in VARIABLE:
        encoding = "ascii" if isinstance(value, Symbol) else "utf-8"
        content: bytes = value if isinstance(value, bytes) else value.encode(encoding)
        size = len(content)
        return (_CODES[size] if SIZE_WIDTH[code] == 1 else _UINT32.pack(size)) + content
    if code in ARRAY:
        described = b"".join([_CODES[DESCRIBED] + encode(d) for d in value.descriptors])
        content = described + _CODES[value.code]
        content += b"".join([_pack(value.code, item) for item in value.items])
        return _sized(code, len(content), len(value.items)) + content
    flat = [v for pair in value.pairs for v in pair] if isinstance(value, Map) else value
    content = b"".join([encode(element) for element in flat])
    return _sized(code, len(content), len(flat)) + content


def _sized(code: int, size: int, count: int) -> bytes:
    if SIZE_WIDTH[code] == 1:
        return bytes((size + 1, count))
    return _TWO_UINT32.pack(size + 4, count)
