"""AMQP messages of a peer that does one thing differently: a standard message with one part changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.amqp.codec import encode as encode_value
from gridpost.wire.amqp.sections import (
    Header,
    Properties,
    decode_application_properties,
    decode_properties,
    encode_header,
    encode_properties,
    split,
)
from gridpost.wire.amqp.types import Described, Map, ULong, Value
from gridpost.wire.mades.amqp_message import decode, encode
from support.samples import NOW, sealed

_OURS = split(encode(sealed(), None, NOW))
HEADER = Header(durable=True, ttl=3_600_000)
PROPERTIES = decode_properties(_OURS)
APPLICATION = decode_application_properties(_OURS)
BODY = bytes(_OURS.body[0].value)


def build(
    *,
    header: bytes | None = None,
    properties: bytes | None = None,
    application: bytes | None = None,
    body: tuple[Value, ...] | None = None,
    raw_body: bytes | None = None,
) -> bytes:
    """The sample message with these sections instead of its own; b"" leaves one out."""
    if raw_body is None:
        raw_body = b"\x00\x53\x76" + (BODY if body is None else encode_value(list(body)))
    return b"".join(
        (
            encode_header(HEADER) if header is None else header,
            encode_properties(PROPERTIES) if properties is None else properties,
            application_section(APPLICATION) if application is None else application,
            raw_body,
        )
    )


def application_section(values: dict[str, Value]) -> bytes:
    return encode_value(Described(ULong(0x74), Map(tuple(values.items()))))


def with_header(*, ttl: int | None) -> bytes:
    return build(header=encode_header(replace(HEADER, ttl=ttl)))


def with_properties(**changes: Value) -> bytes:
    changed: Properties = replace(PROPERTIES, **changes)
    return build(properties=encode_properties(changed))


def with_application(changes: dict[str, Value], *, drop: bool = False) -> bytes:
    values = {**APPLICATION, **changes}
    if drop:
        values = {name: value for name, value in values.items() if name not in changes}
    return build(application=application_section(values))


def rule_of(octets: bytes) -> Rule:
    with pytest.raises(Refusal) as caught:
        decode(octets)
    return caught.value.rule
