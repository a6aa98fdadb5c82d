"""The life of a message in an endpoint, as one table (503 cl. 5.6, 5.7, 5.12, Tables 1 and 2).

The law of this file: a status moves only forward, ACCEPTED < DELIVERED < RECEIVED; RECEIVED and
FAILED never change; every event is kept in the trace, whether it moved anything or not. Each pair
of a state and an event of its side stands in `TRANSITIONS`; a pair of different sides is a bug.
The sender endpoint and the recipient endpoint each hold their own delivery of the same message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from gridpost.core.identifiers import MessageId
from gridpost.core.refusal import Refusal, Rule


class Side(StrEnum):
    SENT = "sent"
    RECEIVED = "received"


class Status(StrEnum):
    """503 cl. 5.6.1: what a sender application is told."""

    ACCEPTED = "ACCEPTED"
    DELIVERED = "DELIVERED"
    RECEIVED = "RECEIVED"
    FAILED = "FAILED"


class State(StrEnum):
    """Where a message stands in one endpoint; finer than its message-status."""

    # the sender's side
    SENDING = "SENDING"
    VERIFYING = "VERIFYING"  # handed in; its checks wait for the home node (MADES 1.1 cl. 3.7)
    ACCEPTED = "ACCEPTED"
    DELIVERING = "DELIVERING"  # transferred, no acknowledgement yet (503 cl. 5.6.1, optional)
    RECEIVE_HELD = "RECEIVE_HELD"  # RECEIVE came before a verified DELIVERY acknowledgement
    DELIVERED = "DELIVERED"
    RECEIVED = "RECEIVED"
    TRACING = "TRACING"
    TRACED = "TRACED"
    FAILED = "FAILED"
    # the recipient's side
    ARRIVING = "ARRIVING"
    HELD_BACK = "HELD_BACK"  # verified and stored; an operator decides whether it is offered
    WAITING = "WAITING"  # verified and stored; no application has confirmed it yet
    CONFIRMED = "CONFIRMED"
    REFUSED = "REFUSED"
    TRACE_ANSWERED = "TRACE_ANSWERED"
    EXPIRED = "EXPIRED"


class Event(StrEnum):
    # the sender's side
    VERIFY = "VERIFY"
    ACCEPT = "ACCEPT"
    ACCEPT_TRACING = "ACCEPT_TRACING"
    TRANSFERRED = "TRANSFERRED"
    TRANSFER_FAILED = "TRANSFER_FAILED"
    REJECTED = "REJECTED"
    DELIVERY_ACKNOWLEDGED = "DELIVERY_ACKNOWLEDGED"
    FINGERPRINT_DIFFERS = "FINGERPRINT_DIFFERS"
    RECEIVE_ACKNOWLEDGED = "RECEIVE_ACKNOWLEDGED"
    FAILURE_ACKNOWLEDGED = "FAILURE_ACKNOWLEDGED"
    TRACING_ACKNOWLEDGED = "TRACING_ACKNOWLEDGED"
    ACKNOWLEDGEMENT_REFUSED = "ACKNOWLEDGEMENT_REFUSED"
    ACKNOWLEDGEMENT_EXPIRED = "ACKNOWLEDGEMENT_EXPIRED"
    CANCEL = "CANCEL"
    ABANDON = "ABANDON"
    RESEND = "RESEND"
    # the recipient's side
    VERIFIED = "VERIFIED"
    VERIFIED_TRACING = "VERIFIED_TRACING"
    HOLD_BACK = "HOLD_BACK"
    RELEASE = "RELEASE"
    REFUSE = "REFUSE"
    CONFIRM = "CONFIRM"
    ARRIVED_AGAIN = "ARRIVED_AGAIN"
    # both
    EXPIRE = "EXPIRE"


class Effect(StrEnum):
    """What has to be done in the same commit, or because of it."""

    TRANSFER = "transfer the message"
    STOP_TRANSFER = "take the message out of the queue of transfers"
    TELL_APPLICATION = "tell the sender application the new status"
    ARCHIVE_PROOF = "archive the proof set"
    SECURITY_EVENT = "report a security event"
    ACKNOWLEDGE_DELIVERY = "send a DELIVERY_ACKNOWLEDGEMENT"
    ACKNOWLEDGE_RECEIVE = "send a RECEIVE_ACKNOWLEDGEMENT"
    ACKNOWLEDGE_FAILURE = "send a FAILURE_ACKNOWLEDGEMENT"
    ACKNOWLEDGE_TRACING = "send a TRACING_ACKNOWLEDGEMENT"
    OFFER = "offer the document to applications"
    WITHDRAW = "offer the document no longer"


STATUS: Mapping[State, Status] = MappingProxyType(
    {
        # 503 has no word for it: the application has its message ID, and nothing was sent yet.
        State.VERIFYING: Status.ACCEPTED,
        State.ACCEPTED: Status.ACCEPTED,
        State.DELIVERING: Status.ACCEPTED,
        State.RECEIVE_HELD: Status.ACCEPTED,
        State.DELIVERED: Status.DELIVERED,
        State.RECEIVED: Status.RECEIVED,
        State.TRACING: Status.ACCEPTED,
        # 503 cl. 5.12: the tracing acknowledgement leads straight to DELIVERED.
        State.TRACED: Status.DELIVERED,
        State.FAILED: Status.FAILED,
    }
)

# 503 Table 2. A DELIVERED or TRACED message becomes final when it expires: see final_since().
FINAL_STATES = frozenset(
    {
        State.RECEIVED,
        State.FAILED,
        State.CONFIRMED,
        State.REFUSED,
        State.TRACE_ANSWERED,
        State.EXPIRED,
    }
)


@dataclass(frozen=True, slots=True)
class Transition:
    """Where an event leads. `breach` is set where the event is refused to whoever raised it."""

    state: State
    effects: tuple[Effect, ...] = ()
    breach: Rule | None = None


def _moves(state: State, *effects: Effect) -> Transition:
    return Transition(state, effects)


def _fails(*effects: Effect) -> Transition:
    return Transition(
        State.FAILED,
        (Effect.STOP_TRANSFER, Effect.TELL_APPLICATION, Effect.ARCHIVE_PROOF, *effects),
    )


def _build() -> Mapping[tuple[State, Event], Transition]:
    s, e = State, Event
    table: dict[tuple[State, Event], Transition] = {}

    def keeps(state: State, *events: Event, effects: tuple[Effect, ...] = ()) -> None:
        for event in events:
            table[state, event] = Transition(state, effects)

    def refuses(state: State, rule: Rule, *events: Event) -> None:
        for event in events:
            table[state, event] = Transition(state, (), rule)

    told = (Effect.TELL_APPLICATION,)
    suspicious = (Effect.SECURITY_EVENT,)

    # --- sender endpoint: Table 1 event 1
    table[s.SENDING, e.ACCEPT] = _moves(s.ACCEPTED, Effect.TRANSFER, *told)
    table[s.SENDING, e.ACCEPT_TRACING] = _moves(s.TRACING, Effect.TRANSFER, *told)

    # --- MADES 1.1 cl. 3.7: handed in, but the home node could not be asked yet
    table[s.SENDING, e.VERIFY] = _moves(s.VERIFYING, Effect.TRANSFER, *told)
    table[s.VERIFYING, e.ACCEPT] = _moves(s.ACCEPTED)
    table[s.VERIFYING, e.ACCEPT_TRACING] = _moves(s.TRACING)
    keeps(s.VERIFYING, e.TRANSFER_FAILED, e.TRANSFERRED, e.ACKNOWLEDGEMENT_EXPIRED)
    keeps(
        s.VERIFYING,
        e.DELIVERY_ACKNOWLEDGED,
        e.FINGERPRINT_DIFFERS,
        e.RECEIVE_ACKNOWLEDGED,
        e.FAILURE_ACKNOWLEDGED,
        e.TRACING_ACKNOWLEDGED,
        e.ACKNOWLEDGEMENT_REFUSED,
        effects=suspicious,
    )
    for event in (e.REJECTED, e.EXPIRE, e.ABANDON, e.CANCEL):
        table[s.VERIFYING, event] = _fails()

    # --- a message without a verified delivery acknowledgement
    for state in (s.ACCEPTED, s.DELIVERING, s.RECEIVE_HELD):
        table[state, e.TRANSFERRED] = _moves(
            s.DELIVERING if state is s.ACCEPTED else state, Effect.STOP_TRANSFER
        )
        # 503 cl. 5.6.2: a failed transfer is logged and tried again until the message expires.
        keeps(state, e.TRANSFER_FAILED, e.ACKNOWLEDGEMENT_EXPIRED)
        keeps(state, e.ACKNOWLEDGEMENT_REFUSED, e.TRACING_ACKNOWLEDGED, effects=suspicious)
        # Table 1 event 2; an acknowledgement proves the transfer even if its outcome was lost.
        table[state, e.DELIVERY_ACKNOWLEDGED] = (
            _moves(s.RECEIVED, Effect.STOP_TRANSFER, *told, Effect.ARCHIVE_PROOF)
            if state is s.RECEIVE_HELD
            else _moves(s.DELIVERED, Effect.STOP_TRANSFER, *told, Effect.ARCHIVE_PROOF)
        )
        table[state, e.FINGERPRINT_DIFFERS] = _fails(Effect.SECURITY_EVENT)
        # Unsigned, hence without effect until the signed one has verified (see divergences).
        table[state, e.RECEIVE_ACKNOWLEDGED] = _moves(s.RECEIVE_HELD)
        table[state, e.FAILURE_ACKNOWLEDGED] = _fails()
        # MADES 1.1 Table 73: the next component will never take it.
        table[state, e.REJECTED] = _fails()
        table[state, e.EXPIRE] = _fails()
        table[state, e.ABANDON] = _fails()
    table[s.ACCEPTED, e.CANCEL] = _fails()
    refuses(s.DELIVERING, Rule.NOT_CANCELLABLE, e.CANCEL)
    refuses(s.RECEIVE_HELD, Rule.NOT_CANCELLABLE, e.CANCEL)

    # --- DELIVERED
    table[s.DELIVERED, e.RECEIVE_ACKNOWLEDGED] = _moves(s.RECEIVED, *told, Effect.ARCHIVE_PROOF)
    table[s.DELIVERED, e.FAILURE_ACKNOWLEDGED] = _fails()
    keeps(s.DELIVERED, e.TRANSFERRED, e.TRANSFER_FAILED, e.REJECTED, e.DELIVERY_ACKNOWLEDGED)
    keeps(s.DELIVERED, e.ACKNOWLEDGEMENT_EXPIRED)
    keeps(
        s.DELIVERED,
        e.FINGERPRINT_DIFFERS,
        e.ACKNOWLEDGEMENT_REFUSED,
        e.TRACING_ACKNOWLEDGED,
        effects=suspicious,
    )
    # 503 cl. 5.7: expiry changes only ACCEPTED messages.
    keeps(s.DELIVERED, e.EXPIRE, e.ABANDON)
    refuses(s.DELIVERED, Rule.NOT_CANCELLABLE, e.CANCEL)

    # --- tracing messages (503 cl. 5.12)
    keeps(s.TRACING, e.TRANSFER_FAILED, e.ACKNOWLEDGEMENT_EXPIRED)
    table[s.TRACING, e.TRANSFERRED] = _moves(s.TRACING, Effect.STOP_TRANSFER)
    table[s.TRACING, e.TRACING_ACKNOWLEDGED] = _moves(s.TRACED, Effect.STOP_TRANSFER, *told)
    table[s.TRACING, e.FAILURE_ACKNOWLEDGED] = _fails()
    table[s.TRACING, e.REJECTED] = _fails()
    table[s.TRACING, e.EXPIRE] = _fails()
    table[s.TRACING, e.ABANDON] = _fails()
    table[s.TRACING, e.CANCEL] = _fails()
    keeps(s.TRACED, e.TRANSFERRED, e.TRANSFER_FAILED, e.TRACING_ACKNOWLEDGED, e.EXPIRE, e.ABANDON)
    keeps(s.TRACED, e.ACKNOWLEDGEMENT_EXPIRED, e.FAILURE_ACKNOWLEDGED, e.REJECTED)
    refuses(s.TRACED, Rule.NOT_CANCELLABLE, e.CANCEL)
    for state in (s.TRACING, s.TRACED):
        # 503 Table 12: these acknowledge standard messages only.
        keeps(
            state,
            e.DELIVERY_ACKNOWLEDGED,
            e.FINGERPRINT_DIFFERS,
            e.RECEIVE_ACKNOWLEDGED,
            e.ACKNOWLEDGEMENT_REFUSED,
            effects=suspicious,
        )

    # --- final at the sender: late and repeated events are only noted
    for state in (s.RECEIVED, s.FAILED):
        keeps(state, *(SENDER_EVENTS - {e.VERIFY, e.ACCEPT, e.ACCEPT_TRACING, e.CANCEL}))
        keeps(state, e.FINGERPRINT_DIFFERS, e.ACKNOWLEDGEMENT_REFUSED, effects=suspicious)
        refuses(state, Rule.NOT_CANCELLABLE, e.CANCEL)

    # A message that failed is sent again as a new one; this one stays as it is.
    for state in STATUS:
        if state is not s.FAILED:
            refuses(state, Rule.NOT_FAILED, e.RESEND)

    # --- recipient endpoint
    table[s.ARRIVING, e.VERIFIED] = _moves(s.WAITING, Effect.ACKNOWLEDGE_DELIVERY, Effect.OFFER)
    table[s.ARRIVING, e.VERIFIED_TRACING] = _moves(s.TRACE_ANSWERED, Effect.ACKNOWLEDGE_TRACING)
    # The recipient endpoint has it (503 Table 1 event 2), its applications do not.
    table[s.ARRIVING, e.HOLD_BACK] = _moves(s.HELD_BACK, Effect.ACKNOWLEDGE_DELIVERY)
    table[s.HELD_BACK, e.RELEASE] = _moves(s.WAITING, Effect.OFFER)
    table[s.HELD_BACK, e.REFUSE] = _moves(s.REFUSED, Effect.ACKNOWLEDGE_FAILURE)
    table[s.HELD_BACK, e.EXPIRE] = _moves(s.EXPIRED)
    refuses(s.HELD_BACK, Rule.NOT_WAITING, e.CONFIRM)
    table[s.ARRIVING, e.REFUSE] = _moves(s.REFUSED, Effect.ACKNOWLEDGE_FAILURE)
    # 503 cl. 5.7: received already expired: accepted, ignored, not acknowledged.
    table[s.ARRIVING, e.EXPIRE] = _moves(s.EXPIRED)
    table[s.WAITING, e.CONFIRM] = _moves(
        s.CONFIRMED, Effect.WITHDRAW, Effect.ACKNOWLEDGE_RECEIVE, Effect.ARCHIVE_PROOF
    )
    table[s.WAITING, e.REFUSE] = _moves(s.REFUSED, Effect.WITHDRAW, Effect.ACKNOWLEDGE_FAILURE)
    table[s.WAITING, e.EXPIRE] = _moves(s.EXPIRED, Effect.WITHDRAW)
    for state in (s.WAITING, s.CONFIRMED, s.REFUSED, s.TRACE_ANSWERED, s.EXPIRED):
        keeps(state, e.ARRIVED_AGAIN)
        refuses(state, Rule.NOT_HELD_BACK, e.RELEASE)
    keeps(s.HELD_BACK, e.ARRIVED_AGAIN)
    for state in (s.CONFIRMED, s.REFUSED, s.TRACE_ANSWERED, s.EXPIRED):
        keeps(state, e.EXPIRE, e.REFUSE)
    # An application that lost the answer confirms again and learns that it is done.
    keeps(s.CONFIRMED, e.CONFIRM)
    refuses(s.EXPIRED, Rule.MESSAGE_EXPIRED, e.CONFIRM)
    refuses(s.REFUSED, Rule.NOT_WAITING, e.CONFIRM)
    refuses(s.TRACE_ANSWERED, Rule.NOT_WAITING, e.CONFIRM)
    return MappingProxyType(table)


SENDER_STATES = frozenset({State.SENDING, *STATUS})
RECIPIENT_STATES = frozenset(State) - SENDER_STATES
RECIPIENT_EVENTS = frozenset(
    {
        Event.VERIFIED,
        Event.VERIFIED_TRACING,
        Event.HOLD_BACK,
        Event.RELEASE,
        Event.REFUSE,
        Event.CONFIRM,
        Event.ARRIVED_AGAIN,
        Event.EXPIRE,
    }
)
SENDER_EVENTS = (frozenset(Event) - RECIPIENT_EVENTS) | {Event.EXPIRE}

TRANSITIONS: Mapping[tuple[State, Event], Transition] = _build()

EXPIRING_STATES = frozenset(
    state
    for (state, event), transition in TRANSITIONS.items()
    if event is Event.EXPIRE and transition.state is not state and state is not State.ARRIVING
)
"""503 cl. 5.7: where the end of its time changes a stored message."""

AWAITING_STATES = frozenset(
    {State.ACCEPTED, State.DELIVERING, State.RECEIVE_HELD, State.DELIVERED, State.TRACING}
)
"""Where the sender still expects an acknowledgement (see divergences, listening)."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message in one endpoint."""

    side: Side
    message_id: MessageId
    state: State
    expires_at: datetime
    changed_at: datetime

    @property
    def status(self) -> Status | None:
        """The message-status; only the sender endpoint has one."""
        return STATUS.get(self.state)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An event as it happened: what was said about it, and the acknowledgement that brought it."""

    event: Event
    detail: str = ""
    acknowledgement_id: str = ""


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One line of the trace. Nothing that happened is left out of it."""

    at: datetime
    event: Event
    state: State
    moved: bool
    detail: str = ""
    acknowledgement_id: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    delivery: Delivery
    effects: tuple[Effect, ...]
    entry: TraceEntry


