"""Values of the AMQP 1.0 type system (part 1) in Python, and how large one may be.

Python has fewer types than AMQP, so a value whose AMQP type matters is of a class from here; a
plain int is none of them. Python's None, bool, float, str, bytes, list and UUID are AMQP's null,
boolean, double, string, binary, list and uuid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID


class UByte(int): ...


class UShort(int): ...


class UInt(int): ...


class ULong(int): ...


class Byte(int): ...


class Short(int): ...


class Int(int): ...


class Long(int): ...


class Timestamp(int):
    """Milliseconds since 1970-01-01T00:00Z."""


class Float(float):
    """32 bits; Python's own float is AMQP's double."""


class Char(str): ...


class Symbol(str): ...


@dataclass(frozen=True, slots=True)
class Decimal:
    """A decimal32, decimal64 or decimal128, as it came: nothing here computes with it."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Map:
    """Pairs in their order. Keys of different types may be equal in Python, so this is no dict."""

    pairs: tuple[tuple[Value, Value], ...]


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one type; `code` is the constructor that they share, after its descriptors."""

    code: int
    items: tuple[Value, ...]
    descriptors: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A value with something in front of it that says what it means."""

    descriptor: Value
    value: Value


_Scalar: TypeAlias = bool | int | float | str | bytes | UUID | Decimal
Value: TypeAlias = "_Scalar | list[Value] | Map | Array | Described | None"


@dataclass(frozen=True, slots=True)
class AmqpLimits:
    """How much one value may ask of us."""

    max_depth: int = 32
    max_items: int = 10_000
    """Values in all lists, maps and arrays together: an array of nulls costs the sender nothing."""


DEFAULT_LIMITS = AmqpLimits()
