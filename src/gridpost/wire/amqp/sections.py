"""The sections of an AMQP 1.0 message (part 3.2): where each one lies, and what the first ones say.

Finding the sections decodes nothing, so a broker can judge a message and pass its body on as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.amqp.codec import Buffer, decode, encode_composite, flat, skip
from gridpost.wire.amqp.codes import BINARY, DESCRIBED, EMPTY_LIST, LIST, MAP, malformed
from gridpost.wire.amqp.types import (
    DEFAULT_LIMITS,
    AmqpLimits,
    Map,
    Symbol,
    UByte,
    UInt,
    ULong,
    Value,
)


class Section(IntEnum):
    """Numeric descriptors, which are also the order of the sections."""

    HEADER = 0x70
    DELIVERY_ANNOTATIONS = 0x71
    MESSAGE_ANNOTATIONS = 0x72
    PROPERTIES = 0x73
    APPLICATION_PROPERTIES = 0x74
    DATA = 0x75
    AMQP_SEQUENCE = 0x76
    AMQP_VALUE = 0x77
    FOOTER = 0x78


_SYMBOLS = {
    "amqp:header:list": Section.HEADER,
    "amqp:delivery-annotations:map": Section.DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": Section.MESSAGE_ANNOTATIONS,
    "amqp:properties:list": Section.PROPERTIES,
    "amqp:application-properties:map": Section.APPLICATION_PROPERTIES,
    "amqp:data:binary": Section.DATA,
    "amqp:amqp-sequence:list": Section.AMQP_SEQUENCE,
    "amqp:amqp-value:*": Section.AMQP_VALUE,
    "amqp:footer:map": Section.FOOTER,
}

# The constructors that the value of a section may have.
_ALLOWED: dict[int, frozenset[int]] = {
    Section.HEADER: LIST | {EMPTY_LIST},
    Section.DELIVERY_ANNOTATIONS: MAP,
    Section.MESSAGE_ANNOTATIONS: MAP,
    Section.PROPERTIES: LIST | {EMPTY_LIST},
    Section.APPLICATION_PROPERTIES: MAP,
    Section.DATA: BINARY,
    Section.AMQP_SEQUENCE: LIST | {EMPTY_LIST},
    Section.AMQP_VALUE: frozenset(range(256)),
    Section.FOOTER: MAP,
}
_FIRST, _LAST = min(Section), max(Section)
_SMALL_ULONG = 0x53


@dataclass(slots=True)
class BodySection:
    """`value` are the octets without the descriptor."""

    kind: Section
    value: memoryview


@dataclass(slots=True)
class Sections:
    """Slices of one message, not copied. A section is given without its descriptor."""

    header: memoryview | None
    delivery_annotations: memoryview | None
    message_annotations: memoryview | None
    properties: memoryview | None
    application_properties: memoryview | None
    body: tuple[BodySection, ...]
    footer: memoryview | None
    after_header: memoryview
    """Everything behind the header, which an intermediary must pass on unchanged."""


def split(data: Buffer) -> Sections:
    """All sections. Data and sequence sections may be repeated, as the body (part 3.2)."""
    return _scan(data, whole=True)


def split_head(data: Buffer) -> Sections:
    """Only what stands in front of the body: it can be read even when the body is broken."""
    return _scan(data, whole=False)


def _scan(data: Buffer, *, whole: bool) -> Sections:
    view = memoryview(data)
    at, end, after_header = 0, len(data), 0
    found: dict[int, memoryview] = {}
    body: list[BodySection] = []
    last = 0
    while at < end:
        if data[at] != DESCRIBED:
            raise malformed("something that is no section stands among the sections")
        # The form that everybody writes; others are looked at more closely.
        if at + 3 < end and data[at + 1] == _SMALL_ULONG:
            section, start = data[at + 2], at + 3
        else:
            section, start = _descriptor(data, at + 1, end)
        if not _FIRST <= section <= _LAST:
            raise malformed(f"0x{section:02x} is no section")
        is_body = Section.DATA <= section <= Section.AMQP_VALUE
        if not whole and section >= Section.DATA:
            break
        repeats = section == last and section in (Section.DATA, Section.AMQP_SEQUENCE)
        mixes = is_body and bool(body) and not repeats
        if (section <= last and not repeats) or mixes:
            raise malformed(f"section 0x{section:02x} is repeated or out of order")
        if start >= end or data[start] not in _ALLOWED[section]:
            raise malformed(f"section 0x{section:02x} does not hold what it must")
        at = skip(data, start, end)
        if is_body:
            body.append(BodySection(Section(section), view[start:at]))
        else:
            found[section] = view[start:at]
            if section == Section.HEADER:
                after_header = at
        last = section
    get = found.get
    return Sections(
        get(0x70), get(0x71), get(0x72), get(0x73), get(0x74), tuple(body), get(0x78),
        view[after_header:],
    )  # fmt: skip


def _descriptor(data: Buffer, at: int, end: int) -> tuple[int, int]:
    start = skip(data, at, end)
    descriptor = decode(data[at:start])
    if isinstance(descriptor, ULong):
        return min(descriptor, _LAST + 1), start
    if isinstance(descriptor, Symbol) and descriptor in _SYMBOLS:
        return _SYMBOLS[descriptor], start
    raise malformed("a section has an unknown descriptor")


@dataclass(slots=True)
class Header:
    """Part 3.2.1. An absent field has the value that the specification gives it."""

    durable: bool = False
    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0


def encode_header(header: Header) -> bytes:
    return encode_composite(
        Section.HEADER,
        (
            header.durable or None,
            None if header.priority is None else UByte(header.priority),
            None if header.ttl is None else UInt(header.ttl),
            header.first_acquirer or None,
            UInt(header.delivery_count) if header.delivery_count else None,
        ),
    )


def decode_header(sections: Sections, limits: AmqpLimits = DEFAULT_LIMITS) -> Header:
    durable, priority, ttl, first_acquirer, delivery_count = _fields(sections.header, 5, limits)
    return Header(
        durable=_bool("durable", durable),
        priority=_number("priority", UByte, priority),
        ttl=_number("ttl", UInt, ttl),
        first_acquirer=_bool("first-acquirer", first_acquirer),
        delivery_count=_number("delivery-count", UInt, delivery_count) or 0,
    )


@dataclass(slots=True)
class Properties:
    """Part 3.2.4, with whatever type a sender gave each field: who uses one checks it."""

    message_id: Value = None
    user_id: Value = None
    to: Value = None
    subject: Value = None
    reply_to: Value = None
    correlation_id: Value = None
    content_type: Value = None
    content_encoding: Value = None
    absolute_expiry_time: Value = None
    creation_time: Value = None
    group_id: Value = None
    group_sequence: Value = None
    reply_to_group_id: Value = None


def encode_properties(properties: Properties) -> bytes:
    return encode_composite(
        Section.PROPERTIES,
        (
            properties.message_id,
            properties.user_id,
            properties.to,
            properties.subject,
            properties.reply_to,
            properties.correlation_id,
            properties.content_type,
            properties.content_encoding,
            properties.absolute_expiry_time,
            properties.creation_time,
            properties.group_id,
            properties.group_sequence,
            properties.reply_to_group_id,
        ),
    )


def decode_properties(sections: Sections, limits: AmqpLimits = DEFAULT_LIMITS) -> Properties:
    return Properties(*_fields(sections.properties, 13, limits))


def decode_application_properties(
    sections: Sections, limits: AmqpLimits = DEFAULT_LIMITS
) -> dict[str, Value]:
    """Part 3.2.5: the keys are strings, each of them once."""
    if sections.application_properties is None:
        return {}
    items = flat(sections.application_properties, limits)
    if items is not None and len(items) % 2 == 0:
        names = items[::2]
        usual = {
            name: item for name, item in zip(names, items[1::2], strict=True) if type(name) is str
        }
        if len(usual) == len(names):
            return usual
    value = decode(sections.application_properties, limits)
    found: dict[str, Value] = {}
    for key, item in value.pairs if isinstance(value, Map) else ():
        if type(key) is not str:
            raise malformed("an application property has a name that is no string")
        if key in found:
            raise malformed("an application property stands there twice")
        found[key] = item
    return found


def _fields(section: memoryview | None, count: int, limits: AmqpLimits) -> list[Value]:
    if section is None:
        return [None] * count
    # `split` has seen to it that it is a list.
    value: Value = flat(section, limits) or decode(section, limits)
    if not isinstance(value, list) or len(value) > count:
        raise malformed("a section has more fields than there are")
    return value + [None] * (count - len(value))


def _bool(name: str, value: Value) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise wrong_type(name, value)


def _number(name: str, kind: type[UInt | UByte], value: Value) -> int | None:
    if value is None or isinstance(value, kind):
        return value
    raise wrong_type(name, value)


def wrong_type(name: str, value: Value) -> Refusal:
    return Refusal(
        Rule.FIELD_TYPE, f"the AMQP field {name} has the wrong type {type(value).__name__.lower()}"
    )
