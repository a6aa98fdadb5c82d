"""One line for an operator: what holds a message up, and who must act."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.delivery import (
    Decision,
    Event,
    Occurrence,
    Side,
    begin,
    decide,
)
from gridpost.core.explanation import Actor, Ahead, Facts, LineFacts, explain
from gridpost.core.identifiers import ComponentCode, new_message_id
from gridpost.core.message_path import DIRECT, Route
from support.builders import NOW

B1 = Route(ComponentCode("B1"))
UP = LineFacts("B1", True, True)


def facts(*events: Occurrence, side: Side = Side.SENT, later: timedelta | None = None, **more):  # type: ignore[no-untyped-def]
    delivery = begin(side, new_message_id(), NOW + timedelta(hours=1), NOW)
    trace = []
    at = NOW + (later or timedelta(0))
    for occurrence in events:
        decision: Decision = decide(delivery, occurrence, at)
        delivery = decision.delivery
        trace.append(decision.entry)
    values = {"route": B1, "line": UP} | more
    return Facts(
        at, delivery, sender="E1", recipient="E2", message_type="A01", trace=trace, **values
    )


def happened(*events: Event, detail: str = "") -> list[Occurrence]:
    return [Occurrence(event, detail) for event in events]


ACCEPT, SENT = Event.ACCEPT, Event.TRANSFERRED
DONE = (ACCEPT, SENT, Event.DELIVERY_ACKNOWLEDGED)


@pytest.mark.parametrize(
    ("given", "actor", "words"),
    [
        (facts(*happened(ACCEPT)), Actor.NOBODY, "about to begin"),
        (
            facts(*happened(ACCEPT), line=LineFacts("B1", False, False, "connection refused")),
            Actor.BROKER,
            "B1 cannot be reached: connection refused",
        ),
        (
            facts(*happened(ACCEPT), route=DIRECT, line=LineFacts("E2", False, False, "down")),
            Actor.RECIPIENT,
            "E2 cannot be reached",
        ),
        (
            facts(*happened(ACCEPT), own_certificate_problem="no valid signing certificate"),
            Actor.US,
            "no valid signing certificate",
        ),
        (facts(*happened(ACCEPT), directory_lapsed=True), Actor.DIRECTORY, "has lapsed"),
        (
            facts(*happened(ACCEPT), not_acceptable="E2 has no message-path"),
            Actor.RECIPIENT,
            "E2 has no message-path",
        ),
        (
            facts(
                *happened(ACCEPT),
                *happened(Event.TRANSFER_FAILED, detail="B1 rejected the message"),
            ),
            Actor.BROKER,
            "B1 rejected the message",
        ),
        (
            facts(*happened(ACCEPT), ahead=Ahead("M1", "B1 is full", Actor.BROKER)),
            Actor.BROKER,
            "keeps its order behind M1: B1 is full",
        ),
        (facts(*happened(ACCEPT, SENT)), Actor.RECIPIENT, "has not fetched"),
        (facts(*happened(*DONE)), Actor.RECIPIENT_APPLICATION, "none of its applications"),
        (facts(*happened(*DONE, Event.RECEIVE_ACKNOWLEDGED)), Actor.NOBODY, "done"),
        (
            facts(
                *happened(ACCEPT, SENT),
                *happened(Event.FAILURE_ACKNOWLEDGED, detail="VALIDATION_ERROR: seal"),
            ),
            Actor.RECIPIENT,
            "refused the message: VALIDATION_ERROR",
        ),
        (
            facts(*happened(ACCEPT, Event.EXPIRE), later=timedelta(hours=2)),
            Actor.BROKER,
            "expired before it could be transferred",
        ),
        (
            facts(*happened(ACCEPT, SENT, Event.EXPIRE), later=timedelta(hours=2)),
            Actor.RECIPIENT,
            "did not acknowledge it in time",
        ),
        (
            facts(*happened(Event.VERIFIED), side=Side.RECEIVED),
            Actor.APPLICATION,
            "waits for an application",
        ),
        (
            facts(*happened(Event.VERIFIED, Event.CONFIRM), side=Side.RECEIVED),
            Actor.NOBODY,
            "done",
        ),
        (
            facts(*happened(Event.ACCEPT_TRACING, SENT, Event.TRACING_ACKNOWLEDGED)),
            Actor.NOBODY,
            "answers on this route",
        ),
    ],
)
def test_the_first_thing_that_holds_it_up_is_named(given: Facts, actor: Actor, words: str) -> None:
    found = explain(given)
    assert words in found.summary
    assert found.actor is actor
    assert "\n" not in found.summary


def test_what_waits_for_the_signing_device_is_for_the_operator_of_this_endpoint() -> None:
    failing = [
        *happened(Event.VERIFY),
        Occurrence(Event.TRANSFER_FAILED, "the token 'x' is not there"),
    ]
    sent = explain(facts(*failing, device_away="the token 'x' is not there"))
    assert sent.summary == "waits for the signing device: the token 'x' is not there"
    assert sent.actor is Actor.US
    received = facts(*happened(Event.VERIFIED), side=Side.RECEIVED, device_away="no token")
    assert explain(received).summary.endswith(
        "; its acknowledgement waits for the signing device: no token"
    )
    assert explain(received).actor is Actor.US
    assert ("signature", False) in [(s.name, s.good) for s in explain(received).steps]


def test_a_message_that_waits_for_long_is_not_said_to_be_about_to_leave() -> None:
    accepted = facts(*happened(ACCEPT))
    assert explain(accepted).actor is Actor.NOBODY
    later = explain(replace(accepted, now=NOW + timedelta(minutes=5)))
    assert later.actor is Actor.US
    assert f"since {NOW:%Y-%m-%dT%H:%M:%SZ}" in later.summary


def test_the_steps_follow_the_way_of_the_message() -> None:
    names = [step.name for step in explain(facts(*happened(ACCEPT))).steps]
    assert names == ["route", "certificates", "connection", "queue", "acknowledgement", "expiry"]


@pytest.mark.parametrize("event", sorted(set(Event) - {Event.EXPIRE}))
def test_every_state_of_a_sent_message_has_an_explanation(event: Event) -> None:
    try:
        given = facts(*happened(ACCEPT, event))
    except Exception:
        return
    assert explain(given).summary