def begin(side: Side, message_id: MessageId, expires_at: datetime, now: datetime) -> Delivery:
    """A delivery before its first event."""
    first = State.SENDING if side is Side.SENT else State.ARRIVING
    return Delivery(side, message_id, first, expires_at, now)


def decide(delivery: Delivery, occurrence: Occurrence, now: datetime) -> Decision:
    """What an event means for a delivery. Refuses where whoever raised the event must be told no."""
    event = occurrence.event
    transition = TRANSITIONS.get((delivery.state, event))
    if transition is None:
        raise ValueError(f"{event} cannot happen to a {delivery.side} message in {delivery.state}")
    if event is Event.EXPIRE and now < delivery.expires_at:
        raise ValueError(f"{delivery.message_id} does not expire before {delivery.expires_at}")
    if transition.breach is not None:
        raise Refusal(
            transition.breach,
            f"message {delivery.message_id} is {delivery.state}: {event} is not possible any more",
        )
    detail = occurrence.detail
    if event is Event.EXPIRE and delivery.state is State.RECEIVE_HELD:
        detail = "a RECEIVE_ACKNOWLEDGEMENT came, but no verified DELIVERY_ACKNOWLEDGEMENT"
    moved = transition.state is not delivery.state
    return Decision(
        Delivery(delivery.side, delivery.message_id, transition.state, delivery.expires_at, now)
        if moved
        else delivery,
        transition.effects,
        TraceEntry(now, event, transition.state, moved, detail, occurrence.acknowledgement_id),
    )


def final_since(delivery: Delivery, now: datetime) -> datetime | None:
    """503 cl. 5.9 and Table 2: since when retention counts, or None while it does not.

    A DELIVERED message whose RECEIVE_ACKNOWLEDGEMENT never came counts as final once it expired.
    """
    if delivery.state in FINAL_STATES:
        return delivery.changed_at
    if delivery.state in (State.DELIVERED, State.TRACED) and delivery.expires_at <= now:
        return delivery.expires_at
    return None
