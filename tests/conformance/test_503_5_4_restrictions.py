"""503 cl. 5.4: what a broker lets pass, for whom, and what that does to routes."""

from __future__ import annotations

import pytest

from gridpost.core.amqp_access import BrokerAccess
from gridpost.core.identifiers import (
    ComponentCode,
    MessageTypePattern,
)
from gridpost.core.message_path import Restriction
from gridpost.core.refusal import Refusal, Rule
from support.accepting import B1, E2, outcome
from support.builders import (
    NOW,
    broker,
    directory,
    endpoint,
    path,
)


@pytest.mark.req("503-5.4-h")
def test_a_restriction_blocks_a_route_and_never_diverts_to_another_broker() -> None:
    recipient = endpoint("E2", path("BP1-A", "INDIRECT:B1"), path("*", "INDIRECT:B2"))
    assert outcome(recipient, B1, broker("B2")) == "INDIRECT:B1"
    closed = broker("B1", message_types=("OTHER",))
    assert outcome(recipient, closed, broker("B2")) == "BROKER_REFUSES_MESSAGE_TYPE"


def produced(restriction: Restriction, *, client: str = "E1", subject: str = "BP1-A") -> str:
    """How a broker answers a message of `client` to E2."""
    known = directory(endpoint("E1"), endpoint("E2"), endpoint("E3"))
    try:
        BrokerAccess(restriction).produce(
            known,
            client,
            "E2",
            sender_code=client,
            receiver_code="E2",
            subject=subject,
            at=NOW,
        )
    except Refusal as refusal:
        return refusal.rule.name
    return "accepted"


def restricted(
    components: tuple[str, ...] = (), message_types: tuple[str, ...] = ()
) -> Restriction:
    return Restriction(
        frozenset(ComponentCode(c) for c in components),
        tuple(MessageTypePattern(t) for t in message_types),
    )


@pytest.mark.req("503-5.4-a")
@pytest.mark.req("503-5.4-f")
def test_a_broker_admits_the_listed_endpoints_only() -> None:
    known = directory(endpoint("E1"), endpoint("E2"), endpoint("E3"))
    both = BrokerAccess(restricted(("E1", "E2")))
    assert both.connect(known, "E1", NOW).code == "E1"
    with pytest.raises(Refusal) as caught:
        both.connect(known, "E3", NOW)
    assert caught.value.rule is Rule.PEER_NOT_ALLOWED
    with pytest.raises(Refusal):
        BrokerAccess(restricted(("E2",))).connect(known, "E1", NOW)


@pytest.mark.req("503-5.4-b")
@pytest.mark.req("503-5.4-g")
def test_a_broker_lets_the_listed_message_types_pass_only() -> None:
    """The rule sees fields, not kinds: an acknowledgement carries the type of its original."""
    assert produced(restricted(message_types=("BP1-A",))) == "accepted"
    assert produced(restricted(message_types=("BP2",))) == "MESSAGE_TYPE_NOT_ALLOWED"


@pytest.mark.req("503-5.4-d", component="broker")
@pytest.mark.req("503-5.4-d", component="endpoint")
def test_an_empty_list_allows_all_while_the_other_still_restricts() -> None:
    assert produced(restricted()) == "accepted"
    assert produced(restricted(message_types=("X",))) == "MESSAGE_TYPE_NOT_ALLOWED"
    assert produced(restricted(components=("E1", "E2"))) == "accepted"
    assert produced(restricted(components=("E1", "E2")), client="E3") == "PEER_NOT_ALLOWED"
    assert outcome(E2, broker("B1", message_types=("BP1-A",))) == "INDIRECT:B1"
    assert outcome(E2, broker("B1", components=("E3",))) == "BROKER_REFUSES_SENDER"
    assert outcome(E2, broker("B1")) == "INDIRECT:B1"


@pytest.mark.req("503-5.4-e", component="broker")
@pytest.mark.req("503-5.4-e", component="endpoint")
def test_a_restricted_message_type_may_end_with_a_wildcard() -> None:
    assert produced(restricted(message_types=("BP1*",))) == "accepted"
    assert produced(restricted(message_types=("BP1*",)), subject="BP2-A") != "accepted"
    assert outcome(E2, broker("B1", message_types=("BP1*",))) == "INDIRECT:B1"
    assert outcome(E2, broker("B1", message_types=("BP2*",))) == "BROKER_REFUSES_MESSAGE_TYPE"
