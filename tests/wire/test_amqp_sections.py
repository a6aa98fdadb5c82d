"""Sections of an AMQP message: found without decoding, in order, each at most once."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.amqp.codec import encode
from gridpost.wire.amqp.sections import (
    Header,
    Properties,
    Section,
    decode_application_properties,
    decode_header,
    decode_properties,
    encode_header,
    encode_properties,
    split,
    split_head,
)
from gridpost.wire.amqp.types import (
    Described,
    Int,
    Map,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    Value,
)

CONTENT: dict[Section, Value] = {
    Section.HEADER: [True],
    Section.DELIVERY_ANNOTATIONS: Map(((Symbol("x-d"), "1"),)),
    Section.MESSAGE_ANNOTATIONS: Map(((Symbol("x-m"), "2"),)),
    Section.PROPERTIES: ["id"],
    Section.APPLICATION_PROPERTIES: Map((("a", "3"),)),
    Section.DATA: b"data",
    Section.AMQP_SEQUENCE: ["s"],
    Section.AMQP_VALUE: None,
    Section.FOOTER: Map(((Symbol("x-f"), "4"),)),
}
SYMBOLS = {
    Section.HEADER: "amqp:header:list",
    Section.DELIVERY_ANNOTATIONS: "amqp:delivery-annotations:map",
    Section.MESSAGE_ANNOTATIONS: "amqp:message-annotations:map",
    Section.PROPERTIES: "amqp:properties:list",
    Section.APPLICATION_PROPERTIES: "amqp:application-properties:map",
    Section.DATA: "amqp:data:binary",
    Section.AMQP_SEQUENCE: "amqp:amqp-sequence:list",
    Section.AMQP_VALUE: "amqp:amqp-value:*",
    Section.FOOTER: "amqp:footer:map",
}
BEFORE_BODY = [s for s in Section if s < Section.DATA]


def section(kind: Section, form: str = "smallulong") -> bytes:
    descriptor = {
        "smallulong": bytes((0x53, kind)),
        "ulong": b"\x80" + int(kind).to_bytes(8, "big"),
        "symbol": encode(Symbol(SYMBOLS[kind])),
    }[form]
    return b"\x00" + descriptor + encode(CONTENT[kind])


def message(*kinds: Section, form: str = "smallulong") -> bytes:
    return b"".join(section(kind, form) for kind in kinds)


def refused(data: bytes) -> Rule:
    with pytest.raises(Refusal) as caught:
        split(data)
    return caught.value.rule


@pytest.mark.parametrize("form", ["smallulong", "ulong", "symbol"])
@pytest.mark.parametrize("body", [Section.DATA, Section.AMQP_SEQUENCE, Section.AMQP_VALUE])
def test_all_sections_are_found_in_every_form_of_their_descriptor(form: str, body: Section) -> None:
    data = message(*BEFORE_BODY, body, Section.FOOTER, form=form)
    found = split(data)
    assert found.header == encode(CONTENT[Section.HEADER])
    assert found.delivery_annotations == encode(CONTENT[Section.DELIVERY_ANNOTATIONS])
    assert found.message_annotations == encode(CONTENT[Section.MESSAGE_ANNOTATIONS])
    assert found.properties == encode(CONTENT[Section.PROPERTIES])
    assert found.application_properties == encode(CONTENT[Section.APPLICATION_PROPERTIES])
    assert [(part.kind, bytes(part.value)) for part in found.body] == [
        (body, encode(CONTENT[body]))
    ]
    assert found.footer == encode(CONTENT[Section.FOOTER])
    assert found.after_header == data[len(section(Section.HEADER, form)) :]


def test_slices_are_parts_of_the_message_itself() -> None:
    data = message(*BEFORE_BODY, Section.DATA)
    found = split(data)
    assert found.properties is not None
    assert found.properties.obj is data
    assert found.body[0].value.obj is data


@given(st.sets(st.sampled_from(sorted(BEFORE_BODY))), st.booleans())
def test_every_section_may_be_absent(kinds: set[Section], body: bool) -> None:
    data = message(*sorted(kinds), *([Section.AMQP_SEQUENCE] if body else []))
    found = split(memoryview(data))
    assert (found.header is not None) == (Section.HEADER in kinds)
    assert (found.footer, len(found.body)) == (None, int(body))
    assert b"".join((data[: len(data) - len(found.after_header)], found.after_header)) == data


@pytest.mark.parametrize("kind", [Section.DATA, Section.AMQP_SEQUENCE])
def test_data_and_sequence_sections_may_be_repeated(kind: Section) -> None:
    assert [part.kind for part in split(message(kind, kind, kind)).body] == [kind] * 3


@pytest.mark.parametrize(
    "kinds",
    [
        *[(kind, kind) for kind in Section if kind not in (Section.DATA, Section.AMQP_SEQUENCE)],
        *[pair for pair in permutations(BEFORE_BODY, 2) if pair[0] > pair[1]],
        (Section.DATA, Section.HEADER),
        (Section.FOOTER, Section.DATA),
        (Section.DATA, Section.AMQP_SEQUENCE),
        (Section.AMQP_SEQUENCE, Section.DATA),
        (Section.AMQP_SEQUENCE, Section.AMQP_VALUE),
        (Section.DATA, Section.PROPERTIES, Section.DATA),
    ],
)
def test_repeated_mixed_and_misplaced_sections_are_refused(kinds: tuple[Section, ...]) -> None:
    assert refused(message(*kinds)) is Rule.MALFORMED_AMQP


@pytest.mark.parametrize(
    "octets",
    [
        "41",
        "00",
        "0053",
        "005370",
        "00536f45",
        "00537945",
        "00a3017845",
        "00800000000100000070" + "45",
        "00447045",
        "00537040",
        "00537145",
        "00537345" + "00",
        "005370c0ff",
        "0053750000",
        "005375a10161",
        "005376a00161",
        "005374" + "c00100",
    ],
)
def test_what_is_no_section_is_refused(octets: str) -> None:
    assert refused(bytes.fromhex(octets)) is Rule.MALFORMED_AMQP


@pytest.mark.parametrize(
    "rest", [b"", b"\x00\x53\x76\xd0\xff\xff", b"\x00\x53\x77\x99", b"\x00\x53\x75"]
)
def test_the_head_is_found_whatever_the_body_is(rest: bytes) -> None:
    head = message(*BEFORE_BODY)
    found = split_head(head + rest)
    assert found.application_properties == encode(CONTENT[Section.APPLICATION_PROPERTIES])
    assert found.body == ()


def test_an_empty_message_has_no_section() -> None:
    found = split(b"")
    assert (found.header, found.properties, found.application_properties, found.body) == (
        None,
        None,
        None,
        (),
    )
    assert decode_header(found) == Header()
    assert decode_properties(found) == Properties()
    assert decode_application_properties(found) == {}


@given(
    st.builds(
        Header,
        st.booleans(),
        st.none() | st.integers(0, 255),
        st.none() | st.integers(0, 2**32 - 1),
        st.booleans(),
        st.integers(0, 2**32 - 1),
    )
)
def test_a_header_round_trips(header: Header) -> None:
    assert decode_header(split(encode_header(header))) == header


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (["yes"], "durable"),
        ([None, UInt(4)], "priority"),
        ([None, None, ULong(5)], "ttl"),
        ([None, None, True], "ttl"),
        ([None, None, None, UByte(1)], "first-acquirer"),
        ([None, None, None, None, Int(1)], "delivery-count"),
    ],
)
def test_a_header_field_of_the_wrong_type_is_named(values: list[Value], name: str) -> None:
    sections = split(encode(Described(ULong(0x70), values)))
    with pytest.raises(Refusal, match=f"field {name} ") as caught:
        decode_header(sections)
    assert caught.value.rule is Rule.FIELD_TYPE


def test_properties_round_trip_with_all_fields() -> None:
    properties = Properties(
        "id", b"user", "to", "subject", "reply", "original", Symbol("text/xml"), Symbol("gzip"),
        Timestamp(1), Timestamp(2), "group", UInt(3), "reply-group",
    )  # fmt: skip
    assert decode_properties(split(encode_properties(properties))) == properties


@pytest.mark.parametrize(
    "data",
    [
        encode(Described(ULong(0x70), [None] * 6)),
        encode(Described(ULong(0x73), [None] * 14)),
        encode(Described(ULong(0x74), Map(((Symbol("a"), "1"),)))),
        encode(Described(ULong(0x74), Map((("a", "1"), ("a", "2"))))),
        encode(Described(ULong(0x74), Map(((UInt(1), "1"),)))),
    ],
)
def test_a_section_with_too_many_fields_or_bad_names_is_refused(data: bytes) -> None:
    sections = split(data)
    with pytest.raises(Refusal) as caught:
        (
            decode_header(sections),
            decode_properties(sections),
            decode_application_properties(sections),
        )
    assert caught.value.rule is Rule.MALFORMED_AMQP


@given(st.binary(max_size=60), st.data())
def test_octets_are_split_or_refused(octets: bytes, data: st.DataObject) -> None:
    whole = message(*BEFORE_BODY, Section.AMQP_SEQUENCE)
    at = data.draw(st.integers(0, len(whole)))
    for candidate in (octets, whole[:at] + octets + whole[at + len(octets) :]):
        try:
            found = split(candidate)
            decode_header(found)
            decode_properties(found)
            decode_application_properties(found)
        except Refusal as refusal:
            known = refusal.rule in (Rule.MALFORMED_AMQP, Rule.FIELD_TYPE, Rule.LIMIT_EXCEEDED)
            assert known
