"""The common message envelope as values: what it consists of, and which kinds there are (61968-100 cl. 6).

What stands in a wildcard of the schema is `Xml`: an element of somebody else's that is kept as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gridpost.core.instant import Instant
from gridpost.core.refusal import Refusal, Rule

NAMESPACE = "http://iec.ch/TC57/2011/schema/message"
OTHER_NAMESPACE = "http://www.iec.ch/TC57/2011/schema/message"
"""As the examples of the standard have it: read, never written."""


class Verb(StrEnum):
    """Annex A has these and no others."""

    GET = "get"
    CREATE = "create"
    CHANGE = "change"
    CANCEL = "cancel"
    CLOSE = "close"
    DELETE = "delete"
    EXECUTE = "execute"
    REPLY = "reply"
    CREATED = "created"
    CHANGED = "changed"
    CANCELED = "canceled"
    CLOSED = "closed"
    DELETED = "deleted"
    EXECUTED = "executed"


# 61968-100 cl. 6.2.2, 6.3.2: deprecated, read as these and never written.
SYNONYMS = {"update": Verb.CHANGE, "updated": Verb.CHANGED, "show": Verb.REPLY}

# 61968-100 Table 1: a query has no event.
EVENT_OF = {
    Verb.CREATE: Verb.CREATED,
    Verb.CHANGE: Verb.CHANGED,
    Verb.CANCEL: Verb.CANCELED,
    Verb.CLOSE: Verb.CLOSED,
    Verb.DELETE: Verb.DELETED,
    Verb.EXECUTE: Verb.EXECUTED,
}
REQUEST_VERBS = frozenset({Verb.GET, *EVENT_OF})
EVENT_VERBS = frozenset(EVENT_OF.values())
OPERATION_SET_NOUN = "OperationSet"


class Result(StrEnum):
    OK = "OK"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"


class Level(StrEnum):
    INFORM = "INFORM"
    WARNING = "WARNING"
    FATAL = "FATAL"
    CATASTROPHIC = "CATASTROPHIC"


class IdKind(StrEnum):
    NAME = "name"
    UUID = "uuid"
    TRANSACTION = "transaction"
    OTHER = "other"


# 61968-100 cl. 6.3.4: codes that say where a reply stands among the replies to one request.
COMPLETE = "0.0"
MORE_FOLLOW = "0.1"
LAST = "0.2"
STANDING_CODES = frozenset({COMPLETE, MORE_FOLLOW, LAST})


class Xml(Protocol):
    """An element of another namespace, kept as it came. Equal when their canonical XML is."""

    @property
    def namespace(self) -> str: ...

    @property
    def local_name(self) -> str: ...

    @property
    def text(self) -> str:
        """A document of its own, without declaration."""
        ...


@dataclass(frozen=True, slots=True)
class Identifier:
    """An ID element; `kind` absent means uuid, which is an mRID (61968-100 cl. 6.3.3)."""

    value: str
    kind: IdKind | None = None
    id_type: str | None = None
    id_authority: str | None = None
    object_type: str | None = None

    @property
    def effective_kind(self) -> IdKind:
        return self.kind or IdKind.UUID


@dataclass(frozen=True, slots=True)
class ReplayDetection:
    nonce: str
    created: Instant


@dataclass(frozen=True, slots=True)
class User:
    user_id: str
    organization: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A Property of the header or an Option of a request."""

    name: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Header:
    verb: Verb
    noun: str
    revision: str | None = None
    replay_detection: ReplayDetection | None = None
    context: str | None = None
    timestamp: Instant | None = None
    source: str | None = None
    async_reply: bool | None = None
    reply_address: str | None = None
    ack_required: bool | None = None
    user: User | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    comment: str | None = None
    properties: tuple[Pair, ...] = ()
    extensions: tuple[Xml, ...] = ()

    @property
    def effective_revision(self) -> str:
        return self.revision if self.revision is not None else "1"

    @property
    def one_way(self) -> bool:
        """61968-100 cl. 6.3.2: without an acknowledgement; where replies would go counts no more."""
        return self.ack_required is False and self.verb in EVENT_OF


@dataclass(frozen=True, slots=True)
class Request:
    start_time: Instant | None = None
    end_time: Instant | None = None
    options: tuple[Pair, ...] = ()
    ids: tuple[Identifier, ...] = ()
    extensions: tuple[Xml, ...] = ()

    def profile(self, noun: str) -> Xml | None:
        """The Get<Noun> element: what it says takes precedence over times and ids (cl. 6.3.3)."""
        name = f"Get{noun}"
        return next((e for e in self.extensions if e.local_name == name), None)


@dataclass(frozen=True, slots=True)
class Location:
    node: str | None = None
    pipeline: str | None = None
    stage: str | None = None


