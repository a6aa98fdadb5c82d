"""From an envelope to XML: Annex A's namespace and order, deprecated words never."""

from __future__ import annotations

from collections.abc import Iterable

from gridpost.core.envelope import (
    NAMESPACE,
    AnyMessage,
    Error,
    ErrorObject,
    FaultMessage,
    Header,
    Identifier,
    Message,
    Name,
    Operation,
    OperationSet,
    Pair,
    Payload,
    Reply,
    Request,
    RequestMessage,
    ResponseMessage,
    Xml,
)
from gridpost.core.envelope_rules import check
from gridpost.core.instant import Instant
from gridpost.wire.xml_text import attribute, element

_START = "<?xml version='1.0' encoding='UTF-8'?>\n"


def encode(message: AnyMessage) -> bytes:
    """What the rules forbid is refused, so nothing wrong leaves."""
    check(message)
    return encode_unchecked(message)


def encode_unchecked(message: AnyMessage) -> bytes:
    return (_START + element_text(message)).encode()


def element_text(message: AnyMessage) -> str:
    """The message without an XML declaration: for a SOAP body."""
    kind = type(message).__name__
    parts = [f'<{kind} xmlns="{NAMESPACE}">']
    if isinstance(message, FaultMessage):
        parts.append(_reply(message.reply))
    else:
        parts.append(_header(message.header))
        if isinstance(message, RequestMessage | Message) and message.request is not None:
            parts.append(_request(message.request))
        if isinstance(message, ResponseMessage | Message) and message.reply is not None:
            parts.append(_reply(message.reply))
        if message.payload is not None:
            parts.append(_payload(message.payload))
    parts.append(f"</{kind}>")
    return "".join(parts)


def _text(name: str, value: str | None) -> str:
    return "" if value is None else element(name, value)


def _time(name: str, value: Instant | None) -> str:
    return "" if value is None else element(name, value.text)


def _boolean(name: str, value: bool | None) -> str:
    return "" if value is None else f"<{name}>{'true' if value else 'false'}</{name}>"


def _integer(name: str, value: int | None) -> str:
    return "" if value is None else f"<{name}>{value}</{name}>"


def _foreign(extensions: Iterable[Xml]) -> str:
    return "".join(extension.text for extension in extensions)


def _header(header: Header) -> str:
    parts = ["<Header>", element("Verb", header.verb), element("Noun", header.noun)]
    parts.append(_text("Revision", header.revision))
    if header.replay_detection is not None:
        replay = header.replay_detection
        parts.append(
            f"<ReplayDetection>{element('Nonce', replay.nonce)}"
            f"{element('Created', replay.created.text)}</ReplayDetection>"
        )
    parts.append(_text("Context", header.context))
    parts.append(_time("Timestamp", header.timestamp))
    parts.append(_text("Source", header.source))
    parts.append(_boolean("AsyncReplyFlag", header.async_reply))
    parts.append(_text("ReplyAddress", header.reply_address))
    parts.append(_boolean("AckRequired", header.ack_required))
    if header.user is not None:
        organization = _text("Organization", header.user.organization)
        parts.append(f"<User>{element('UserID', header.user.user_id)}{organization}</User>")
    parts.append(_text("MessageID", header.message_id))
    parts.append(_text("CorrelationID", header.correlation_id))
    parts.append(_text("Comment", header.comment))
    parts += [_pair("Property", "Name", "Value", pair) for pair in header.properties]
    parts.append(_foreign(header.extensions))
    parts.append("</Header>")
    return "".join(parts)


def _pair(name: str, first: str, second: str, pair: Pair) -> str:
    return f"<{name}>{element(first, pair.name)}{_text(second, pair.value)}</{name}>"


def _request(request: Request) -> str:
    parts = ["<Request>"]
    parts.append(_time("StartTime", request.start_time))
    parts.append(_time("EndTime", request.end_time))
    parts += [_pair("Option", "name", "value", pair) for pair in request.options]
    parts += [_id("ID", value) for value in request.ids]
    parts.append(_foreign(request.extensions))
    parts.append("</Request>")
    return "".join(parts)


def _reply(reply: Reply) -> str:
    parts = [f"<Reply><Result>{reply.result}</Result>"]
    parts += [_error(error) for error in reply.errors]
    parts += [_id("ID", value) for value in reply.ids]
    parts.append(_foreign(reply.extensions))
    parts.append(_integer("operationId", reply.operation_id))
    parts.append("</Reply>")
    return "".join(parts)


def _id(name: str, value: Identifier) -> str:
    attributes = "".join(
        attribute(key, text)
        for key, text in (
            ("idType", value.id_type),
            ("idAuthority", value.id_authority),
            ("kind", value.kind),
            ("objectType", value.object_type),
        )
        if text is not None
    )
    written = element(name, value.value)
    return f"<{name}{attributes}{written[len(name) + 1 :]}"


def _error(error: Error) -> str:
    parts = ["<Error>", element("code", error.code), _text("level", error.level)]
    parts.append(_text("reason", error.reason))
    parts.append(_text("details", error.details))
    parts.append(_text("xpath", error.xpath))
    parts.append(_text("stackTrace", error.stack_trace))
    if error.location is not None:
        place = error.location
        parts.append(
            f"<Location>{_text('node', place.node)}{_text('pipeline', place.pipeline)}"
            f"{_text('stage', place.stage)}</Location>"
        )
    if error.id is not None:
        parts.append(_id("ID", error.id))
    if error.related_id is not None:
        parts.append(_id("relatedID", error.related_id))
    if error.object is not None:
        parts.append(_object(error.object))
    parts.append(_integer("operationId", error.operation_id))
    parts.append("</Error>")
    return "".join(parts)


def _object(value: ErrorObject) -> str:
    names = "".join(map(_name, value.names))
    return f"<object>{_text('mRID', value.mrid)}{names}{_text('objectType', value.object_type)}</object>"


def _name(value: Name) -> str:
    kind = ""
    if value.name_type is not None:
        name_type, authority = value.name_type, ""
        if name_type.authority is not None:
            given = name_type.authority
            authority = (
                f"<NameTypeAuthority>{element('name', given.name)}"
                f"{_text('description', given.description)}</NameTypeAuthority>"
            )
        kind = (
            f"<NameType>{element('name', name_type.name)}"
            f"{_text('description', name_type.description)}{authority}</NameType>"
        )
    return f"<Name>{element('name', value.name)}{kind}</Name>"


def _payload(payload: Payload) -> str:
    parts = ["<Payload>", _foreign(payload.content)]
    if payload.operation_set is not None:
        parts.append(_operation_set(payload.operation_set))
    parts.append(_text("Compressed", payload.compressed))
    parts += [_id("ID", value) for value in payload.ids]
    parts.append(_text("Format", payload.format))
    parts.append("</Payload>")
    return "".join(parts)


def _operation_set(value: OperationSet) -> str:
    parts = ["<OperationSet>", _boolean("enforceMsgSequence", value.enforce_sequence)]
    parts.append(_boolean("enforceTransactionalIntegrity", value.enforce_integrity))
    parts += map(_operation, value.operations)
    parts.append("</OperationSet>")
    return "".join(parts)


def _operation(value: Operation) -> str:
    content = "" if value.content is None else value.content.text
    return (
        f"<Operation>{_integer('operationId', value.operation_id)}{_text('noun', value.noun)}"
        f"{_text('verb', value.verb)}{_boolean('elementOperation', value.element_operation)}"
        f"{content}</Operation>"
    )
