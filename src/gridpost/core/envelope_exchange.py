"""What belongs together in an exchange of envelopes: replies, series of replies, events, addresses.

Also what a receiver demands of an envelope before it looks at its content (61968-100 cl. 6.3.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum

from gridpost.core.envelope import (
    COMPLETE,
    EVENT_OF,
    LAST,
    MORE_FOLLOW,
    OPERATION_SET_NOUN,
    REQUEST_VERBS,
    Error,
    EventMessage,
    FaultMessage,
    Header,
    Identifier,
    Level,
    OperationSet,
    Payload,
    Reply,
    RequestMessage,
    ResponseMessage,
    Result,
    Verb,
    correlation_of,
)
from gridpost.core.identifiers import clip
from gridpost.core.instant import Instant
from gridpost.core.refusal import Fault, Refusal, Rule


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a sender puts on a message of its own."""

    message_id: str
    timestamp: Instant
    source: str | None = None


def prevailing(at: datetime, zone: tzinfo) -> Instant:
    """61968-100 cl. 6.11: a server writes local time with the offset that holds then."""
    local = at.astimezone(zone).replace(microsecond=at.microsecond // 1000 * 1000)
    return Instant(at, local.isoformat(timespec="milliseconds"))


def error_of(refusal: Refusal, **fields: object) -> Error:
    """The rule's name is the code: stable, and listed in our reference."""
    # What broke inside us is in our log under this id; nobody else learns how.
    details = (
        f"see {refusal.id} in the log" if refusal.fault is Fault.OURSELVES else refusal.details
    )
    return replace(
        Error(refusal.rule.name, Level.FATAL, refusal.message, details or None),
        **fields,  # type: ignore[arg-type]
    )


def failed(*errors: Error) -> Reply:
    return Reply(Result.FAILED, errors)


def fault(refusal: Refusal) -> FaultMessage:
    return FaultMessage(failed(error_of(refusal)))


def complete(
    ids: Iterable[Identifier] = (), warnings: Iterable[Error] = (), **fields: object
) -> Reply:
    """61968-100 cl. 6.3.4: all there is, in one response: OK and 0.0; with errors it is PARTIAL."""
    found = tuple(warnings)
    fatal = any(error.level in (Level.FATAL, Level.CATASTROPHIC) for error in found)
    result, code = (Result.PARTIAL, LAST) if fatal else (Result.OK, COMPLETE)
    reply = Reply(result, (Error(code, Level.INFORM), *found), tuple(ids))
    return replace(reply, **fields)  # type: ignore[arg-type]


def in_series(reply: Reply, *, last: bool | None) -> Reply:
    """One of several replies; `last` None: nobody knows, so it has 0.1 like all the others."""
    standing = Error(LAST if last else MORE_FOLLOW, Level.INFORM)
    return replace(reply, result=Result.PARTIAL, errors=(standing, *reply.real_errors))


def series(replies: Sequence[Reply]) -> Iterator[Reply]:
    """As they go out: a single one as it is, several with the codes that tell the last."""
    if len(replies) == 1:
        yield replies[0]
        return
    for number, reply in enumerate(replies, 1):
        yield in_series(reply, last=number == len(replies))


def response_to(
    request: Header, reply: Reply, stamp: Stamp, payload: Payload | None = None
) -> ResponseMessage:
    """61968-100 cl. 6.9: with the request's correlation, and in its context."""
    header = Header(
        Verb.REPLY,
        request.noun,
        revision=request.revision,
        context=request.context,
        timestamp=stamp.timestamp,
        source=stamp.source,
        message_id=stamp.message_id,
        correlation_id=correlation_of(request),
    )
    # 61968-100 cl. 6.2.4: nothing was returned where everything failed.
    return ResponseMessage(header, reply, None if reply.result is Result.FAILED else payload)


_PAST = {"create": "created", "change": "changed", "delete": "deleted"}


def event_of(request: RequestMessage, stamp: Stamp) -> EventMessage | None:
    """What is published when a request has succeeded; None: it was a query."""
    verb = EVENT_OF.get(request.header.verb)
    if verb is None:
        return None
    header = Header(
        verb,
        request.header.noun,
        revision=request.header.revision,
        context=request.header.context,
        timestamp=stamp.timestamp,
        source=stamp.source,
        user=request.header.user,
        message_id=stamp.message_id,
        correlation_id=correlation_of(request.header),
    )
    payload = request.payload
    if request.header.noun == OPERATION_SET_NOUN and payload and payload.operation_set:
        # 61968-100 cl. 6.10.3: in a published set the operations are in the past as well.
        operations = tuple(
            replace(operation, verb=_PAST.get(operation.verb or "", operation.verb))
            for operation in payload.operation_set.operations
        )
        payload = replace(
            payload, operation_set=replace(payload.operation_set, operations=operations)
        )
    elif payload is None or payload.empty:
        # 61968-100 cl. 6.4: the payload of the request says nothing, so its ids do.
        ids = request.request.ids if request.request is not None else ()
        payload = Payload(ids=ids)
    return EventMessage(header, payload)


def event_of_operations(event: EventMessage, done: frozenset[int]) -> EventMessage | None:
    """Of a set without integrity only what was done is told; None: nothing was."""
    payload = event.payload
    if payload is None or payload.operation_set is None:
        return event
    kept = tuple(op for op in payload.operation_set.operations if op.operation_id in done)
    if not kept:
        return None
    chosen = OperationSet(
        kept, payload.operation_set.enforce_sequence, payload.operation_set.enforce_integrity
    )
    return replace(event, payload=replace(payload, operation_set=chosen))


class AddressKind(StrEnum):
    TOPIC = "topic"
    QUEUE = "queue"
    WEB = "web"


@dataclass(frozen=True, slots=True)
class ReplyAddress:
    """61968-100 cl. 6.3.2: `topic:NAME`, `queue:NAME`, `http://…` or `https://…`."""

    kind: AddressKind
    name: str

    @classmethod
    def parse(cls, text: str) -> ReplyAddress:
        if text.startswith(("http://", "https://")):
            return cls(AddressKind.WEB, text)
        kind, found, name = text.partition(":")
        if not found or kind not in ("topic", "queue") or not name or len(name.encode()) > 255:
            raise Refusal(
                Rule.ENVELOPE_REPLY_ADDRESS,
                f"'{clip(text)}' is no reply address; write topic:NAME, queue:NAME or a URL",
            )
        return cls(AddressKind(kind), name)

    def __str__(self) -> str:
        return self.name if self.kind is AddressKind.WEB else f"{self.kind}:{self.name}"


CONTEXTS = frozenset({"PRODUCTION", "TESTING", "TRAINING", "DEVELOPMENT", "STUDY"})
"""As 61968-100 cl. 6.3.2 and 8.4.2 name them: no name that begins so is ever of another context."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What a receiver demands of every envelope."""

    contexts: frozenset[str]
    revisions: frozenset[str] = field(default_factory=frozenset)
    """Empty: any."""
    user_required: bool = False
    replay_required: bool = False
    replay_window: timedelta = timedelta(minutes=10)
    nonces_kept: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        # 61968-100 cl. 6.3.2: a source may use a nonce again after a day.
        if self.nonces_kept < timedelta(days=1):
            raise Refusal(Rule.USAGE, "nonces are remembered for at least a day")

    def check(self, header: Header, *, destination: str, now: datetime, own: bool = False) -> None:
        """`destination`: the context of the queue, topic or URL by which it came. `own`: we wrote
        the envelope ourselves a moment ago, so that nobody can have replayed it."""
        context = header.context if header.context is not None else destination
        if context not in self.contexts or context != destination:
            raise Refusal(
                Rule.ENVELOPE_CONTEXT,
                f"the context '{clip(context)}' is not that of this place, '{destination}'",
            )
        if self.revisions and header.effective_revision not in self.revisions:
            raise Refusal(
                Rule.ENVELOPE_REVISION,
                f"revision '{clip(header.effective_revision)}' is not one of"
                f" {', '.join(sorted(self.revisions))}",
            )
        if self.user_required and (header.user is None or not header.user.user_id):
            raise Refusal(
                Rule.ENVELOPE_USER, "the header says no User, and this interface needs one"
            )
        self.check_reply_address(header, destination=destination)
        replay = header.replay_detection
        if replay is None:
            if self.replay_required and not own:
                raise Refusal(Rule.ENVELOPE_REPLAY, "the header has no ReplayDetection")
            return
        if abs(now - replay.created.at) > self.replay_window:
            raise Refusal(
                Rule.ENVELOPE_STALE,
                f"created at {replay.created.text}, which is not within"
                f" {int(self.replay_window.total_seconds())} s of our clock",
            )

    def check_reply_address(self, header: Header, *, destination: str) -> None:
        """61968-100 cl. 8.4.2: what is said in one context never reaches a name of another."""
        if not header.reply_address or header.one_way or header.verb not in REQUEST_VERBS:
            return
        address = ReplyAddress.parse(header.reply_address)
        first = address.name.partition(".")[0]
        elsewhere = (self.contexts | CONTEXTS) - {destination}
        if address.kind is not AddressKind.WEB and first in elsewhere:
            raise Refusal(
                Rule.ENVELOPE_CONTEXT,
                f"the reply address '{clip(header.reply_address)}' is not of the context"
                f" '{destination}'",
            )
