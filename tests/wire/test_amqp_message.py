"""Internal messages as AMQP messages: the round trip, the fields, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.instant import Instant
from gridpost.core.message import InternalType, SealedMessage
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.amqp.codec import encode as encode_value
from gridpost.wire.amqp.sections import split, split_head
from gridpost.wire.amqp.types import (
    AmqpLimits,
    Byte,
    Int,
    Long,
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
from gridpost.wire.mades.amqp_message import (
    MAX_TTL,
    MessageLimits,
    decode,
    encode,
    read_fields,
)
from support.amqp import build, rule_of, with_application, with_header, with_properties
from support.samples import NOW, sealed, sealed_messages, standard_message, texts


@given(sealed_messages())
def test_what_was_encoded_is_decoded_to_the_same_texts(message: SealedMessage) -> None:
    octets = encode(message, None, NOW)
    received = decode(octets)
    assert received.message == message
    assert texts(received.message.metadata) == texts(message.metadata)
    assert received.metadata_xml == metadata.encode(message.metadata)
    assert decode(memoryview(octets)) == received


@given(sealed_messages())
def test_the_fields_say_what_the_metadata_says(message: SealedMessage) -> None:
    fields, signed = read_fields(split_head(encode(message, None, NOW))), message.metadata
    assert fields.message_id == signed.message_id
    assert (fields.sender_code, fields.receiver_code) == (signed.sender_code, signed.receiver_code)
    assert (fields.internal_type, fields.subject) == (signed.internal_type, signed.message_type)
    assert fields.sender_application == signed.sender_application
    assert fields.ba_message_id == signed.ba_message_id
    assert fields.correlation_id == signed.related_message_id
    assert fields.mversion == signed.message_mversion
    assert fields.generated.milliseconds == signed.generated.milliseconds
    assert signed.expiration_time is not None
    assert fields.expires_at == signed.expiration_time.at
    left = (signed.expiration_time.at - NOW) / timedelta(milliseconds=1)
    assert fields.ttl == min(left, MAX_TTL)


def test_metadata_that_is_at_hand_is_not_encoded_again() -> None:
    text = metadata.encode(standard_message()) + "\n<!-- as signed -->"
    octets = encode(sealed(), text, NOW)
    assert decode(octets).metadata_xml == text


@pytest.mark.parametrize("size", [0, 255, 256, 70_000])
def test_bodies_of_every_length_class_arrive_whole(size: int) -> None:
    body = bytes(range(256)) * 300
    octets = encode(sealed(body=body[:size]), None, NOW)
    assert decode(octets).message.body == body[:size]


@pytest.mark.parametrize("left", [timedelta(0), timedelta(microseconds=999), timedelta(hours=-1)])
def test_an_expired_message_is_not_encoded(left: timedelta) -> None:
    metadata = standard_message(expiration_time=Instant(NOW + left, "then"))
    with pytest.raises(Refusal) as caught:
        encode(sealed(metadata), None, NOW)
    assert caught.value.rule is Rule.MESSAGE_EXPIRED


def test_a_message_without_expiration_time_is_not_encoded() -> None:
    with pytest.raises(Refusal) as caught:
        encode(sealed(standard_message(expiration_time=None)), None, NOW)
    assert caught.value.rule is Rule.FIELD_MISSING


@pytest.mark.parametrize("name", ["sender_application", "ba_message_id", "extension"])
def test_a_text_that_cannot_travel_is_refused(name: str) -> None:
    with pytest.raises(Refusal) as caught:
        encode(sealed(standard_message(**{name: "a\ud800"})), None, NOW)
    assert caught.value.rule is Rule.FORBIDDEN_XML


def test_a_life_longer_than_the_ttl_can_say_is_cut_there_and_exact_in_the_expiry_time() -> None:
    metadata = standard_message(expiration_time=Instant.of(NOW + timedelta(days=90)))
    fields = decode(encode(sealed(metadata), None, NOW)).fields
    assert fields.ttl == MAX_TTL
    assert fields.expires_at == NOW + timedelta(days=90)


REQUIRED = [
    "messageID", "receiverCode", "senderCode", "generated", "internalType", "messageMversion",
]  # fmt: skip


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("how", ["absent", "null"])
def test_a_missing_application_property_is_named(name: str, how: str) -> None:
    octets = with_application({name: None}, drop=how == "absent")
    with pytest.raises(Refusal, match=f"field {name} is missing") as caught:
        decode(octets)
    assert caught.value.rule is Rule.FIELD_MISSING


@pytest.mark.parametrize("name", ["messageID", "receiverCode", "senderCode", "internalType"])
def test_an_empty_required_text_is_missing(name: str) -> None:
    assert rule_of(with_application({name: ""})) is Rule.FIELD_MISSING


@pytest.mark.parametrize(
    ("octets", "name"),
    [
        (with_header(ttl=None), "ttl"),
        (build(header=b""), "ttl"),
        (with_properties(subject=None), "subject"),
        (with_properties(absolute_expiry_time=None), "absolute-expiry-time"),
        (build(properties=b""), "subject"),
        (build(application=b""), "internalType"),
    ],
)
def test_a_missing_field_of_the_other_sections_is_named(octets: bytes, name: str) -> None:
    with pytest.raises(Refusal, match=f"field {name} is missing") as caught:
        decode(octets)
    assert caught.value.rule is Rule.FIELD_MISSING


@pytest.mark.parametrize(
    ("octets", "name"),
    [
        (with_application({"messageID": Symbol("x")}), "messageID"),
        (with_application({"receiverCode": b"x"}), "receiverCode"),
        (with_application({"senderCode": UInt(1)}), "senderCode"),
        (with_application({"senderApplication": Symbol("SCADA-7")}), "senderApplication"),
        (with_application({"baMessageID": ["x"]}), "baMessageID"),
        (with_application({"generated": Long(1)}), "generated"),
        (with_application({"internalType": Symbol("STANDARD_MESSAGE")}), "internalType"),
        (with_application({"internalType": "BP1-A"}), "internalType"),
        (with_application({"messageMversion": "2"}), "messageMversion"),
        (with_application({"messageMversion": Timestamp(2)}), "messageMversion"),
        (with_application({"messageMversion": True}), "messageMversion"),
        (with_application({"messageMversion": 2.0}), "messageMversion"),
        (with_properties(subject=Symbol("BP1-A")), "subject"),
        (with_properties(correlation_id=ULong(1)), "correlation-id"),
        (with_properties(absolute_expiry_time=ULong(1)), "absolute-expiry-time"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(octets: bytes, name: str) -> None:
    with pytest.raises(Refusal, match=name) as caught:
        decode(octets)
    assert caught.value.rule is Rule.FIELD_TYPE


@pytest.mark.parametrize(
    ("octets", "rule"),
    [
        (with_application({"messageID": "1"}), Rule.BAD_MESSAGE_ID),
        (with_application({"receiverCode": "E 2"}), Rule.BAD_COMPONENT_CODE),
        (with_application({"generated": "yesterday"}), Rule.BAD_DATE_TIME),
        (with_application({"generated": Timestamp(2**62)}), Rule.BAD_DATE_TIME),
        (with_properties(absolute_expiry_time=Timestamp(-(2**63))), Rule.BAD_DATE_TIME),
        (with_properties(absolute_expiry_time="soon"), Rule.BAD_DATE_TIME),
        (with_properties(subject="A*"), Rule.BAD_MESSAGE_TYPE),
    ],
)
def test_a_field_with_an_impossible_value_is_refused(octets: bytes, rule: Rule) -> None:
    assert rule_of(octets) is rule


@pytest.mark.parametrize("kind", [Byte, Short, Int, Long, UByte, UShort, UInt, ULong])
def test_a_version_may_be_any_integer_type(kind: type[Int]) -> None:
    assert decode(with_application({"messageMversion": kind(2)})).fields.mversion == 2


def test_date_times_may_be_texts_with_any_offset() -> None:
    octets = with_application({"generated": "2026-03-01T13:59:58.0009+02:00"})
    assert decode(octets).fields.generated.text == "2026-03-01T13:59:58.0009+02:00"
    octets = with_properties(absolute_expiry_time="2026-03-01T13:00:00Z")
    assert decode(octets).fields.expires_at == NOW + timedelta(hours=1)


@pytest.mark.parametrize("value", [None, ""])
@pytest.mark.parametrize("name", ["senderApplication", "baMessageID"])
def test_an_optional_field_that_says_nothing_does_not_disagree(name: str, value: Value) -> None:
    assert decode(with_application({name: value})).message == sealed()


OTHER_ID = "11111111-2222-4333-8444-555555555555"


@pytest.mark.parametrize(
    ("octets", "name"),
    [
        (with_application({"messageID": OTHER_ID}), "messageID"),
        (with_application({"receiverCode": "E9"}), "receiverCode"),
        (with_application({"senderCode": "E9"}), "senderCode"),
        (with_application({"senderApplication": "other"}), "senderApplication"),
        (with_application({"baMessageID": "other"}), "baMessageID"),
        (with_application({"generated": Timestamp(1_772_366_398_001)}), "generated"),
        (with_application({"internalType": "TRACING_MESSAGE"}), "internalType"),
        (with_application({"messageMversion": Int(3)}), "messageMversion"),
        (with_properties(subject="BP1-B"), "subject"),
        (with_properties(correlation_id=OTHER_ID), "correlation-id"),
        (with_properties(absolute_expiry_time=Timestamp(1)), "absolute-expiry-time"),
    ],
)
def test_a_field_that_contradicts_the_metadata_is_named(octets: bytes, name: str) -> None:
    with pytest.raises(Refusal, match=f"^{name} differs") as caught:
        decode(octets)
    assert caught.value.rule is Rule.FIELDS_DISAGREE
    # A broker has nothing against it: it reads the fields alone.
    read_fields(split(octets))


def test_metadata_without_expiration_time_leaves_it_to_the_fields() -> None:
    text = metadata.encode(standard_message(expiration_time=None))
    received = decode(build(body=(text, b"")))
    assert received.message.metadata.expiration_time is None
    assert received.fields.expires_at == NOW + timedelta(hours=1)


XML = metadata.encode(standard_message())


@pytest.mark.parametrize(
    ("octets", "rule"),
    [
        (build(raw_body=b""), Rule.MALFORMED_AMQP),
        (build(raw_body=b"\x00\x53\x75" + encode_value(b"x")), Rule.MALFORMED_AMQP),
        (build(raw_body=b"\x00\x53\x77" + encode_value([XML, b"x"])), Rule.MALFORMED_AMQP),
        (build(raw_body=(b"\x00\x53\x76" + encode_value([XML, b"x"])) * 2), Rule.MALFORMED_AMQP),
        (build(body=()), Rule.MALFORMED_AMQP),
        (build(body=(XML,)), Rule.MALFORMED_AMQP),
        (build(body=(XML, b"x", b"y")), Rule.MALFORMED_AMQP),
        (build(body=(b"x", XML)), Rule.FIELD_TYPE),
        (build(body=(XML.encode(), b"x")), Rule.FIELD_TYPE),
        (build(body=(Symbol("x"), b"x")), Rule.FIELD_TYPE),
        (build(body=(XML, "x")), Rule.FIELD_TYPE),
        (build(body=(XML, None)), Rule.FIELD_TYPE),
        (build(body=("<a/>", b"x")), Rule.SCHEMA_INVALID),
        (build(body=("no XML", b"x")), Rule.MALFORMED_XML),
        (build(body=("<!DOCTYPE a><a/>", b"x")), Rule.FORBIDDEN_XML),
        (build(raw_body=b"\x00\x53\x76\xd0\x00\x00\x00\xff\x00\x00\x00\x02"), Rule.MALFORMED_AMQP),
        (build(raw_body=b"\x00\x53\x76\xc0\x05\x02\xa1\x01\xff\x40"), Rule.FIELD_TYPE),
        (build(raw_body=b"\x00\x53\x76\xc0\x06\x02\xa1\x01\xff\xa0\x00"), Rule.MALFORMED_AMQP),
    ],
)
def test_a_broken_body_is_refused_and_the_fields_still_say_whom_to_answer(
    octets: bytes, rule: Rule
) -> None:
    assert rule_of(octets) is rule
    fields = read_fields(split_head(octets))
    assert fields.sender_code == standard_message().sender_code
    assert fields.message_id == standard_message().message_id


def test_a_message_beyond_the_limits_is_refused() -> None:
    octets = encode(sealed(), None, NOW)
    assert decode(octets, MessageLimits(max_bytes=len(octets)))
    for limits in (
        MessageLimits(max_bytes=len(octets) - 1),
        MessageLimits(amqp=AmqpLimits(max_items=5)),
        MessageLimits(metadata=replace(metadata.LIMITS, max_elements=5)),
    ):
        with pytest.raises(Refusal) as caught:
            decode(octets, limits)
        assert caught.value.rule is Rule.LIMIT_EXCEEDED


def test_properties_that_lower_layers_add_are_of_no_interest() -> None:
    octets = with_properties(
        message_id=ULong(7), user_id=b"u", to="E2", creation_time=Timestamp(0), group_id="g"
    )
    assert decode(octets).message == sealed()
    octets = with_application({"x-opt-trace": ["any", "thing"]})
    assert decode(octets).message == sealed()


def test_only_an_acknowledgement_gets_a_correlation_id() -> None:
    related = standard_message(related_message_id=OTHER_ID)
    assert read_fields(split(encode(sealed(related), None, NOW))).correlation_id == ""
    acknowledgement = replace(related, internal_type=InternalType.RECEIVE_ACKNOWLEDGEMENT)
    assert read_fields(split(encode(sealed(acknowledgement), None, NOW))).correlation_id == OTHER_ID


@given(st.data())
def test_no_change_to_a_message_raises_anything_but_a_refusal(data: st.DataObject) -> None:
    octets = bytearray(encode(sealed(), None, NOW))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(octets), 700)))
        octets[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=4))
    for read in (decode, lambda octets: read_fields(split_head(octets))):
        try:
            read(bytes(octets))
        except Refusal as refusal:
            assert refusal.message


@given(st.binary(max_size=300))
def test_octets_are_decoded_or_refused(octets: bytes) -> None:
    with pytest.raises(Refusal):
        decode(octets)
