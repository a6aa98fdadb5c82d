"""Rules of the envelope that no schema can state, each with the refusal that names it (61968-100 cl. 6)."""

from __future__ import annotations

from gridpost.core.envelope import (
    EVENT_VERBS,
    OPERATION_SET_NOUN,
    REQUEST_VERBS,
    AnyMessage,
    FaultMessage,
    Header,
    OperationSet,
    Payload,
    RequestMessage,
    ResponseMessage,
    Verb,
    specific,
)
from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule

_PAYLOAD_REQUIRED = frozenset(
    {Verb.CREATE, Verb.CHANGE, Verb.EXECUTE, Verb.CREATED, Verb.CHANGED, Verb.EXECUTED}
)
_REQUESTED = frozenset({"create", "change", "delete"})
_PUBLISHED = frozenset({"created", "changed", "deleted"})


def check(message: AnyMessage) -> None:
    """The rules beyond the schema; a Refusal says which one is broken."""
    message = specific(message)
    if isinstance(message, FaultMessage):
        return
    header = message.header
    if isinstance(message, RequestMessage):
        allowed, kind = header.verb in REQUEST_VERBS, "request"
    elif isinstance(message, ResponseMessage):
        allowed, kind = header.verb is Verb.REPLY, "response"
    else:
        allowed, kind = header.verb in EVENT_VERBS, "event"
    if not allowed:
        raise Refusal(Rule.ENVELOPE_VERB, f"'{header.verb}' is not a verb of a {kind} message")
    if not header.noun.strip():
        raise Refusal(Rule.ENVELOPE_NOUN, "the noun is empty")
    payload = message.payload
    if header.verb in _PAYLOAD_REQUIRED and (payload is None or payload.empty):
        raise Refusal(
            Rule.ENVELOPE_PAYLOAD, f"a message '{header.verb} {clip(header.noun)}' needs a payload"
        )
    awaits = isinstance(message, RequestMessage) and header.async_reply and not header.one_way
    if awaits and not header.reply_address:
        raise Refusal(
            Rule.ENVELOPE_REPLY_ADDRESS,
            "an asynchronous request says in ReplyAddress where its replies go",
        )
    if payload is not None:
        _check_payload(header, payload)


def _check_payload(header: Header, payload: Payload) -> None:
    carried = sum(
        map(
            bool,
            (
                payload.content,
                payload.operation_set is not None,
                payload.compressed is not None,
                payload.ids,
            ),
        )
    )
    if carried > 1:
        raise Refusal(Rule.ENVELOPE_FORM, "a payload is XML, an OperationSet, Compressed or IDs")
    if payload.operation_set is not None or (
        # 61968-100 cl. 6.10.1: verb, noun and element always go together.
        header.noun == OPERATION_SET_NOUN and header.verb is not Verb.REPLY
    ):
        _check_operation_set(header, payload.operation_set)
        return
    if payload.content and (payload.format or "XML") == "XML":
        root = payload.content[0].local_name
        # 61968-100 cl. 7: the top-level element is named like the noun.
        if root != header.noun:
            raise Refusal(
                Rule.ENVELOPE_NOUN,
                f"the payload is a {clip(root)}, and the noun of the header {clip(header.noun)}",
            )


def _check_operation_set(header: Header, operations: OperationSet | None) -> None:
    """61968-100 cl. 6.10: what a set must be before any of its operations is done."""
    if header.verb not in (Verb.EXECUTE, Verb.EXECUTED) or header.noun != OPERATION_SET_NOUN:
        raise Refusal(
            Rule.OPERATION_SET,
            "an OperationSet goes with the noun OperationSet and the verb execute or executed",
        )
    if operations is None or not operations.operations:
        raise Refusal(Rule.OPERATION_SET, "an OperationSet has at least one Operation")
    allowed = _REQUESTED if header.verb is Verb.EXECUTE else _PUBLISHED
    seen = set()
    for operation in operations.operations:
        number = operation.operation_id
        if number in seen:
            raise Refusal(Rule.OPERATION_SET, f"the operationId {number} is there more than once")
        seen.add(number)
        if operation.verb not in allowed:
            raise Refusal(
                Rule.OPERATION_SET,
                f"operation {number}: the verb is one of {', '.join(sorted(allowed))},"
                f" not '{clip(operation.verb or '')}'",
            )
        if operation.element_operation and operation.verb not in ("delete", "deleted"):
            raise Refusal(
                Rule.OPERATION_SET, f"operation {number}: elementOperation goes with delete alone"
            )
        content = operation.content
        if not operation.effective_noun:
            raise Refusal(Rule.OPERATION_SET, f"operation {number} has neither noun nor content")
        if content is not None and operation.noun and content.local_name != operation.noun:
            raise Refusal(
                Rule.OPERATION_SET,
                f"operation {number}: the content is a {clip(content.local_name)},"
                f" not a {clip(operation.noun)}",
            )
