"""503 cl. 6.5.2, Tables 5 to 8: the AMQP format of internal messages."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from gridpost.core.instant import Instant
from gridpost.core.message import InternalType
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.amqp.codec import decode as decode_value
from gridpost.wire.amqp.codec import encode as encode_value
from gridpost.wire.amqp.sections import (
    Properties,
    Section,
    Sections,
    decode_application_properties,
    decode_header,
    decode_properties,
    split,
)
from gridpost.wire.amqp.types import Int, Long, Timestamp, ULong, Value
from gridpost.wire.mades import metadata
from gridpost.wire.mades.amqp_message import decode, encode, read_fields
from support.amqp import build, rule_of, with_application, with_properties
from support.samples import NOW, ORIGINAL_ID, internal_message, sealed, standard_message

MESSAGES = [InternalType.STANDARD_MESSAGE, InternalType.TRACING_MESSAGE]
ACKNOWLEDGEMENTS = [kind for kind in InternalType if kind.is_acknowledgement]


def emitted(kind: InternalType, at: datetime = NOW) -> Sections:
    return split(encode(sealed(internal_message(kind)), None, at))


def application(kind: InternalType) -> dict[str, Value]:
    return decode_application_properties(emitted(kind))


def properties(kind: InternalType) -> Properties:
    return decode_properties(emitted(kind))


def missing(name: str) -> None:
    for octets in (with_application({name: None}, drop=True), with_application({name: None})):
        with pytest.raises(Refusal, match=name) as caught:
            decode(octets)
        assert caught.value.rule is Rule.FIELD_MISSING


@pytest.mark.req("503-6.5.2-a")
@pytest.mark.parametrize("kind", InternalType)
def test_all_six_internal_types_have_the_same_sections_and_fields(kind: InternalType) -> None:
    sections = emitted(kind)
    assert None not in (sections.header, sections.properties, sections.application_properties)
    assert (sections.delivery_annotations, sections.message_annotations, sections.footer) == (
        None,
        None,
        None,
    )
    assert [part.kind for part in sections.body] == [Section.AMQP_SEQUENCE]
    assert set(application(kind)) - {"senderApplication", "baMessageID"} == {
        "messageID",
        "receiverCode",
        "senderCode",
        "generated",
        "internalType",
        "messageMversion",
    }


@pytest.mark.req("503-6.5.2-b")
@pytest.mark.parametrize("kind", InternalType)
def test_each_application_property_has_name_and_value_of_a_metadata_element(
    kind: InternalType,
) -> None:
    signed = internal_message(kind)
    root = metadata.schema().read(metadata.encode(signed))
    elements = {child.tag: child.text for child in root}
    for name, value in application(kind).items():
        assert name in elements
        if name == "generated":
            assert value == Instant.parse(elements[name] or "").milliseconds
        else:
            assert str(value) == elements[name]


@pytest.mark.req("503-6.5.2-c")
@pytest.mark.parametrize("kind", InternalType)
def test_the_body_is_one_sequence_of_two_elements(kind: InternalType) -> None:
    (part,) = emitted(kind).body
    assert part.kind is Section.AMQP_SEQUENCE
    value = decode_value(part.value)
    assert isinstance(value, list)
    assert len(value) == 2


XML = metadata.encode(standard_message())


@pytest.mark.req("503-6.5.2-c")
@pytest.mark.parametrize(
    "octets",
    [
        build(raw_body=b"\x00\x53\x75" + encode_value(XML.encode())),
        build(raw_body=b"\x00\x53\x77" + encode_value([XML, b"x"])),
        build(raw_body=(b"\x00\x53\x76" + encode_value([XML, b"x"])) * 2),
        build(body=(XML,)),
        build(body=(XML, b"x", b"y")),
        build(raw_body=b""),
    ],
    ids=["data", "amqp-value", "two sequences", "one element", "three elements", "no body"],
)
def test_any_other_body_is_refused(octets: bytes) -> None:
    assert rule_of(octets) is Rule.MALFORMED_AMQP


@pytest.mark.req("503-6.5.2-d")
@pytest.mark.parametrize("message_id", [None, "anything", ULong(7), b"\x00", ORIGINAL_ID])
def test_identity_comes_from_the_message_id_of_the_metadata_alone(message_id: Value) -> None:
    received = decode(with_properties(message_id=message_id))
    assert received.fields.message_id == standard_message().message_id
    assert received.message == sealed()


@pytest.mark.req("503-T5-a")
@pytest.mark.parametrize("kind", InternalType)
@pytest.mark.parametrize(
    "later", [timedelta(0), timedelta(minutes=10), timedelta(milliseconds=3_599_999)]
)
def test_ttl_is_the_time_left_at_each_transfer(kind: InternalType, later: timedelta) -> None:
    header = decode_header(emitted(kind, NOW + later))
    assert header.ttl == (timedelta(hours=1) - later) // timedelta(milliseconds=1)


@pytest.mark.req("503-T5-a")
def test_a_message_without_ttl_is_refused() -> None:
    with pytest.raises(Refusal, match="ttl") as caught:
        decode(build(header=b""))
    assert caught.value.rule is Rule.FIELD_MISSING


@pytest.mark.req("503-5.7-f")
@pytest.mark.parametrize("kind", InternalType)
def test_element_ttl_and_absolute_expiry_time_denote_one_instant(kind: InternalType) -> None:
    received = decode(encode(sealed(internal_message(kind)), None, NOW))
    expiration = received.message.metadata.expiration_time
    assert expiration is not None
    assert received.fields.expires_at == expiration.at
    assert NOW + timedelta(milliseconds=received.fields.ttl) == expiration.at


@pytest.mark.req("503-T6-a")
@pytest.mark.parametrize("kind", InternalType)
def test_absolute_expiry_time_is_a_timestamp_of_the_expiration_time(kind: InternalType) -> None:
    value = properties(kind).absolute_expiry_time
    assert isinstance(value, Timestamp)
    assert value == Instant.of(NOW + timedelta(hours=1)).milliseconds


@pytest.mark.req("503-T6-a")
def test_absolute_expiry_time_of_a_peer_may_be_a_string_but_not_absent() -> None:
    octets = with_properties(absolute_expiry_time="2026-03-01T14:00:00.000+01:00")
    assert decode(octets).fields.expires_at == NOW + timedelta(hours=1)
    assert rule_of(with_properties(absolute_expiry_time=None)) is Rule.FIELD_MISSING


@pytest.mark.req("503-T6-b")
@pytest.mark.parametrize("kind", InternalType)
def test_subject_is_the_message_type(kind: InternalType) -> None:
    assert type(properties(kind).subject) is str
    assert properties(kind).subject == internal_message(kind).message_type


@pytest.mark.req("503-T6-b")
def test_a_message_without_subject_is_refused() -> None:
    assert rule_of(with_properties(subject=None)) is Rule.FIELD_MISSING


@pytest.mark.req("503-T6-c")
@pytest.mark.parametrize("kind", ACKNOWLEDGEMENTS)
def test_correlation_id_of_an_acknowledgement_is_the_original_message(kind: InternalType) -> None:
    assert type(properties(kind).correlation_id) is str
    assert properties(kind).correlation_id == ORIGINAL_ID


@pytest.mark.req("503-T6-c")
@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_has_no_correlation_id(kind: InternalType) -> None:
    assert properties(kind).correlation_id is None


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        pytest.param("messageID", "message_id", marks=pytest.mark.req("503-T7-a")),
        pytest.param("receiverCode", "receiver_code", marks=pytest.mark.req("503-T7-b")),
        pytest.param("senderCode", "sender_code", marks=pytest.mark.req("503-T7-c")),
        pytest.param("internalType", "internal_type", marks=pytest.mark.req("503-T7-g")),
    ],
)
@pytest.mark.parametrize("kind", InternalType)
def test_a_required_string_is_that_of_the_metadata_and_never_missing(
    name: str, attribute: str, kind: InternalType
) -> None:
    value = application(kind)[name]
    assert type(value) is str
    assert value == getattr(internal_message(kind), attribute)
    missing(name)


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        pytest.param("senderApplication", "sender_application", marks=pytest.mark.req("503-T7-d")),
        pytest.param("baMessageID", "ba_message_id", marks=pytest.mark.req("503-T7-e")),
    ],
)
def test_an_optional_string_stands_on_messages_that_have_it(name: str, attribute: str) -> None:
    for kind in MESSAGES:
        value = application(kind)[name]
        assert type(value) is str
        assert value == getattr(internal_message(kind), attribute) != ""
    for kind in ACKNOWLEDGEMENTS:
        assert name not in application(kind)
    assert decode(with_application({name: None}, drop=True)).message == sealed()


@pytest.mark.req("503-T7-f")
@pytest.mark.parametrize("kind", InternalType)
def test_generated_is_a_timestamp(kind: InternalType) -> None:
    value = application(kind)["generated"]
    assert isinstance(value, Timestamp)
    assert value == internal_message(kind).generated.milliseconds


@pytest.mark.req("503-T7-f")
def test_generated_of_a_peer_may_be_an_iso_string_but_not_absent() -> None:
    octets = with_application({"generated": "2026-03-01T11:59:58Z"})
    assert decode(octets).fields.generated == standard_message().generated
    missing("generated")


@pytest.mark.req("503-T7-g")
def test_internal_type_is_not_the_message_type() -> None:
    assert application(InternalType.STANDARD_MESSAGE)["internalType"] == "STANDARD_MESSAGE"
    assert rule_of(with_application({"internalType": "BP1-A"})) is Rule.FIELD_TYPE


@pytest.mark.req("503-T7-h")
@pytest.mark.parametrize("kind", InternalType)
def test_message_mversion_is_the_int_2(kind: InternalType) -> None:
    value = application(kind)["messageMversion"]
    assert isinstance(value, Int)
    assert value == internal_message(kind).message_mversion == 2


@pytest.mark.req("503-T7-h")
def test_message_mversion_of_a_peer_may_be_a_long_but_not_absent() -> None:
    assert decode(with_application({"messageMversion": Long(2)})).fields.mversion == 2
    missing("messageMversion")


@pytest.mark.req("503-T8-a")
@pytest.mark.parametrize("kind", InternalType)
def test_element_1_is_a_string_with_valid_metadata(kind: InternalType) -> None:
    value = decode_value(emitted(kind).body[0].value)
    assert isinstance(value, list)
    text = value[0]
    assert type(text) is str
    metadata.schema().read(text)


@pytest.mark.req("503-T8-a")
@pytest.mark.parametrize(
    ("first", "rule"),
    [
        ("no XML", Rule.MALFORMED_XML),
        (XML.replace("senderCode", "sender"), Rule.SCHEMA_INVALID),
        (XML.encode(), Rule.FIELD_TYPE),
        (None, Rule.FIELD_TYPE),
    ],
)
def test_invalid_metadata_of_a_peer_is_refused_and_can_be_answered(
    first: Value, rule: Rule
) -> None:
    octets = build(body=(first, b"x"))
    assert rule_of(octets) is rule
    assert read_fields(split(octets)).sender_code == standard_message().sender_code


@pytest.mark.parametrize("kind", InternalType)
def test_element_2_is_a_binary_with_the_octets_of_the_body(kind: InternalType) -> None:
    body = bytes(range(256))
    octets = encode(sealed(internal_message(kind), body), None, NOW)
    value = decode_value(split(octets).body[0].value)
    assert isinstance(value, list)
    assert type(value[1]) is bytes
    assert decode(octets).message.body == value[1] == body
    assert rule_of(build(body=(XML, "text"))) is Rule.FIELD_TYPE
