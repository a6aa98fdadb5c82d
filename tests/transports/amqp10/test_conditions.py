"""Refusals as AMQP says them, and limits that contradict each other."""

from __future__ import annotations

import pytest

from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10 import AmqpLimits, render
from gridpost.transports.amqp10.limits import Ledger


@pytest.mark.parametrize("rule", list(Rule))
def test_every_rule_has_a_condition_and_its_id_in_the_description(rule: Rule) -> None:
    refusal = Refusal(rule, "because")
    condition, description = render(refusal)
    assert condition.startswith("amqp:")
    assert description == f"because [{rule.name} {refusal.id}]"


@pytest.mark.parametrize(
    ("rule", "condition"),
    [
        (Rule.PEER_UNKNOWN, "amqp:unauthorized-access"),
        (Rule.SENDER_NOT_CONNECTED_PEER, "amqp:unauthorized-access"),
        (Rule.RECEIVER_NOT_QUEUE, "amqp:invalid-field"),
        (Rule.FIELD_MISSING, "amqp:invalid-field"),
        (Rule.MALFORMED_AMQP, "amqp:decode-error"),
        (Rule.STORE_FULL, "amqp:resource-limit-exceeded"),
        (Rule.INTERNAL, "amqp:internal-error"),
        (Rule.STOPPING, "amqp:connection:forced"),
    ],
)
def test_what_peers_act_on(rule: Rule, condition: str) -> None:
    assert render(Refusal(rule, ""))[0] == condition


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_message_size": 200 * 1024 * 1024},
        {"max_incoming_octets": 2**40},
        {"max_frame_size": 100},
        {"session_window": 100},
        {"max_sessions": 0},
        {"credit": 0},
    ],
)
def test_limits_that_cannot_be_kept_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"max_|credit"):
        AmqpLimits(**wrong)  # type: ignore[arg-type]


def test_a_ledger_counts_in_the_one_above() -> None:
    total = Ledger(100)
    one, two = Ledger(80, total), Ledger(80, total)
    one.add(70)
    assert not one.fits(11)
    assert two.fits(30)
    assert not two.fits(31)
    one.add(-70)
    assert two.fits(80)
