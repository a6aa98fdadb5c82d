"""A set of operations (61968-100 cl. 6.10): each by the handler of its own verb and noun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gridpost.core.bus import BusUnit
from gridpost.core.envelope import Header, Operation, Pair, Payload, Request, RequestMessage, Verb
from gridpost.core.identifiers import clip
from gridpost.core.operation_set import execute, replies
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.handlers import Answer, Handlers, Series, answers

_ELEMENTS = "elementOperation"


def run_operations(
    request: RequestMessage,
    unit: BusUnit,
    handlers: Handlers,
    check: Callable[[Header, Payload | None], None],
) -> object:
    operations = request.payload.operation_set if request.payload is not None else None
    if operations is None:
        raise Refusal(Rule.OPERATION_SET, "there is no OperationSet")

    def apply(operation: Operation) -> list[object]:
        noun, verb = operation.effective_noun, Verb(operation.verb or "")
        handler = handlers.requests.get((verb, noun))
        if handler is None:
            raise Refusal(Rule.NOT_HANDLED, f"nobody serves '{verb} {clip(noun)}' here")
        payload = Payload(() if operation.content is None else (operation.content,))
        check(replace(request.header, noun=noun), payload)
        header = replace(request.header, verb=verb, noun=noun)
        # How a handler is told that only elements go: see `element_operation`.
        options = (Pair(_ELEMENTS, "true"),) if operation.element_operation else ()
        single = RequestMessage(header, Request(options=options), payload)
        found = answers(handler(single, unit), verb)
        errors = [e for answer in found for e in answer.reply.real_errors]
        if errors:
            raise Refusal(
                Rule.OPERATION_FAILED,
                errors[0].reason or errors[0].code,
                errors[0].details or "",
            )
        return [i for answer in found for i in answer.reply.ids]

    outcomes = execute(operations, apply, unit)  # type: ignore[arg-type]
    separate = _streaming(request)
    found = replies(outcomes, separate=separate)
    if not separate or len(found) == 1:
        return Answer(found[0])
    return Series(tuple(Answer(reply) for reply in found))


def element_operation(request: RequestMessage) -> bool:
    """61968-100 cl. 6.10.1: only what the payload names goes; the object stays."""
    options = request.request.options if request.request is not None else ()
    return any(o.name == _ELEMENTS and o.value == "true" for o in options)


def _streaming(request: RequestMessage) -> bool:
    options = request.request.options if request.request is not None else ()
    return any(o.name == "responseMode" and o.value == "Streaming" for o in options)
