"""Acknowledgements: composed from their original, judged by who sent them and how they came."""

import base64
from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.acknowledgement import (
    ORIGINALS,
    Original,
    acknowledged_fingerprint,
    compose,
    fingerprint_content,
    judge,
)
from gridpost.core.delivery import Event, Occurrence
from gridpost.core.identifiers import ComponentCode, MessageType, new_message_id
from gridpost.core.message import InternalMessage, InternalType
from gridpost.core.message_path import DIRECT, Route
from gridpost.core.refusal import Refusal, Rule
from support.builders import NOW, metadata

BY_B1 = Route(ComponentCode("B1"))
FINGERPRINT = bytes(range(64))
STANDARD = InternalType.STANDARD_MESSAGE
TRACING = InternalType.TRACING_MESSAGE
DELIVERY = InternalType.DELIVERY_ACKNOWLEDGEMENT
RECEIVE = InternalType.RECEIVE_ACKNOWLEDGEMENT
FAILURE = InternalType.FAILURE_ACKNOWLEDGEMENT
TRACED = InternalType.TRACING_ACKNOWLEDGEMENT


def original(kind: InternalType = STANDARD) -> Original:
    return Original(metadata(kind), BY_B1, FINGERPRINT)


def answer(
    kind: InternalType, to: Original, content: bytes = b"done", **changed: object
) -> InternalMessage:
    message = compose(kind, to.metadata, content, message_id=new_message_id(), now=NOW)
    return replace(message, metadata=replace(message.metadata, **changed))  # type: ignore[arg-type]


def judged(
    message: InternalMessage,
    to: Original,
    *,
    came_by: Route = BY_B1,
    unverified: Refusal | None = None,
    after: timedelta = timedelta(0),
) -> Occurrence:
    return judge(message, to, came_by=came_by, unverified=unverified, now=NOW + after)


@pytest.mark.req("503-5.6.2-e")
@pytest.mark.req("503-5.6.2-f")
@pytest.mark.req("503-5.7-e")
@pytest.mark.parametrize("kind", sorted(ORIGINALS))
def test_an_acknowledgement_repeats_what_its_original_fixes(kind: InternalType) -> None:
    for of in ORIGINALS[kind]:
        first = metadata(of)
        made = compose(kind, first, b"x", message_id=new_message_id(), now=NOW).metadata
        assert made.related_message_id == first.message_id
        assert made.message_id != first.message_id
        assert made.message_type == first.message_type
        assert made.expiration_time is first.expiration_time
        assert (made.sender_code, made.receiver_code) == (first.receiver_code, first.sender_code)
        assert made.message_mversion == first.message_mversion
        assert (made.extension, made.ba_message_id, made.sender_application) == ("", "", "")


@pytest.mark.req("m11-4.1.4-d")
def test_it_is_composed_in_the_version_of_its_original() -> None:
    old = replace(metadata(), message_mversion=1)
    assert (
        compose(RECEIVE, old, b"x", message_id=new_message_id(), now=NOW).metadata.message_mversion
        == 1
    )


@pytest.mark.req("503-T12-b")
@pytest.mark.parametrize("kind", sorted(ORIGINALS))
@pytest.mark.parametrize("of", sorted(InternalType))
def test_each_kind_answers_only_what_table_12_allows(kind: InternalType, of: InternalType) -> None:
    if of in ORIGINALS[kind]:
        assert compose(kind, metadata(of), b"x", message_id=new_message_id(), now=NOW)
    else:
        with pytest.raises(ValueError, match="never answers"):
            compose(kind, metadata(of), b"x", message_id=new_message_id(), now=NOW)


def test_an_acknowledgement_is_never_composed_empty() -> None:
    with pytest.raises(ValueError, match="never empty"):
        compose(RECEIVE, metadata(), b"", message_id=new_message_id(), now=NOW)


@pytest.mark.req("503-T1-c")
def test_the_fingerprint_is_emitted_as_base64_text() -> None:
    assert fingerprint_content(FINGERPRINT) == base64.b64encode(FINGERPRINT)


