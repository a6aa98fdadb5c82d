"""Which binding holds for a message-type, and who an application is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.channels import Binding, Bindings, Channel, Origin, Receiving, covers, meet
from gridpost.core.identifiers import MessageTypePattern, matches
from gridpost.core.refusal import Refusal, Rule

patterns = st.from_regex(r"\A[AB]{0,3}\\*\Z|\A[AB]{1,3}\Z")
types = st.from_regex(r"\A[AB]{1,4}\Z")


def bindings(*patterns: str) -> Bindings:
    return Bindings(Binding(MessageTypePattern(p), Receiving.FOLDER) for p in patterns)


@pytest.mark.parametrize(
    ("message_type", "bound"),
    [("AB", "AB"), ("ABC", "AB*"), ("AC", "A*"), ("A", "A*"), ("B", "*")],
)
def test_the_identical_type_beats_the_longest_pattern(message_type: str, bound: str) -> None:
    assert bindings("A*", "AB*", "AB").of(message_type).pattern == bound


def test_what_nobody_bound_is_pulled_by_everybody() -> None:
    binding = Bindings().of("ANY")
    assert binding.channel is Receiving.PULL
    assert binding.admits("whoever")


def test_a_type_that_is_bound_twice_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        bindings("A*", "B", "A*")
    assert refused.value.rule is Rule.INCONSISTENT_CONFIGURATION


def test_a_binding_names_its_users() -> None:
    binding = Binding(MessageTypePattern("A"), Receiving.PULL, ("erp",))
    assert binding.admits("erp")
    assert not binding.admits("other")


@given(patterns, patterns, types)
def test_wide_patterns_cover_and_patterns_meet_as_their_types_say(a: str, b: str, t: str) -> None:
    if covers(a, b) and matches(b, t):
        assert matches(a, t)
    if matches(a, t) and matches(b, t):
        assert meet(a, b)


@given(st.sets(patterns, max_size=5), patterns, types)
def test_every_type_of_a_pattern_is_in_a_part_with_its_binding(
    bound: set[str], pattern: str, message_type: str
) -> None:
    found = bindings(*bound)
    if matches(pattern, message_type):
        parts = [b for p, b in found.within(pattern) if matches(p, message_type)]
        assert found.of(message_type) in parts


@pytest.mark.parametrize("channel", list(Channel))
def test_an_origin_is_read_back_from_its_text(channel: Channel) -> None:
    origin = Origin(channel, "erp/7")
    assert Origin.parse(str(origin)) == origin


def test_other_texts_are_no_origin() -> None:
    assert Origin.parse("") is None
    assert Origin.parse("fax/erp") is None


def test_soap_and_json_pull_together() -> None:
    assert Channel.SOAP.receiving is Channel.JSON.receiving is Receiving.PULL
