"""What is written is read back, and what is read is written back: nothing of an envelope is lost."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from gridpost.core.envelope import NAMESPACE
from gridpost.envelope import (
    AnyMessage,
    EventMessage,
    Fragment,
    Identifier,
    IdKind,
    Level,
    Pair,
    Refusal,
    RequestMessage,
    ResponseMessage,
    Result,
    Rule,
    User,
    Verb,
    decode,
    decode_unchecked,
    encode,
    encode_unchecked,
    unpacked,
    xml_payload,
)
from gridpost.wire.envelope import reading, schema
from support.envelopes import (
    ALL_HEADER_FIELDS,
    CORRELATION,
    ENVELOPES,
    EXAMPLES,
    FIGURE_24,
    FIGURE_29,
    FIGURE_30,
    FIGURE_31,
    FIGURE_33,
    FIGURE_49,
    MESSAGE,
    OPERATION_SET,
    SWITCH_IDS,
    WWW,
)


@given(ENVELOPES)
@settings(max_examples=60, deadline=None)
@pytest.mark.req("100-A-af")
@pytest.mark.req("100-6.3.2-u")
@pytest.mark.req("100-6.12-a")
def test_every_envelope_comes_back_as_it_was(message: AnyMessage) -> None:
    written = encode_unchecked(message)
    assert decode_unchecked(written) == message
    root = etree.fromstring(written)
    assert root.tag == f"{{{NAMESPACE}}}{type(message).__name__}"
    assert all(etree.QName(e).namespace for e in root.iter("*"))


@pytest.mark.parametrize("text", EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.req("100-A-a")
def test_the_examples_of_the_standard_are_read_and_written_again(text: str) -> None:
    message = decode(text)
    again = encode(message)
    assert WWW.encode() not in again
    schema(NAMESPACE).read(again)
    assert decode(again) == message
    # Either namespace says the same.
    other = text.replace(WWW, MESSAGE) if WWW in text else text.replace(MESSAGE, WWW)
    assert decode(other) == message


_TEXTS = re.compile(r"(?<=>)[^<\s][^<]*")
_OTHERS = [
    "true", "0", "yes", "get", "update", "cancelled", "OK", "FATAL", "WARNING", "7", "a1", "",
    "2012-12-16T09:30:47+14:30", "2012-12-16T09:30:47-05:00", "2012-13-16T09:30:47Z",
    "2012-12-17T24:00:00Z", "20121216T093047Z", "2012-12-16", "2012-12-16T09:30:47",
    "x]]>y", "a&lt;b", "&#x1;", "\x01", " blank", "blank ", "\u00e9", "queue:x", "a\rb",
]  # fmt: skip
_REPLY = (
    f'<ResponseMessage xmlns="{MESSAGE}"><Header><Verb>reply</Verb><Noun>N</Noun><AckRequired>true'
    "</AckRequired><Property><Name>a</Name><Value>b</Value></Property></Header><Reply><Result>OK"
    "</Result><Error><code>1</code><level>FATAL</level><operationId>4</operationId></Error><ID>i</ID>"
    "<operationId>3</operationId></Reply></ResponseMessage>"
)


@given(
    st.sampled_from([_REPLY, ALL_HEADER_FIELDS, OPERATION_SET]),
    st.integers(0, 40),
    st.sampled_from(_OTHERS),
)
@settings(max_examples=150, deadline=None)
def test_a_form_that_was_seen_before_is_read_as_if_it_were_new(
    text: str, place: int, other: str
) -> None:
    decode(text)
    found = list(_TEXTS.finditer(text))
    chosen = found[place % len(found)]
    changed = (text[: chosen.start()] + other + text[chosen.end() :]).encode()

    def outcome(read: Callable[[bytes], AnyMessage]) -> object:
        try:
            return read(changed)
        except Refusal as refusal:
            return refusal.rule

    whole = outcome(lambda data: reading._decode(data, data, reading.DEFAULT_READING)[0])
    assert outcome(decode_unchecked) == whole
    assert outcome(decode_unchecked) == whole


@pytest.mark.req("100-6.3.2-f")
@pytest.mark.req("100-6.3.3-c")
@pytest.mark.req("100-6.3.2-b")
def test_every_field_of_a_header_is_there() -> None:
    message = decode(ALL_HEADER_FIELDS)
    assert isinstance(message, RequestMessage)
    header, request = message.header, message.request
    assert (header.verb, header.noun, header.revision) == (Verb.GET, "LoadForecast", "1")
    assert header.replay_detection is not None
    assert header.replay_detection.nonce == "dcd98b7102dd2f0e8b11d0f600bfb0c093"
    assert header.replay_detection.created.at.isoformat() == "2012-12-16T09:30:47+00:00"
    assert header.timestamp is not None
    assert header.timestamp.text == "2001-12-16T09:30:47.0Z"
    assert (header.context, header.source) == ("PRODUCTION", "EMS")
    assert (header.async_reply, header.ack_required) == (False, True)
    assert header.reply_address == "queue:EMS.ReplyQueue"
    assert header.user == User("Bob", "Scheduling")
    assert (header.message_id, header.correlation_id) == ("3432626", "3432626")
    assert header.comment == "Example message"
    assert header.properties == (Pair("timeout", "10"),)
    assert request is not None
    assert request.end_time is not None
    assert request.end_time.at.isoformat() == "2012-12-18T00:00:00+00:00"


@pytest.mark.req("100-6.3.3-g", component="envelope")
def test_ids_without_a_kind_are_mrids() -> None:
    message = decode(FIGURE_24)
    assert isinstance(message, RequestMessage)
    assert message.request is not None
    assert [i.value for i in message.request.ids] == list(SWITCH_IDS)
    assert {i.kind for i in message.request.ids} == {None}
    assert {i.effective_kind for i in message.request.ids} == {IdKind.UUID}
    with pytest.raises(Refusal) as refused:
        decode(FIGURE_24.replace("<ns0:ID>", '<ns0:ID kind="foo">'))
    assert refused.value.rule is Rule.SCHEMA_INVALID


@pytest.mark.req("100-6.3.4-a", component="envelope")
def test_a_reply_without_an_error_is_a_success() -> None:
    message = decode(FIGURE_29)
    assert isinstance(message, ResponseMessage)
    assert message.header.correlation_id == CORRELATION
    assert message.reply.result is Result.OK
    assert message.payload is not None
    assert message.payload.content[0].local_name == "Switches"


def test_a_compressed_example_is_an_envelope_though_its_content_is_made_up() -> None:
    message = decode(FIGURE_30)
    assert isinstance(message, ResponseMessage)
    assert message.payload is not None
    assert message.payload.format == "XML"
    with pytest.raises(Refusal) as refused:
        unpacked(message.payload)
    assert refused.value.rule is Rule.ENVELOPE_COMPRESSION


@pytest.mark.req("100-6.3.4-f", component="envelope")
def test_a_failed_reply_may_come_with_data_and_a_warning() -> None:
    message = decode(FIGURE_31)
    assert isinstance(message, ResponseMessage)
    (error,) = message.reply.errors
    assert (message.reply.result, error.code, error.level) == (
        Result.FAILED,
        "2.15",
        Level.WARNING,
    )
    assert error.details == f"Unknown object: {SWITCH_IDS[1]}"
    assert message.payload is not None
    assert message.payload.content


def test_an_event_and_a_bare_payload_are_read() -> None:
    message = decode(FIGURE_33)
    assert isinstance(message, EventMessage)
    assert message.header.verb is Verb.CHANGED
    content = xml_payload(FIGURE_49).content[0]
    assert (content.namespace, content.local_name) == (
        "http://www.iec.ch/TC57/2011/CIM-schema-cim12#",
        "Switches",
    )


@pytest.mark.req("100-6.10.4-a", component="envelope")
def test_the_set_of_operations_is_read() -> None:
    message = decode(OPERATION_SET)
    assert isinstance(message, RequestMessage)
    assert message.payload is not None
    operations = message.payload.operation_set
    assert operations is not None
    assert (operations.enforce_sequence, operations.enforce_integrity) == (True, True)
    assert [(o.operation_id, o.noun, o.verb) for o in operations.operations] == [
        (1, "MeterConfig", "create"),
        (2, "UsagePointConfig", "create"),
        (3, "MasterDataLinkageConfig", "create"),
    ]
    assert message.header.revision == "2.0"


def test_prefixes_that_only_values_use_survive() -> None:
    text = ALL_HEADER_FIELDS.replace(
        "</Header>",
        '<x:Kind xmlns:x="urn:x" xmlns:q="urn:q" of="q:thing">q:other</x:Kind></Header>',
    )
    message = decode(encode(decode(text)))
    assert isinstance(message, RequestMessage)
    (extension,) = message.header.extensions
    assert isinstance(extension, Fragment)
    assert extension.element.nsmap["q"] == "urn:q"


def test_all_attributes_of_an_id_survive() -> None:
    full = Identifier("C34531", IdKind.NAME, "MeterBadgeNumber", "UtilityXYZ", "Meter")
    text = FIGURE_24.replace(
        f"<ns0:ID>{SWITCH_IDS[0]}</ns0:ID>",
        '<ns0:ID kind="name" idType="MeterBadgeNumber" idAuthority="UtilityXYZ"'
        ' objectType="Meter">C34531</ns0:ID>',
    )
    message = decode(encode(decode(text)))
    assert isinstance(message, RequestMessage)
    assert message.request is not None
    assert message.request.ids[0] == full