@dataclass(frozen=True, slots=True)
class NameTypeAuthority:
    name: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class NameType:
    name: str
    description: str | None = None
    authority: NameTypeAuthority | None = None


@dataclass(frozen=True, slots=True)
class Name:
    name: str
    name_type: NameType | None = None


@dataclass(frozen=True, slots=True)
class ErrorObject:
    """Deprecated by Annex A: read, and written only when it is passed on."""

    mrid: str | None = None
    names: tuple[Name, ...] = ()
    object_type: str | None = None


@dataclass(frozen=True, slots=True)
class Error:
    code: str
    level: Level | None = None
    reason: str | None = None
    details: str | None = None
    xpath: str | None = None
    stack_trace: str | None = None
    location: Location | None = None
    id: Identifier | None = None
    related_id: Identifier | None = None
    object: ErrorObject | None = None
    operation_id: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    result: Result
    errors: tuple[Error, ...] = ()
    ids: tuple[Identifier, ...] = ()
    extensions: tuple[Xml, ...] = ()
    operation_id: int | None = None

    @property
    def codes(self) -> frozenset[str]:
        return frozenset(error.code for error in self.errors)

    @property
    def more_follow(self) -> bool:
        """Is this one of several, and not known to be the last? OK and FAILED end a series too."""
        return (
            self.result is Result.PARTIAL and LAST not in self.codes and COMPLETE not in self.codes
        )

    @property
    def real_errors(self) -> tuple[Error, ...]:
        """Without the codes that only say where the reply stands."""
        return tuple(error for error in self.errors if error.code not in STANDING_CODES)


@dataclass(frozen=True, slots=True)
class Operation:
    operation_id: int
    noun: str | None = None
    verb: str | None = None
    element_operation: bool | None = None
    content: Xml | None = None

    @property
    def effective_noun(self) -> str:
        """Annex A: what the element itself says, when the noun is left out."""
        return self.noun or (self.content.local_name if self.content is not None else "")


@dataclass(frozen=True, slots=True)
class OperationSet:
    operations: tuple[Operation, ...] = ()
    enforce_sequence: bool | None = None
    enforce_integrity: bool | None = None


@dataclass(frozen=True, slots=True)
class Payload:
    """One of content, operation set, compressed or ids; and the format (61968-100 Table 2)."""

    content: tuple[Xml, ...] = ()
    operation_set: OperationSet | None = None
    compressed: str | None = None
    """base64, as it stands in the element."""
    ids: tuple[Identifier, ...] = ()
    format: str | None = None

    @property
    def empty(self) -> bool:
        return not (self.content or self.ids or self.compressed or self.operation_set is not None)


@dataclass(frozen=True, slots=True)
class RequestMessage:
    header: Header
    request: Request | None = None
    payload: Payload | None = None


@dataclass(frozen=True, slots=True)
class ResponseMessage:
    header: Header
    reply: Reply
    payload: Payload | None = None


@dataclass(frozen=True, slots=True)
class EventMessage:
    header: Header
    payload: Payload | None = None


@dataclass(frozen=True, slots=True)
class FaultMessage:
    """Without a header: what it answers could not even be read (61968-100 cl. 6.3.6)."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class Message:
    """The generic structure that intermediaries use (61968-100 cl. 6.3.1)."""

    header: Header
    request: Request | None = None
    reply: Reply | None = None
    payload: Payload | None = None


Stereotype = RequestMessage | ResponseMessage | EventMessage
AnyMessage = Stereotype | FaultMessage | Message


def specific(message: AnyMessage) -> Stereotype | FaultMessage:
    """A generic message as what its verb says it is."""
    if not isinstance(message, Message):
        return message
    header = message.header
    if header.verb is Verb.REPLY:
        if message.reply is None or message.request is not None:
            raise Refusal(
                Rule.ENVELOPE_FORM, "a message with verb reply has a Reply and no Request"
            )
        return ResponseMessage(header, message.reply, message.payload)
    if message.reply is not None:
        raise Refusal(Rule.ENVELOPE_FORM, f"a message with verb {header.verb} has no Reply")
    if header.verb in EVENT_VERBS:
        if message.request is not None:
            raise Refusal(Rule.ENVELOPE_FORM, f"a message with verb {header.verb} has no Request")
        return EventMessage(header, message.payload)
    return RequestMessage(header, message.request, message.payload)


def generic(message: Stereotype) -> Message:
    match message:
        case RequestMessage(header, request, payload):
            return Message(header, request, None, payload)
        case ResponseMessage(header, reply, payload):
            return Message(header, None, reply, payload)
        case EventMessage(header, payload):
            return Message(header, None, None, payload)


def correlation_of(request: Header) -> str | None:
    """61968-100 cl. 6.9: what replies and events that follow from a request carry."""
    if request.correlation_id is not None:
        return request.correlation_id
    return request.message_id
