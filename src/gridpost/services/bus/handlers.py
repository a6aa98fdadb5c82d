"""Which function serves which verb and noun, and what such a function may give back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from gridpost.core.bus import BusUnit
from gridpost.core.envelope import (
    EVENT_VERBS,
    REQUEST_VERBS,
    EventMessage,
    Identifier,
    Payload,
    Reply,
    RequestMessage,
    ResponseMessage,
    Result,
    Verb,
    specific,
)
from gridpost.core.envelope_exchange import complete, in_series
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.envelope import Fragment, decode, encode, xml_payload


@dataclass(frozen=True, slots=True)
class Answer:
    """One response: what is said, and what is returned."""

    reply: Reply
    payload: Payload | None = None
    changed: bool = True
    """False: nothing is another than before, so there is no event (61968-100 cl. 8.3.4.2)."""


@dataclass(frozen=True, slots=True)
class Series:
    """Several responses to one request; `open_end`: nobody can say which one is the last."""

    answers: tuple[Answer, ...]
    open_end: bool = False


Handler = Callable[[RequestMessage, BusUnit], Any]
Listener = Callable[[EventMessage, BusUnit], None]


class Handlers:
    """The interface of a service: whatever is not listed is refused (61968-100 cl. 8.2)."""

    def __init__(self) -> None:
        self.requests: dict[tuple[Verb, str], Handler] = {}
        self.events: dict[tuple[Verb, str], Listener] = {}

    def handles(self, verb: str, noun: str) -> Callable[[Handler], Handler]:
        """A plain function of the request and the transaction that its effects belong to.

        It returns None (done), ids of what it made, a payload, an `Answer`, or a `Series`; what it
        cannot do it raises as a Refusal.
        """
        key = self._key(verb, noun, REQUEST_VERBS, self.requests)

        def register(function: Handler) -> Handler:
            self.requests[key] = function
            return function

        return register

    def listens(self, verb: str, noun: str) -> Callable[[Listener], Listener]:
        key = self._key(verb, noun, EVENT_VERBS, self.events)

        def register(function: Listener) -> Listener:
            self.events[key] = function
            return function

        return register

    def _key(
        self, verb: str, noun: str, verbs: frozenset[Verb], known: dict[tuple[Verb, str], Any]
    ) -> tuple[Verb, str]:
        if verb not in verbs:
            raise Refusal(Rule.USAGE, f"'{verb}' is not a verb that can be served here")
        key = (Verb(verb), noun)
        if key in known:
            raise Refusal(Rule.USAGE, f"'{verb} {noun}' is served already")
        return key


def answers(returned: object, verb: Verb) -> list[Answer]:
    """What a handler returned, as the responses that go out."""
    if isinstance(returned, Series):
        if len(returned.answers) == 1 and not returned.open_end:
            return list(returned.answers)
        last = len(returned.answers) - 1
        return [
            replace(
                answer,
                reply=in_series(answer.reply, last=None if returned.open_end else n == last),
            )
            for n, answer in enumerate(returned.answers)
        ]
    if isinstance(returned, Answer):
        return [returned]
    if returned is None:
        return [Answer(complete())]
    if isinstance(returned, Reply):
        return [Answer(returned)]
    if isinstance(returned, Payload):
        return [Answer(complete(), returned)]
    if isinstance(returned, Fragment | str | bytes) and verb is Verb.GET:
        return [Answer(complete(), xml_payload(returned))]
    if isinstance(returned, Iterable):
        ids = [i if isinstance(i, Identifier) else Identifier(str(i)) for i in returned]
        return [Answer(complete(ids))]
    raise TypeError(f"a handler returned {type(returned).__name__}")


def succeeded(found: list[Answer]) -> bool:
    return not any(answer.reply.result is Result.FAILED for answer in found)


def joined(found: list[Answer]) -> list[Answer]:
    """A series as the one answer that a synchronous exchange has room for."""
    if len(found) < 2:
        return found
    errors = [error for answer in found for error in answer.reply.real_errors]
    ids = [one for answer in found for one in answer.reply.ids]
    content = [
        part for answer in found if answer.payload is not None for part in answer.payload.content
    ]
    payload = Payload(content=tuple(content)) if content else None
    return [Answer(complete(ids, errors), payload)]


def as_one(answers: list[bytes]) -> bytes:
    """A series, for a client that has room for one answer; a single one stays as it came.

    Without its end it is PARTIAL with 0.1: whether there is more, nobody knows.
    """
    if len(answers) == 1:
        return answers[0]
    found = [specific(decode(answer)) for answer in answers]
    last = found[-1]
    if not isinstance(last, ResponseMessage):
        return answers[-1]
    parts = [Answer(one.reply, one.payload) for one in found if isinstance(one, ResponseMessage)]
    (whole,) = joined(parts)
    reply = in_series(whole.reply, last=None) if last.reply.more_follow else whole.reply
    return encode(replace(last, reply=reply, payload=whole.payload))
