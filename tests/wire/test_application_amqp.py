"""Messages between an endpoint and its applications."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.amqp.codec import encode
from gridpost.wire.amqp.sections import Properties, encode_properties
from gridpost.wire.amqp.types import Map, ULong, Value
from gridpost.wire.application_amqp import (
    OutboxMessage,
    Reference,
    count_deliveries,
    parse_reference,
    read_any,
    read_outbox,
    write_event,
    write_inbox,
    write_outbox,
    write_reference,
    write_reply,
)
from support.builders import metadata

correlation = st.one_of(
    st.none(),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.uuids(),
    st.integers(0, 2**64 - 1).map(ULong),
)


def outbox(properties: dict[str, Value], body: bytes, message_id: Value = None) -> bytes:
    return (
        encode_properties(Properties(message_id=message_id))
        + b"\x00\x53\x74"
        + encode(Map(tuple(properties.items())))
        + body
    )


def wanted(data: bytes) -> OutboxMessage:
    _, message = read_outbox(data)
    assert isinstance(message, OutboxMessage)
    return message


DATA = b"\x00\x53\x75" + encode(b"x")
GOOD: dict[str, Value] = {"receiverCode": "E2", "messageType": "A"}


@given(st.binary(min_size=1, max_size=500), st.text(max_size=20), st.text(max_size=20))
def test_what_is_written_is_read(content: bytes, ba_id: str, conversation: str) -> None:
    message = OutboxMessage("E2", "A", content, ba_id, "APP", False, conversation)
    assert read_outbox(write_outbox(message)) == (Reference(None, ba_id), message)


@given(correlation, st.text(max_size=20))
def test_a_correlation_id_of_any_type_comes_back(value: Value, ba_id: str) -> None:
    reference = Reference(value, ba_id, ("a", "b", "c", "d"))
    assert parse_reference(write_reference(reference)) == reference
    found = read_any(write_event("ACCEPTED", "m", reference))
    assert found.properties.correlation_id == value
    assert found.application_properties == {"messageID": "m", "baMessageID": ba_id}
    assert found.body == "ACCEPTED"
    sent = write_outbox(OutboxMessage("E2", "A", b"x", ba_id), value)
    assert read_outbox(sent)[0] == Reference(value, ba_id)


def test_a_reply_has_the_message_id_or_the_error() -> None:
    assert read_any(write_reply("m", Reference())).application_properties == {"messageID": "m"}
    failed = read_any(write_reply("", Reference(error=("C", "I", "M", "D"))))
    assert failed.application_properties == {
        "errorCode": "C", "errorID": "I", "errorMessage": "M", "errorDetails": "D",
    }  # fmt: skip


def test_a_document_keeps_its_octets_when_it_is_delivered_again() -> None:
    head, content = write_inbox(metadata(), b"document")
    again = count_deliveries(head, 3)
    assert read_any(again + content).body == b"document"
    assert again[-20:] == head[-20:]


@pytest.mark.parametrize(
    ("message_id", "expected"),
    [
        ("id", "id"),
        (ULong(5), "ulong:5"),
        (b"\x01", "binary:01"),
        (UUID(int=1), "uuid:00000000-0000-0000-0000-000000000001"),
        (None, ""),
    ],
)
def test_the_message_id_stands_in_for_a_conversation(message_id: Value, expected: str) -> None:
    assert wanted(outbox(GOOD, DATA, message_id)).conversation_id == expected
    named = wanted(outbox({**GOOD, "conversationID": "c"}, DATA, message_id))
    assert named.conversation_id == "c"


@pytest.mark.parametrize("flag", [True, "true", "TRUE"])
def test_a_trace_needs_no_document(flag: Value) -> None:
    body = b"\x00\x53\x77\x40"
    assert wanted(outbox({**GOOD, "isTracingMessage": flag}, body)).is_tracing


@pytest.mark.parametrize(
    ("properties", "body"),
    [
        ({"messageType": "A"}, DATA),
        ({"receiverCode": "E2"}, DATA),
        ({**GOOD, "businessType": "B"}, DATA),
        ({**GOOD, "baMessageID": ULong(1)}, DATA),
        ({**GOOD, "isTracingMessage": "perhaps"}, DATA),
        ({**GOOD, "conversationID": "x" * 1025}, DATA),
        (GOOD, b""),
        (GOOD, DATA + DATA),
        (GOOD, b"\x00\x53\x77" + encode("text")),
    ],
)
def test_what_cannot_be_sent_is_refused_with_the_reason(
    properties: dict[str, Value], body: bytes
) -> None:
    _, refused = read_outbox(outbox(properties, body))
    assert isinstance(refused, Refusal)
    assert refused.rule is Rule.BAD_PROPERTY


def test_a_message_with_a_broken_body_can_still_be_answered() -> None:
    broken = write_outbox(OutboxMessage("E2", "A", b"x" * 50), "c")[:-10]
    reference, refused = read_outbox(broken)
    assert reference.correlation_id == "c"
    assert isinstance(refused, Refusal)


@given(st.binary(max_size=200))
def test_any_octets_are_read_or_refused(data: bytes) -> None:
    with suppress(Refusal):
        read_outbox(data)
