"""The laws of the transition table: nothing undecided, nothing backwards, nothing forgotten."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.delivery import (
    FINAL_STATES,
    RECIPIENT_EVENTS,
    RECIPIENT_STATES,
    SENDER_EVENTS,
    SENDER_STATES,
    STATUS,
    TRANSITIONS,
    Delivery,
    Effect,
    Event,
    Occurrence,
    Side,
    State,
    Status,
    TraceEntry,
    begin,
    decide,
    final_since,
)
from gridpost.core.identifiers import new_message_id
from gridpost.core.refusal import Refusal, Rule
from support.builders import NOW

EXPIRY = NOW + timedelta(hours=1)
RANK = {Status.ACCEPTED: 0, Status.DELIVERED: 1, Status.RECEIVED: 2, Status.FAILED: 3}
FIRST_STATES = {State.SENDING, State.ARRIVING}
FIRST_EVENTS = {
    Event.VERIFY,
    Event.ACCEPT,
    Event.ACCEPT_TRACING,
    Event.VERIFIED,
    Event.VERIFIED_TRACING,
    Event.HOLD_BACK,
}


def possible(state: State, event: Event) -> bool:
    """Can this event reach a message in this state at all?"""
    if state in SENDER_STATES and event not in SENDER_EVENTS:
        return False
    if state in RECIPIENT_STATES and event not in RECIPIENT_EVENTS:
        return False
    if state is State.SENDING:
        return event in (Event.VERIFY, Event.ACCEPT, Event.ACCEPT_TRACING)
    if state is State.VERIFYING and event in (Event.ACCEPT, Event.ACCEPT_TRACING):
        return True
    if state is State.ARRIVING:
        return event in (
            Event.VERIFIED,
            Event.VERIFIED_TRACING,
            Event.HOLD_BACK,
            Event.REFUSE,
            Event.EXPIRE,
        )
    return event not in FIRST_EVENTS


def side_of(state: State) -> Side:
    return Side.SENT if state in SENDER_STATES else Side.RECEIVED


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("event", list(Event))
def test_every_pair_is_listed_or_cannot_happen(state: State, event: Event) -> None:
    assert ((state, event) in TRANSITIONS) == possible(state, event)
    if not possible(state, event):
        delivery = Delivery(side_of(state), new_message_id(), state, EXPIRY, NOW)
        with pytest.raises(ValueError, match="cannot happen"):
            decide(delivery, Occurrence(event), EXPIRY)


@pytest.mark.parametrize(("state", "event"), sorted(TRANSITIONS))
def test_no_transition_changes_side_or_leaves_a_final_state(state: State, event: Event) -> None:
    transition = TRANSITIONS[state, event]
    assert side_of(transition.state) is side_of(state)
    if state in FINAL_STATES:
        assert transition.state is state
    if transition.breach is not None:
        assert transition.state is state
        assert not transition.effects


@pytest.mark.parametrize(("state", "event"), sorted(TRANSITIONS))
def test_an_application_hears_of_a_status_exactly_when_it_changes(
    state: State, event: Event
) -> None:
    transition = TRANSITIONS[state, event]
    changed = STATUS.get(state) is not STATUS.get(transition.state)
    assert (Effect.TELL_APPLICATION in transition.effects) == changed


@given(
    st.sampled_from([Event.ACCEPT, Event.ACCEPT_TRACING, Event.VERIFIED, Event.VERIFIED_TRACING]),
    st.lists(st.tuples(st.sampled_from(list(Event)), st.integers(0, 7200)), max_size=30),
)
def test_status_never_moves_back_and_the_trace_loses_nothing(
    first: Event, later: list[tuple[Event, int]]
) -> None:
    side = Side.RECEIVED if first in RECIPIENT_EVENTS else Side.SENT
    delivery = begin(side, new_message_id(), EXPIRY, NOW)
    trace: list[TraceEntry] = []
    happened: list[Event] = []
    clock = NOW
    for event, seconds in [(first, 0), *later]:
        clock += timedelta(seconds=seconds)
        if not possible(delivery.state, event) or (event is Event.EXPIRE and clock < EXPIRY):
            continue
        before = delivery
        try:
            decision = decide(delivery, Occurrence(event, "why", "ack"), clock)
        except Refusal as refusal:
            assert TRANSITIONS[before.state, event].breach is refusal.rule
            continue
        delivery = decision.delivery
        trace.append(decision.entry)
        happened.append(event)
        if before.status is not None and delivery.status is not None:
            assert RANK[delivery.status] >= RANK[before.status]
        if before.state in FINAL_STATES:
            assert delivery == before
        if delivery.state is not before.state:
            assert delivery.changed_at == clock
        assert (delivery.message_id, delivery.side, delivery.expires_at) == (
            before.message_id,
            before.side,
            before.expires_at,
        )
    assert [entry.event for entry in trace] == happened
    assert not trace or trace[-1].state is delivery.state


def test_expiry_is_not_believed_before_its_time() -> None:
    delivery = Delivery(Side.SENT, new_message_id(), State.ACCEPTED, EXPIRY, NOW)
    with pytest.raises(ValueError, match="does not expire"):
        decide(delivery, Occurrence(Event.EXPIRE), EXPIRY - timedelta(microseconds=1))
    assert decide(delivery, Occurrence(Event.EXPIRE), EXPIRY).delivery.state is State.FAILED


def test_a_transferred_message_can_no_longer_be_cancelled() -> None:
    delivery = Delivery(Side.SENT, new_message_id(), State.ACCEPTED, EXPIRY, NOW)
    assert decide(delivery, Occurrence(Event.CANCEL), NOW).delivery.status is Status.FAILED
    transferred = decide(delivery, Occurrence(Event.TRANSFERRED), NOW).delivery
    assert transferred.state is State.DELIVERING
    assert transferred.status is Status.ACCEPTED
    with pytest.raises(Refusal) as caught:
        decide(transferred, Occurrence(Event.CANCEL), NOW)
    assert caught.value.rule is Rule.NOT_CANCELLABLE


@pytest.mark.parametrize("state", [State.DELIVERED, State.TRACED])
def test_a_delivered_message_counts_as_final_once_it_expired(state: State) -> None:
    delivery = Delivery(Side.SENT, new_message_id(), state, EXPIRY, NOW)
    assert final_since(delivery, EXPIRY - timedelta(seconds=1)) is None
    assert final_since(delivery, EXPIRY + timedelta(days=1)) == EXPIRY


@pytest.mark.parametrize("state", sorted(FINAL_STATES))
def test_retention_counts_from_the_final_event(state: State) -> None:
    delivery = Delivery(side_of(state), new_message_id(), state, EXPIRY, NOW)
    assert final_since(delivery, NOW) == NOW


@pytest.mark.parametrize(
    "state", sorted(set(State) - FINAL_STATES - {State.DELIVERED, State.TRACED})
)
def test_retention_does_not_count_while_a_message_is_under_way(state: State) -> None:
    delivery = Delivery(side_of(state), new_message_id(), state, EXPIRY, NOW)
    assert final_since(delivery, EXPIRY + timedelta(days=9)) is None
