"""The catalogue of rules."""

import pytest

from gridpost.core.refusal import Code, Fault, Refusal, Rule


def test_every_rule_stands_for_itself() -> None:
    assert len({rule.value for rule in Rule}) == len(Rule.__members__)


@pytest.mark.parametrize("rule", list(Rule))
def test_every_rule_says_where_it_stands_and_who_must_act(rule: Rule) -> None:
    assert rule.clause.strip()
    assert isinstance(rule.code, Code)
    assert isinstance(rule.fault, Fault)
    assert isinstance(rule.retryable, bool)


def test_a_refusal_has_an_identity_of_its_own() -> None:
    first = Refusal(Rule.BUSY, "later", "queue full")
    second = Refusal(Rule.BUSY, "later")
    assert first.id != second.id
    assert (first.code, first.fault, first.retryable) == (
        Code.CONCURRENT_ERROR,
        Fault.OURSELVES,
        True,
    )
    assert "BUSY" in repr(first)
    assert first.id in repr(first)
