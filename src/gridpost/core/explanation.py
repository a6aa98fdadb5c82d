"""Why a message is not there yet, in one line, and who must act: the question operators ask most.

A pure function over facts. It walks the way of the message (route, certificates, connection, queue,
acknowledgement, expiry) and stops at the first thing that holds it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gridpost.core.delivery import Delivery, Event, Side, State, TraceEntry
from gridpost.core.message_path import Route

_A_MOMENT = timedelta(minutes=1)
"""A first transfer begins sooner, unless the endpoint has more to do than it can."""


class Actor(StrEnum):
    """Who has to do something next."""

    NOBODY = "nobody"
    US = "the operator of this endpoint"
    RECIPIENT = "the operator of the recipient endpoint"
    RECIPIENT_APPLICATION = "the recipient application"
    APPLICATION = "the application of this endpoint"
    BROKER = "the operator of the broker"
    DIRECTORY = "the operator of the component-directory"


@dataclass(frozen=True, slots=True)
class LineFacts:
    """The connection to the next component."""

    peer: str
    connected: bool
    listening: bool | None
    """None: another process of this endpoint does that."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The message that has to go first, because its message-type keeps its order (503 cl. 5.11)."""

    message_id: str
    summary: str
    """What holds that one up."""
    actor: Actor


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one message at this moment."""

    now: datetime
    delivery: Delivery
    route: Route
    sender: str
    recipient: str
    message_type: str
    trace: Sequence[TraceEntry] = ()
    not_acceptable: str = ""
    """Why 503 cl. 5.5 would refuse the same message now; empty when it would not."""
    directory_lapsed: bool = False
    own_certificate_problem: str = ""
    line: LineFacts | None = None
    held: str = ""
    """What an operator of this endpoint has paused, if that keeps this message."""
    ahead: Ahead | None = None
    device_away: str = ""
    """MADES 1.1 cl. 3.10.3: why the signing device cannot be used, while it is needed for the message or
    for its acknowledgement."""


@dataclass(frozen=True, slots=True)
class Step:
    """One part of the way; `good` is None where nothing can be said yet."""

    name: str
    good: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    summary: str
    actor: Actor
    steps: tuple[Step, ...]


def explain(facts: Facts) -> Explanation:
    steps = tuple(_steps(facts))
    if facts.delivery.side is Side.RECEIVED:
        summary, actor = _received(facts)
        if facts.device_away:
            waits = f"its acknowledgement waits for the signing device: {facts.device_away}"
            summary, actor = f"{summary}; {waits}", Actor.US
    else:
        summary, actor = _sent(facts)
    return Explanation(summary, actor, steps)


def _steps(facts: Facts) -> list[Step]:
    state, expires = facts.delivery.state, f"{facts.delivery.expires_at:%Y-%m-%dT%H:%M:%SZ}"
    sent = facts.delivery.side is Side.SENT
    transferred = any(e.event is Event.TRANSFERRED for e in facts.trace)
    acknowledged = any(e.event in _ACKNOWLEDGED for e in facts.trace)
    line = facts.line
    steps = [
        Step("route", not facts.not_acceptable, facts.not_acceptable or f"{facts.route}"),
        Step(
            "certificates",
            not facts.own_certificate_problem,
            facts.own_certificate_problem or "own certificates are valid",
        ),
    ]
    chosen = _choice(facts)
    if chosen:
        steps.insert(0, Step("network", True, chosen))
    if line is None:
        steps.append(Step("connection", None, "there is no connection, none is needed now"))
    else:
        state_text = "connected" if line.connected else f"not connected: {line.reason}"
        steps.append(Step("connection", line.connected, f"{line.peer} is {state_text}"))
    if sent:
        failed = _last(facts.trace, Event.TRANSFER_FAILED)
        if transferred:
            steps.append(Step("queue", True, f"handed to {facts.route.broker or facts.recipient}"))
        elif failed is not None:
            steps.append(Step("queue", False, f"last attempt failed: {failed.detail}"))
        elif facts.ahead is not None:
            steps.append(Step("queue", False, f"keeps its order behind {facts.ahead.message_id}"))
        else:
            steps.append(Step("queue", None, "waits for its first transfer"))
        steps.append(
            Step(
                "acknowledgement",
                acknowledged or None,
                "came back" if acknowledged else "has not come back",
            )
        )
    else:
        confirmed = state is State.CONFIRMED
        text = "confirmed by an application" if confirmed else "no application has confirmed it"
        steps.append(Step("hand-over", confirmed or None, text))
    if facts.device_away:
        steps.append(Step("signature", False, facts.device_away))
    if facts.held:
        steps.append(Step("pause", False, facts.held))
    over = facts.delivery.expires_at <= facts.now
    steps.append(Step("expiry", not over, f"{'expired' if over else 'expires'} at {expires}"))
    return steps


def _sent(facts: Facts) -> tuple[str, Actor]:
    state, recipient = facts.delivery.state, facts.recipient
    match state:
        case State.RECEIVED:
            return f"done: an application of {recipient} has confirmed the document", Actor.NOBODY
        case State.TRACED:
            return f"done: {recipient} answers on this route", Actor.NOBODY
        case State.FAILED:
            return _failed(facts)
        case State.DELIVERED:
            if facts.delivery.expires_at <= facts.now:
                return (
                    f"{recipient} has the document, but said until it expired that no application "
                    "took it",
                    Actor.RECIPIENT_APPLICATION,
                )
            return (
                f"{recipient} has the document; none of its applications has confirmed it yet",
                Actor.RECIPIENT_APPLICATION,
            )
    if state is State.VERIFYING and facts.device_away:
        return f"waits for the signing device: {facts.device_away}", Actor.US
    hindered = _hindrance(facts)
    if hindered is not None:
        return hindered
    if state is State.VERIFYING:
        told = next((step.detail for step in reversed(facts.trace) if step.detail), "")
        return (
            "waits until the home node has been asked about the recipient and the document is "
            f"signed; last said: {told}",
            Actor.DIRECTORY,
        )
    if state in (State.DELIVERING, State.RECEIVE_HELD) or _last(facts.trace, Event.TRANSFERRED):
        where = f"broker {facts.route.broker}" if facts.route.broker else recipient
        if facts.route.broker:
            return (
                f"{where} has the message; {recipient} has not fetched or not acknowledged it yet: "
                "its endpoint may be down",
                Actor.RECIPIENT,
            )
        return f"{recipient} has the message and has not acknowledged it yet", Actor.RECIPIENT
    return _not_begun(facts)


def _not_begun(facts: Facts) -> tuple[str, Actor]:
    ahead, accepted = facts.ahead, facts.trace[0].at if facts.trace else facts.now
    if ahead is not None:
        return f"keeps its order behind {ahead.message_id}: {ahead.summary}", ahead.actor
    if facts.now - accepted >= _A_MOMENT:
        return (
            f"waits for its first transfer since {accepted:%Y-%m-%dT%H:%M:%SZ}: this endpoint has "
            "others to transfer before it",
            Actor.US,
        )
    return "accepted a moment ago; its transfer is about to begin", Actor.NOBODY


def _hindrance(facts: Facts) -> tuple[str, Actor] | None:
    """What keeps a message that is not transferred, or its acknowledgement, from moving."""
    if facts.held and _last(facts.trace, Event.TRANSFERRED) is None:
        return f"sending is paused here: {facts.held}", Actor.US
    if facts.own_certificate_problem:
        return facts.own_certificate_problem, Actor.US
    if facts.directory_lapsed:
        return (
            f"what the directory said of {facts.recipient} or its broker has lapsed: no "
            "component-directory answers",
            Actor.DIRECTORY,
        )
    line = facts.line
    if line is not None and not line.connected:
        actor = Actor.BROKER if facts.route.broker else Actor.RECIPIENT
        return f"{line.peer} cannot be reached: {line.reason or 'no connection yet'}", actor
    if _last(facts.trace, Event.TRANSFERRED) is None:
        if facts.not_acceptable:
            return f"the directory has changed: {facts.not_acceptable}", Actor.RECIPIENT
        failed = _last(facts.trace, Event.TRANSFER_FAILED)
        if failed is not None:
            actor = Actor.BROKER if facts.route.broker else Actor.RECIPIENT
            return f"the transfer fails and is repeated: {failed.detail}", actor
    elif line is not None and line.listening is False and facts.route.broker:
        why = line.reason or "it has no link to its queue"
        return f"this endpoint does not listen at {line.peer}: {why}", Actor.BROKER
    return None


def _failed(facts: Facts) -> tuple[str, Actor]:
    last = next((e for e in reversed(facts.trace) if e.state is State.FAILED and e.moved), None)
    if last is None:
        return "failed; its trace is no longer kept", Actor.US
    match last.event:
        case Event.EXPIRE:
            return _expired(facts, last)
        case Event.FAILURE_ACKNOWLEDGED:
            return f"{facts.recipient} refused the message: {last.detail}", Actor.RECIPIENT
        case Event.FINGERPRINT_DIFFERS:
            return (
                f"{facts.recipient} acknowledged another document than was sent: a security event",
                Actor.US,
            )
        case Event.REJECTED:
            return f"it was rejected for good: {last.detail}", Actor.RECIPIENT
        case Event.CANCEL | Event.ABANDON:
            return f"it was given up here: {last.detail or 'no reason given'}", Actor.APPLICATION
    return last.detail or "failed", Actor.US


def _expired(facts: Facts, last: TraceEntry) -> tuple[str, Actor]:
    if _last(facts.trace, Event.TRANSFERRED) is None:
        failed = _last(facts.trace, Event.TRANSFER_FAILED)
        why = f": {failed.detail}" if failed is not None else ""
        actor = Actor.BROKER if facts.route.broker else Actor.RECIPIENT
        return f"expired before it could be transferred{why}", actor
    detail = last.detail if "RECEIVE_ACKNOWLEDGEMENT" in last.detail else ""
    return (
        detail or f"expired: {facts.recipient} did not acknowledge it in time",
        Actor.RECIPIENT,
    )


def _received(facts: Facts) -> tuple[str, Actor]:
    match facts.delivery.state:
        case State.CONFIRMED:
            return "done: an application of this endpoint has confirmed it", Actor.NOBODY
        case State.HELD_BACK if facts.delivery.expires_at > facts.now:
            held = _last(facts.trace, Event.HOLD_BACK)
            why = f": {held.detail}" if held is not None else ""
            return f"held back{why}; release or drop it", Actor.US
        case State.WAITING if facts.held and facts.delivery.expires_at > facts.now:
            return f"handing over is paused here: {facts.held}", Actor.US
        case State.WAITING if facts.delivery.expires_at > facts.now:
            return (
                f"waits for an application that receives message-type {facts.message_type}",
                Actor.APPLICATION,
            )
        case State.WAITING | State.HELD_BACK | State.EXPIRED:
            return "expired before an application took it", Actor.APPLICATION
        case State.TRACE_ANSWERED:
            return "done: the connectivity test was answered", Actor.NOBODY
    reason = next((e.detail for e in reversed(facts.trace) if e.detail), "")
    return f"refused: {reason}", Actor.US


def _choice(facts: Facts) -> str:
    """Which network was chosen when the message was handed in, and why."""
    first = facts.trace[0].detail if facts.trace else ""
    parts = (part for part in first.split("; ") if part.startswith(_NETWORK))
    return next(parts, "").removeprefix(_NETWORK)


_NETWORK = "network "


def _last(trace: Sequence[TraceEntry], event: Event) -> TraceEntry | None:
    return next((e for e in reversed(trace) if e.event is event), None)


_ACKNOWLEDGED = frozenset(
    {
        Event.DELIVERY_ACKNOWLEDGED,
        Event.RECEIVE_ACKNOWLEDGED,
        Event.FAILURE_ACKNOWLEDGED,
        Event.TRACING_ACKNOWLEDGED,
    }
)
