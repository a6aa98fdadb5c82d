"""AMQP messages between an endpoint and its applications: outbox, reply, inbox, send event.

The shape is the one that business applications of this market already speak; it belongs to no
standard. Documents are one data section, everything else stands in properties.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from uuid import UUID

from gridpost.core.identifiers import clip
from gridpost.core.message import Metadata
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.amqp.codec import Buffer, binary, binary_head, decode, encode
from gridpost.wire.amqp.sections import (
    Header,
    Properties,
    Section,
    Sections,
    decode_application_properties,
    decode_properties,
    encode_header,
    encode_properties,
    split,
    split_head,
)
from gridpost.wire.amqp.types import AmqpLimits, Map, Symbol, Timestamp, ULong, Value

# Fields are flat; this leaves room for what AMQP libraries add of their own.
LIMITS = AmqpLimits(max_depth=8, max_items=1_000)
MAX_ID = 1_024
_SHORT = 512

_DATA = b"\x00\x53\x75"
_VALUE = b"\x00\x53\x77"
_NULL = b"\x40"
_SECTION = b"\x00\x53\x74"
_DURABLE = encode_header(Header(durable=True))


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """What an application wants to be sent."""

    receiver_code: str
    message_type: str
    content: bytes
    ba_message_id: str = ""
    sender_application: str = ""
    is_tracing: bool = False
    conversation_id: str = ""
    """Makes sending idempotent: the property conversationID, else the AMQP message-id."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What is kept of an outbox message to answer it: the correlation-id, whatever its type."""

    correlation_id: Value = None
    ba_message_id: str = ""
    error: tuple[str, str, str, str] | None = None
    """errorCode, errorID, errorMessage, errorDetails."""


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """Properties and application-properties as they came, for programs that only look."""

    properties: Properties
    application_properties: Mapping[str, Value] = field(default_factory=dict)
    body: Value = None


# ---------------------------------------------------------------- from an application


def read_outbox(data: Buffer) -> tuple[Reference, OutboxMessage | Refusal]:
    """What is wanted, or why it cannot be: an answer must find its way back in both cases.

    Refuses only where even the properties cannot be read.
    """
    try:
        sections = split(data)
    except Refusal as broken:
        head = split_head(data)
        return Reference(decode_properties(head, LIMITS).correlation_id), broken
    properties = decode_properties(sections, LIMITS)
    ba_message_id = ""
    try:
        named = decode_application_properties(sections, LIMITS)
        ba_message_id = _text(named, "baMessageID")
        message: OutboxMessage | Refusal = _message(
            sections, named, ba_message_id, properties.message_id
        )
    except Refusal as refusal:
        message = refusal
    return Reference(properties.correlation_id, ba_message_id), message


def _message(
    sections: Sections, named: Mapping[str, Value], ba_message_id: str, message_id: Value
) -> OutboxMessage:
    tracing = _flag(named, "isTracingMessage")
    body = sections.body
    if tracing:
        content = b""
    elif len(body) == 1 and body[0].kind is Section.DATA:
        content = bytes(binary(body[0].value))
    else:
        raise _bad("the body must be one data section with the document")
    type_, old_name = _text(named, "messageType"), _text(named, "businessType")
    if type_ and old_name and type_ != old_name:
        raise _bad("messageType and businessType are both there and disagree")
    return OutboxMessage(
        _needed(_text(named, "receiverCode"), "receiverCode"),
        _needed(type_ or old_name, "messageType"),
        content,
        ba_message_id,
        _text(named, "senderApplication"),
        tracing,
        _conversation(named, message_id),
    )


def _conversation(named: Mapping[str, Value], message_id: Value) -> str:
    found = _text(named, "conversationID") or _id_text(message_id)
    if len(found) > MAX_ID:
        raise _bad(f"conversationID or message-id has more than {MAX_ID} characters")
    return found


def _id_text(value: Value) -> str:
    """AMQP 3.2.11: a message-id is a string, an unsigned long, a UUID or a binary."""
    if value is None or type(value) is str:
        return value or ""
    if isinstance(value, bytes):
        return f"binary:{value.hex()}"
    if isinstance(value, UUID):
        return f"uuid:{value}"
    if isinstance(value, ULong):
        return f"ulong:{int(value)}"
    raise _bad("the message-id has a type that AMQP does not allow")


def _text(named: Mapping[str, Value], name: str) -> str:
    value = named.get(name)
    if value is None:
        return ""
    if type(value) is str or isinstance(value, Symbol):
        return str(value)
    raise _bad(f"the application-property {name} must be a string")


def _flag(named: Mapping[str, Value], name: str) -> bool:
    value = named.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false", ""):
        return value.lower() == "true"
    raise _bad(f"the application-property {name} must be a boolean")


def _needed(text: str, name: str) -> str:
    if not text:
        raise _bad(f"the application-property {name} is missing")
    return text