@pytest.mark.req("503-T1-d")
@pytest.mark.parametrize(
    "form",
    [
        base64.b64encode(FINGERPRINT),
        base64.encodebytes(FINGERPRINT),
        FINGERPRINT.hex().encode(),
        FINGERPRINT.hex().upper().encode() + b"\n",
        FINGERPRINT,
    ],
)
def test_the_fingerprint_is_read_as_base64_hex_or_bytes(form: bytes) -> None:
    assert acknowledged_fingerprint(form) == FINGERPRINT
    assert judged(answer(DELIVERY, o := original(), form), o).event is Event.DELIVERY_ACKNOWLEDGED


@pytest.mark.req("503-T1-d")
@pytest.mark.req("503-T1-e")
@pytest.mark.parametrize(
    "content", [b"x", b"z" * 128, b"!" * 88, base64.b64encode(b"short"), bytes(64), b"=" * 3]
)
def test_any_other_content_is_another_document(content: bytes) -> None:
    assert judged(answer(DELIVERY, o := original(), content), o).event is Event.FINGERPRINT_DIFFERS


def test_each_kind_is_the_event_it_stands_for() -> None:
    o, t = original(), original(TRACING)
    assert judged(answer(RECEIVE, o), o).event is Event.RECEIVE_ACKNOWLEDGED
    assert judged(answer(TRACED, t), t).event is Event.TRACING_ACKNOWLEDGED
    failed = judged(answer(FAILURE, o, b" bad seal \n"), o)
    assert failed == Occurrence(Event.FAILURE_ACKNOWLEDGED, "bad seal", failed.acknowledgement_id)
    assert judged(answer(FAILURE, t, b"\xff\xfe"), t).event is Event.FAILURE_ACKNOWLEDGED
    assert "no reason" in judged(answer(FAILURE, o, b" "), o).detail


def refused(occurrence: Occurrence, rule: Rule) -> bool:
    return (
        occurrence.event is Event.ACKNOWLEDGEMENT_REFUSED
        and occurrence.detail.startswith(rule.name)
        and occurrence.acknowledgement_id != ""
    )


def test_only_the_recipient_by_the_original_route_counts() -> None:
    o = original()
    wrong_party = Rule.ACKNOWLEDGEMENT_WRONG_PARTY
    assert refused(judged(answer(RECEIVE, o, sender_code=ComponentCode("E9")), o), wrong_party)
    assert refused(judged(answer(RECEIVE, o, receiver_code=ComponentCode("E9")), o), wrong_party)
    wrong_route = Rule.ACKNOWLEDGEMENT_WRONG_ROUTE
    assert refused(judged(answer(RECEIVE, o), o, came_by=DIRECT), wrong_route)
    assert refused(judged(answer(RECEIVE, o), o, came_by=Route(ComponentCode("B2"))), wrong_route)
    form = Rule.ACKNOWLEDGEMENT_FORM
    assert refused(judged(answer(RECEIVE, o, message_type=MessageType("OTHER")), o), form)
    assert refused(judged(answer(RECEIVE, o, internal_type=TRACED), o), form)


def test_an_unverified_or_empty_acknowledgement_changes_nothing() -> None:
    o = original()
    message = answer(DELIVERY, o, fingerprint_content(FINGERPRINT))
    why = Refusal(Rule.SEAL_SIGNATURE_VALUE, "the signature is not of E2")
    occurrence = judged(message, o, unverified=why)
    assert refused(occurrence, Rule.ACKNOWLEDGEMENT_UNVERIFIED)
    assert "not of E2" in occurrence.detail
    for kind in (DELIVERY, RECEIVE):
        empty = replace(answer(kind, o), content=b"")
        assert refused(judged(empty, o), Rule.ACKNOWLEDGEMENT_FORM)


def test_an_acknowledgement_that_comes_after_the_expiration_is_ignored() -> None:
    o = original()
    late = judged(answer(RECEIVE, o), o, after=timedelta(hours=1))
    assert late.event is Event.ACKNOWLEDGEMENT_EXPIRED
    just = judged(answer(RECEIVE, o), o, after=timedelta(hours=1) - timedelta(microseconds=1))
    assert just.event is Event.RECEIVE_ACKNOWLEDGED
