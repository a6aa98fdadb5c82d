"""The same message written by Qpid Proton and by us is the same octets; each reads the other's."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.instant import Instant
from gridpost.core.message import InternalType, SealedMessage
from gridpost.wire.amqp.codec import decode as decode_value
from gridpost.wire.amqp.codec import encode as encode_value
from gridpost.wire.amqp.sections import (
    Header,
    Properties,
    encode_header,
    encode_properties,
    split,
)
from gridpost.wire.amqp.types import (
    Array,
    Byte,
    Char,
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
from gridpost.wire.mades import metadata
from gridpost.wire.mades.amqp_message import decode, encode
from support.samples import NOW, internal_message, sealed, sealed_messages


def seconds(milliseconds: int) -> float:
    """Proton cuts fractions off where they may have become a little too small."""
    return (milliseconds + 0.5) / 1000


def by_proton(message: SealedMessage) -> bytes:
    """Tables 5 to 8, written with Proton's own message."""
    signed = message.metadata
    assert signed.expiration_time is not None
    other = proton.Message(inferred=True)
    other.durable = True
    other.ttl = seconds((signed.expiration_time.at - NOW) // timedelta(milliseconds=1))
    other.id = signed.message_id
    other.subject = signed.message_type
    other.expiry_time = seconds(signed.expiration_time.milliseconds)
    if signed.internal_type.is_acknowledgement and signed.related_message_id:
        other.correlation_id = signed.related_message_id
    properties = {
        "messageID": signed.message_id,
        "receiverCode": signed.receiver_code,
        "senderCode": signed.sender_code,
        "senderApplication": signed.sender_application,
        "baMessageID": signed.ba_message_id,
        "generated": proton.timestamp(signed.generated.milliseconds),
        "internalType": signed.internal_type.value,
        "messageMversion": proton.int32(signed.message_mversion),
    }
    other.properties = {name: value for name, value in properties.items() if value != ""}
    other.body = [metadata.encode(signed), message.body]
    octets: bytes = other.encode()
    return octets


@pytest.mark.parametrize("kind", InternalType)
@pytest.mark.parametrize("size", [0, 100, 255, 256, 100_000])
def test_each_kind_of_internal_message_is_the_same_octets(kind: InternalType, size: int) -> None:
    message = sealed(internal_message(kind), bytes(size))
    assert encode(message, None, NOW) == by_proton(message)


@given(sealed_messages())
def test_any_message_is_the_same_octets_and_is_read_alike(message: SealedMessage) -> None:
    # Proton has no ttl beyond 32 bits, and no time before 1970.
    expiration = message.metadata.expiration_time
    assert expiration is not None
    limited = min(expiration.at, NOW + timedelta(days=49))
    generated = Instant.of(NOW - timedelta(seconds=1))
    signed = replace(message.metadata, expiration_time=Instant.of(limited), generated=generated)
    message = replace(message, metadata=signed)
    theirs = by_proton(message)
    assert encode(message, None, NOW) == theirs
    assert decode(theirs).message == message


@pytest.mark.parametrize("kind", InternalType)
def test_proton_reads_every_field_of_ours(kind: InternalType) -> None:
    message = sealed(internal_message(kind))
    signed = message.metadata
    other = proton.Message()
    other.decode(encode(message, None, NOW))
    assert other.durable is True
    assert other.ttl == 3600
    assert (other.id, other.subject) == (signed.message_id, signed.message_type)
    assert other.correlation_id == (signed.related_message_id or None)
    assert other.expiry_time == (NOW + timedelta(hours=1)).timestamp()
    assert other.properties["messageID"] == signed.message_id
    assert other.properties["receiverCode"] == signed.receiver_code
    assert other.properties["senderCode"] == signed.sender_code
    assert other.properties.get("senderApplication", "") == signed.sender_application
    assert other.properties.get("baMessageID", "") == signed.ba_message_id
    assert other.properties["generated"] == proton.timestamp(signed.generated.milliseconds)
    assert type(other.properties["generated"]) is proton.timestamp
    assert other.properties["internalType"] == kind.value
    assert type(other.properties["messageMversion"]) is proton.int32
    assert other.inferred is True
    text, body = other.body
    assert metadata.decode(text) == signed
    assert bytes(body) == message.body


def test_a_message_of_proton_with_annotations_and_all_properties_is_read() -> None:
    other = proton.Message()
    other.decode(encode(sealed(), None, NOW))
    other.annotations = {proton.symbol("x-opt-a"): 1}
    other.instructions = {proton.symbol("x-opt-b"): [None, True]}
    other.priority, other.delivery_count, other.first_acquirer = 7, 3, True
    other.user_id, other.address, other.reply_to = b"user", "E2", "E1"
    other.content_type, other.creation_time = "text/xml", 1_700_000_000
    other.group_id, other.group_sequence = "group", 5
    octets = other.encode()
    assert decode(octets).message == sealed()
    assert split(octets).delivery_annotations is not None


SAME: list[tuple[Value, Any]] = [
    (None, None),
    (True, True),
    (False, False),
    (UByte(200), proton.ubyte(200)),
    (Byte(-3), proton.byte(-3)),
    (UShort(60_000), proton.ushort(60_000)),
    (Short(-3), proton.short(-3)),
    *[(UInt(n), proton.uint(n)) for n in (0, 1, 255, 256, 2**32 - 1)],
    *[(Int(n), proton.int32(n)) for n in (0, 127, 128, -128, -129, 2**31 - 1)],
    *[(ULong(n), proton.ulong(n)) for n in (0, 1, 255, 256, 2**64 - 1)],
    *[(Long(n), n) for n in (0, 127, 128, -128, -129, 2**63 - 1)],
    (Timestamp(0), proton.timestamp(0)),
    (Float(1.5), proton.float32(1.5)),
    (2.5, 2.5),
    (Char("é"), proton.char("é")),
    ("", ""),
    ("é" * 127, "é" * 127),
    ("é" * 128, "é" * 128),
    (b"x" * 255, b"x" * 255),
    (b"x" * 256, b"x" * 256),
    (Symbol("x" * 255), proton.symbol("x" * 255)),
    (Symbol("x" * 256), proton.symbol("x" * 256)),
    ([], []),
    ([[], ["a"]], [[], ["a"]]),
    (Map(()), {}),
    (Map((("a", Long(1)),)), {"a": 1}),
    (Described(Symbol("d"), ["a"]), proton.Described(proton.symbol("d"), ["a"])),
    (Array(0x71, (Int(1), Int(2))), proton.Array(proton.UNDESCRIBED, proton.Data.INT, 1, 2)),
    (
        Array(0xB3, (Symbol("a"),), (Symbol("d"),)),
        proton.Array(proton.symbol("d"), proton.Data.SYMBOL, proton.symbol("a")),
    ),
]


@pytest.mark.parametrize(("ours", "theirs"), SAME)
def test_each_value_takes_the_form_that_proton_chooses(ours: Value, theirs: Any) -> None:
    data = proton.Data()
    data.put_object(theirs)
    octets = data.encode()
    assert encode_value(ours) == octets
    assert decode_value(octets) == ours


@given(st.booleans(), st.none() | st.integers(1, 10**9), st.integers(0, 10**6), st.integers(0, 255))
def test_headers_are_the_same_octets(
    durable: bool, ttl: int | None, count: int, priority: int
) -> None:
    other = proton.Message(durable=durable, delivery_count=count, priority=priority)
    if ttl is not None:
        other.ttl = seconds(ttl)
    ours = Header(durable, None if priority == 4 else priority, ttl, False, count)
    assert other.encode().startswith(encode_header(ours) + b"\x00\x53\x73")


@pytest.mark.parametrize("length", [0, 1, 200, 246, 247, 248, 249, 250, 251, 252, 253, 254, 300])
def test_properties_around_the_length_where_the_list_widens_are_the_same_octets(
    length: int,
) -> None:
    other = proton.Message(id="x" * length, subject="s")
    ours = encode_properties(Properties(message_id="x" * length, subject="s"))
    assert ours in other.encode()