def _bad(message: str) -> Refusal:
    return Refusal(Rule.BAD_PROPERTY, message)


# ---------------------------------------------------------------- what is kept of it


def write_reference(reference: Reference) -> str:
    kept: dict[str, object] = {}
    if reference.correlation_id is not None:
        kept["c"] = b64encode(encode(reference.correlation_id)).decode("ascii")
    if reference.ba_message_id:
        kept["b"] = reference.ba_message_id
    if reference.error is not None:
        kept["e"] = reference.error
    return json.dumps(kept, separators=(",", ":"))


def parse_reference(text: str) -> Reference:
    """A message has a reply and several events, all with the same reference; long ones are rare."""
    return _known_reference(text) if len(text) <= _SHORT else _parse_reference(text)


def _parse_reference(text: str) -> Reference:
    kept = json.loads(text)
    coded, error = kept.get("c"), kept.get("e")
    return Reference(
        None if coded is None else decode(b64decode(coded), LIMITS),
        kept.get("b", ""),
        None if error is None else (error[0], error[1], error[2], error[3]),
    )


_known_reference = lru_cache(1_024)(_parse_reference)


def error_of(refusal: Refusal) -> tuple[str, str, str, str]:
    return refusal.code.value, refusal.id, clip(refusal.message, 1_000), refusal.details


# ---------------------------------------------------------------- to an application


def write_reply(message_id: str, reference: Reference) -> bytes:
    """The answer to an outbox message: its message ID, or why there is none."""
    if reference.error is None:
        named: tuple[tuple[str, Value], ...] = (("messageID", message_id),)
    else:
        names = ("errorCode", "errorID", "errorMessage", "errorDetails")
        named = tuple(zip(names, reference.error, strict=True))
    properties = encode_properties(Properties(correlation_id=reference.correlation_id))
    return _DURABLE + properties + _application_properties(named) + _VALUE + _NULL


def write_event(status: str, message_id: str, reference: Reference) -> bytes:
    """A status change of a sent message, as an amqp-value string."""
    properties = encode_properties(Properties(correlation_id=reference.correlation_id))
    named = (("messageID", message_id), ("baMessageID", reference.ba_message_id))
    return _DURABLE + properties + _application_properties(named) + _VALUE + encode(status)


def write_inbox(metadata: Metadata, content: bytes) -> tuple[bytes, bytes]:
    """A received document, in two pieces: the document itself is not copied."""
    named: tuple[tuple[str, Value], ...] = (
        ("messageID", str(metadata.message_id)),
        ("senderCode", str(metadata.sender_code)),
        ("receiverCode", str(metadata.receiver_code)),
        ("messageType", str(metadata.message_type)),
        ("baMessageID", metadata.ba_message_id),
        ("senderApplication", metadata.sender_application),
        ("generated", Timestamp(metadata.generated.milliseconds)),
    )
    head = (
        _DURABLE
        + encode_properties(Properties(message_id=str(metadata.message_id)))
        + _application_properties(named)
        + _DATA
        + binary_head(len(content))
    )
    return head, content


def count_deliveries(head: bytes, count: int) -> bytes:
    """The first piece of a document that was delivered `count` times in vain."""
    header = encode_header(Header(durable=True, delivery_count=count))
    return header + head.removeprefix(_DURABLE)


def write_outbox(message: OutboxMessage, correlation_id: Value = None) -> bytes:
    """What an application sends: for our own clients and tools."""
    return b"".join(outbox_parts(message, correlation_id))


def outbox_parts(message: OutboxMessage, correlation_id: Value = None) -> tuple[bytes, bytes]:
    """The same in two pieces: the document itself is not copied."""
    named: list[tuple[str, Value]] = [
        ("receiverCode", message.receiver_code),
        ("messageType", message.message_type),
    ]
    named += [
        (name, text)
        for name, text in (
            ("baMessageID", message.ba_message_id),
            ("senderApplication", message.sender_application),
            ("conversationID", message.conversation_id),
        )
        if text
    ]
    if message.is_tracing:
        named.append(("isTracingMessage", True))
    head = (
        _DURABLE
        + encode_properties(Properties(correlation_id=correlation_id))
        + _application_properties(named)
        + _DATA
        + binary_head(len(message.content))
    )
    return head, message.content


def read_any(data: Buffer) -> ReadMessage:
    """A reply, an event or a document, for our own clients and tools."""
    sections = split(data)
    body: Value = None
    if sections.body:
        first = sections.body[0]
        is_data = first.kind is Section.DATA
        body = bytes(binary(first.value)) if is_data else decode(first.value, LIMITS)
    return ReadMessage(
        decode_properties(sections, LIMITS), decode_application_properties(sections, LIMITS), body
    )


def _application_properties(
    named: tuple[tuple[str, Value], ...] | list[tuple[str, Value]],
) -> bytes:
    return _SECTION + encode(Map(tuple(named)))
