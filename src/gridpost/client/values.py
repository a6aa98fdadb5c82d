"""What an endpoint answers, as values; and its refusals, as the `Refusal` they were."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

from gridpost.core.refusal import Refusal, Rule


@dataclass(frozen=True, slots=True)
class Message:
    """One message as the endpoint knows it."""

    message_id: str
    side: str
    status: str
    """ACCEPTED, DELIVERED, RECEIVED or FAILED; empty for a received message."""
    state: str
    sender: str
    receiver: str
    message_type: str
    ba_message_id: str
    sender_application: str
    conversation_id: str
    route: str
    size: int
    generated: str
    changed_at: datetime
    expires_at: datetime
    resend_of: str
    """The FAILED message that this one repeats; empty: none."""
    resent_as: tuple[str, ...]
    raw: dict[str, Any]

    @classmethod
    def read(cls, form: dict[str, Any]) -> Message:
        return cls(
            form["messageID"],
            form["side"],
            form["status"] or "",
            form["state"],
            form["senderCode"],
            form["receiverCode"],
            form["messageType"],
            form["baMessageID"],
            form["senderApplication"],
            form["conversationID"],
            form["route"],
            form["size"],
            form["generated"],
            datetime.fromisoformat(form["changedAt"]),
            datetime.fromisoformat(form["expiresAt"]),
            form.get("resendOf", ""),
            tuple(form.get("resentAs", ())),
            form,
        )


@dataclass(frozen=True, slots=True)
class Received:
    """The first waiting document of a message-type; the same one until it is confirmed."""

    message: Message
    content: bytes | None
    """None when it was not asked for."""
    remaining: int

    @classmethod
    def read(cls, form: dict[str, Any]) -> Received | None:
        message = form["message"]
        if message is None:
            return None
        content = message.pop("content", None)
        return cls(
            Message.read(message),
            None if content is None else b64decode(content),
            form["remaining"],
        )


class BadDocument(Exception):
    """An application says of a received document: it is at fault, and would be the next time too."""


@dataclass(frozen=True, slots=True)
class TraceLine:
    at: datetime
    event: str
    state: str
    moved: bool
    detail: str

    @classmethod
    def read(cls, form: dict[str, Any]) -> TraceLine:
        at = datetime.fromisoformat(form["at"])
        return cls(at, form["event"], form["state"], form["moved"], form["detail"])


@dataclass(frozen=True, slots=True)
class Explained:
    """Why a message is where it is, and who must act."""

    summary: str
    must_act: str
    steps: tuple[tuple[str, bool | None, str], ...]

    @classmethod
    def read(cls, form: dict[str, Any]) -> Explained:
        steps = tuple((s["step"], s["good"], s["text"]) for s in form["steps"])
        return cls(form["explanation"], form["mustAct"], steps)


@dataclass(frozen=True, slots=True)
class Hold:
    """What an operator has paused; `kind` is partner, type, channel or maintenance."""

    kind: str
    value: str
    by: str
    since: datetime
    reason: str

    @classmethod
    def read(cls, form: dict[str, Any]) -> Hold:
        since = datetime.fromisoformat(form["since"])
        return cls(form["kind"], form["value"], form["by"], since, form["reason"])


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A received document that a check held back, and why."""

    message: Message
    reason: str

    @classmethod
    def read(cls, form: dict[str, Any]) -> HeldBack:
        return cls(Message.read(form), form["reason"])


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """One server-sent event: `status` of a sent message, or a document that is `waiting`."""

    name: str
    data: dict[str, Any]


def checked(response: httpx.Response) -> httpx.Response:
    """The response, or the refusal in it with the id under which the endpoint's log has it."""
    if response.is_success:
        return response
    try:
        told = response.json()["refused"]
        rule = Rule.__members__.get(told.get("rule", ""), Rule.INTERNAL)
        refusal = Refusal(rule, str(told["message"]), str(told.get("details", "")))
        refusal.id = str(told.get("id", refusal.id))
    except (ValueError, KeyError, TypeError, AttributeError):
        refusal = Refusal(Rule.INTERNAL, f"the endpoint answered {response.status_code}")
    raise refusal


def unreachable(url: str, error: httpx.HTTPError) -> Refusal:
    return Refusal(
        Rule.UNREACHABLE, f"the endpoint does not answer at {url}: is it running?", str(error)
    )


def read_event(lines: list[str]) -> StatusEvent | None:
    """The lines of one server-sent event; comments are none."""
    fields = dict(line.split(": ", 1) for line in lines if ": " in line and line[0] != ":")
    if "data" not in fields:
        return None
    return StatusEvent(fields.get("event", "message"), json.loads(fields["data"]))
