"""503 cl. 6.5.1: the body has everything, some of it is repeated for brokers, and the two must agree."""

from __future__ import annotations

import pytest

from gridpost.core.message import InternalType
from gridpost.core.refusal import Rule
from gridpost.wire.amqp.sections import split
from gridpost.wire.mades.amqp_message import decode, encode, read_fields
from support.amqp import build, rule_of, with_application, with_properties
from support.samples import NOW, internal_message, sealed, standard_message


@pytest.mark.req("503-6.5.1-a")
@pytest.mark.parametrize("kind", InternalType)
def test_the_body_holds_content_and_all_metadata_and_the_fields_repeat_a_part(
    kind: InternalType,
) -> None:
    message = sealed(internal_message(kind))
    received = decode(encode(message, None, NOW))
    assert received.message == message
    fields, signed = received.fields, message.metadata
    assert (fields.message_id, fields.subject) == (signed.message_id, signed.message_type)
    assert (fields.sender_code, fields.receiver_code) == (signed.sender_code, signed.receiver_code)
    assert (fields.internal_type, fields.mversion) == (signed.internal_type, 2)
    assert (fields.generated, fields.absolute_expiry) == (signed.generated, signed.expiration_time)
    assert fields.correlation_id == signed.related_message_id
    assert fields.sender_application == signed.sender_application
    assert fields.ba_message_id == signed.ba_message_id


@pytest.mark.req("503-6.5.1-a")
@pytest.mark.parametrize(
    "octets",
    [
        with_application({"messageID": "11111111-2222-4333-8444-555555555555"}),
        with_application({"receiverCode": "E9"}),
        with_application({"senderCode": "E9"}),
        with_properties(subject="BP1-B"),
    ],
)
def test_a_message_whose_two_copies_disagree_is_refused_by_the_recipient(octets: bytes) -> None:
    assert rule_of(octets) is Rule.FIELDS_DISAGREE


@pytest.mark.req("503-6.5.1-b")
@pytest.mark.parametrize("garbage", ["", "garbage", "<a", "\x00", "<!DOCTYPE a><a/>"])
def test_what_a_broker_looks_at_does_not_depend_on_the_metadata_in_the_body(garbage: str) -> None:
    octets = build(body=(garbage, b"content"))
    sections = split(octets)
    assert read_fields(sections) == read_fields(split(build()))
    assert read_fields(sections).receiver_code == standard_message().receiver_code
    # What it passes on is what came.
    assert octets.endswith(bytes(sections.after_header))
    assert bytes(sections.body[0].value) in bytes(sections.after_header)
