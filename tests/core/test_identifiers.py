"""Names are checked where they enter, and patterns match as 503 cl. 5.3 says."""

from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.identifiers import (
    application_id,
    clip,
    component_code,
    matches,
    message_id,
    message_type,
    message_type_pattern,
    new_message_id,
)
from gridpost.core.refusal import Code, Refusal, Rule

TYPES = st.from_regex(r"[A-Za-z0-9-]{1,12}", fullmatch=True)


@pytest.mark.parametrize("text", ["10XFR-RTE------Q", "A", "party@grid", "0-0"])
def test_component_codes_of_the_field_are_accepted(text: str) -> None:
    assert component_code(text) == text


@pytest.mark.parametrize("text", ["", "a b", "a/b", "../x", "é", "a\n", "x" * 256, "a*"])
def test_other_component_codes_are_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        component_code(text)
    assert caught.value.rule is Rule.BAD_COMPONENT_CODE
    assert caught.value.code is Code.INVALID_PARAMETERS
    assert "letters" in caught.value.message


@pytest.mark.parametrize("text", ["*", "A*", "ABC", "BP1-*"])
def test_a_pattern_is_a_message_type_with_at_most_one_final_wildcard(text: str) -> None:
    assert message_type_pattern(text) == text


@pytest.mark.parametrize("text", ["", "A*C", "**", "*A", "A B*", "x" * 300])
def test_other_patterns_are_refused(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        message_type_pattern(text)
    assert caught.value.rule is Rule.BAD_MESSAGE_TYPE_PATTERN


@given(TYPES, TYPES)
def test_a_wildcard_matches_every_ending_and_nothing_shorter(stem: str, ending: str) -> None:
    assert matches(stem + "*", stem)
    assert matches(stem + "*", stem + ending)
    assert matches("*", stem)
    assert not matches(stem + ending + "*", stem)
    assert not matches(stem, stem + ending)


def test_application_identifiers_may_be_empty_but_not_strange() -> None:
    assert application_id("", "baMessageID") == ""
    assert application_id("A-1", "baMessageID") == "A-1"
    with pytest.raises(Refusal, match="baMessageID"):
        application_id("a_b", "baMessageID")
    with pytest.raises(Refusal):
        application_id("A-1", "baMessageID", strict=True)


def test_a_message_id_is_a_uuid_in_its_canonical_form() -> None:
    text = new_message_id()
    assert message_id(text) == text
    assert message_id(text.upper()) == text.upper()
    for bad in ("", "1", text.replace("-", ""), "{" + text + "}", "urn:uuid:" + text):
        with pytest.raises(Refusal) as caught:
            message_id(bad)
        assert caught.value.rule is Rule.BAD_MESSAGE_ID


def test_foreign_text_in_our_sentences_is_short_and_on_one_line() -> None:
    assert clip("a\nb\x00") == "a?b?"
    assert len(clip("x" * 10_000)) == 81


def test_strict_patterns_forbid_the_hyphen() -> None:
    assert message_type("BP1-A") == "BP1-A"
    with pytest.raises(Refusal):
        message_type("BP1-A", strict=True)
    assert message_type("BP1A", strict=True) == "BP1A"


@given(
    st.uuids().map(str)
    | st.uuids().map(lambda uuid: str(uuid).upper())
    | st.uuids().map(lambda uuid: uuid.hex)
    | st.uuids().map(lambda uuid: uuid.urn)
    | st.from_regex(r"\A[0-9a-fA-F_]{8}-[\w]{4}-[0-9a-f]{4}-[0-9a-f]{4}-\{?[0-9a-f]{12}\}?\n?\Z")
)
def test_a_message_id_is_the_canonical_text_of_a_uuid(text: str) -> None:
    try:
        canonical = str(UUID(text)) == text.lower()
    except ValueError:
        canonical = False
    if canonical:
        assert message_id(text) == text
    else:
        with pytest.raises(Refusal):
            message_id(text)


def test_new_message_ids_are_random_uuids() -> None:
    ids = [new_message_id() for _ in range(1_000)]
    assert len(set(ids)) == 1_000
    for text in ids:
        found = UUID(text)
        assert str(found) == text
        assert (found.version, found.variant) == (4, RFC_4122)
