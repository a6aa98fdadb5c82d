"""An internal message as an AMQP 1.0 message (503 cl. 6.5.2, Tables 5 to 8).

Part of the metadata travels twice: as AMQP fields, which a broker reads, and in the body, which is
signed. `read_fields` reads the first alone; `decode` refuses a message whose two copies disagree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from gridpost.core.identifiers import (
    ComponentCode,
    MessageId,
    MessageType,
    clip,
    component_code,
    message_id,
    message_type,
)
from gridpost.core.instant import Instant
from gridpost.core.message import InternalType, Metadata, SealedMessage
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.amqp.codec import Buffer, binary, binary_head, compound_head, elements
from gridpost.wire.amqp.codec import decode as decode_value
from gridpost.wire.amqp.codec import encode as encode_value
from gridpost.wire.amqp.codes import BINARY, LIST32, MAP32, malformed
from gridpost.wire.amqp.sections import (
    Header,
    Properties,
    Section,
    Sections,
    decode_application_properties,
    decode_header,
    decode_properties,
    encode_header,
    encode_properties,
    split,
    wrong_type,
)
from gridpost.wire.amqp.types import (
    AmqpLimits,
    Byte,
    Int,
    Long,
    Short,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)
from gridpost.wire.mades import metadata as metadata_codec
from gridpost.wire.mades.values import named
from gridpost.wire.xml import XmlLimits

# Fields are flat; this leaves room for what lower layers of other AMQP stacks add.
FIELD_LIMITS = AmqpLimits(max_depth=8, max_items=1_000)


MESSAGE_ROOM = 1024 * 1024
"""What travels with a document: metadata, signature, encryption."""


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """How much one message may ask of us."""

    max_bytes: int = 64 * 1024 * 1024 + MESSAGE_ROOM
    amqp: AmqpLimits = FIELD_LIMITS
    metadata: XmlLimits = metadata_codec.LIMITS


DEFAULT_LIMITS = MessageLimits()

# AMQP has ttl in 32 bits of milliseconds, 49 days. Longer lives are cut there: the absolute expiry
# time next to it is exact.
MAX_TTL = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Fields:
    """What can be known of an internal message without its body. Absent optional texts are empty."""

    message_id: MessageId
    receiver_code: ComponentCode
    sender_code: ComponentCode
    internal_type: InternalType
    subject: MessageType
    generated: Instant
    mversion: int
    ttl: int
    absolute_expiry: Instant
    correlation_id: str = ""
    sender_application: str = ""
    ba_message_id: str = ""

    @property
    def expires_at(self) -> datetime:
        """The sender's word (503 cl. 5.7); ttl counts from a moment that only the sender knows."""
        return self.absolute_expiry.at


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message as it came; `metadata_xml` is kept because the signature covers texts in it."""

    fields: Fields
    message: SealedMessage
    metadata_xml: str


# ---------------------------------------------------------------- writing

_NAMES = {
    name: encode_value(name)
    for name in (
        "messageID",
        "receiverCode",
        "senderCode",
        "senderApplication",
        "baMessageID",
        "generated",
        "internalType",
        "messageMversion",
    )
}
_LARGE = 256 * 1024
"""Bodies of this size stay views of what arrived."""
_INTERNAL_TYPES = {member.value: member for member in InternalType}
# Few partners and message-types make up all messages.
_code = lru_cache(4_096)(component_code)
_type = lru_cache(4_096)(message_type)
_INTEGERS = (Byte, Short, Int, Long, UByte, UShort, UInt, ULong)


def encode(message: SealedMessage, metadata_xml: str | None, now: datetime) -> bytes:
    """The message to transfer at `now`. `metadata_xml` saves encoding the same metadata again."""
    return b"".join(encode_parts(message, metadata_xml, now))


def encode_parts(
    message: SealedMessage, metadata_xml: str | None, now: datetime
) -> tuple[bytes, bytes | memoryview]:
    """The same in two pieces, so that a large body need not be copied."""
    metadata = message.metadata
    if metadata.expiration_time is None:
        raise _missing("absolute-expiry-time")
    # First of all: it refuses what no text on the wire can carry.
    xml = encode_value(metadata_codec.encode(metadata) if metadata_xml is None else metadata_xml)
    # Table 5 does not list durable, but no message may get lost (see divergences, durable header).
    header = Header(durable=True, ttl=time_to_live(metadata.expiration_time, now))
    properties = Properties(
        message_id=str(metadata.message_id),
        subject=str(metadata.message_type),
        correlation_id=_correlation_id(metadata),
        absolute_expiry_time=Timestamp(metadata.expiration_time.milliseconds),
    )
    size = binary_head(len(message.body))
    content = len(xml) + len(size) + len(message.body)
    head = b"".join(
        (
            encode_header(header),
            encode_properties(properties),
            _encode_application_properties(metadata),
            b"\x00\x53\x76",
            compound_head(LIST32, 2, content),
            xml,
            size,
        )
    )
    return head, message.body


def time_to_live(expiration: Instant, now: datetime) -> int:
    """503 Table 5, in milliseconds. An expired message is never transferred (cl. 5.7)."""
    left = (expiration.at - now) // timedelta(milliseconds=1)
    if left <= 0:
        raise Refusal(Rule.MESSAGE_EXPIRED, f"the message expired at {expiration}")
    return min(left, MAX_TTL)


def _correlation_id(metadata: Metadata) -> str | None:
    """503 Table 6: only an acknowledgement has one."""
    if not metadata.internal_type.is_acknowledgement:
        return None
    return metadata.related_message_id or None


def _encode_application_properties(metadata: Metadata) -> bytes:
    """503 Table 7. Each name is that of the element in the metadata."""
    parts = [
        _NAMES["messageID"], encode_value(str(metadata.message_id)),
        _NAMES["receiverCode"], encode_value(str(metadata.receiver_code)),
        _NAMES["senderCode"], encode_value(str(metadata.sender_code)),
    ]  # fmt: skip
    if metadata.sender_application:
        parts += _NAMES["senderApplication"], encode_value(metadata.sender_application)
    if metadata.ba_message_id:
        parts += _NAMES["baMessageID"], encode_value(metadata.ba_message_id)
    parts += [
        _NAMES["generated"], encode_value(Timestamp(metadata.generated.milliseconds)),
        _NAMES["internalType"], encode_value(metadata.internal_type.value),
        _NAMES["messageMversion"], encode_value(Int(metadata.message_mversion)),
    ]  # fmt: skip
    content = b"".join(parts)
    return b"\x00\x53\x74" + compound_head(MAP32, len(parts), len(content)) + content


# ---------------------------------------------------------------- reading


def decode(
    data: Buffer,
    limits: MessageLimits = DEFAULT_LIMITS,
    *,
    head: tuple[Sections, Fields] | None = None,
) -> ReceivedMessage:
    """The message, with both copies of its metadata read and found to agree.

    `head` saves reading again what the caller has read of the same data.
    When this refuses, `read_fields(split_head(data))` may still say whom to answer.
    """
    if len(data) > limits.max_bytes:
        raise Refusal(Rule.LIMIT_EXCEEDED, f"the message has more than {limits.max_bytes} bytes")
    if head is None:
        sections = split(data)
        fields = read_fields(sections, limits.amqp)
    else:
        sections, fields = head
    metadata_xml, body = _read_body(sections, limits.amqp)
    metadata = metadata_codec.decode(metadata_xml, limits.metadata)
    for name in disagreements(fields, metadata):
        raise Refusal(
            Rule.FIELDS_DISAGREE, f"{name} differs between the AMQP fields and the metadata"
        )
    sealed = SealedMessage(metadata, body if len(body) >= _LARGE else bytes(body))
    return ReceivedMessage(fields, sealed, metadata_xml)


def read_fields(sections: Sections, limits: AmqpLimits = FIELD_LIMITS) -> Fields:
    """503 cl. 6.5.1: all that a broker looks at. The body may be anything."""
    header = decode_header(sections, limits)
    properties = decode_properties(sections, limits)
    application = decode_application_properties(sections, limits).get
    if header.ttl is None:
        raise _missing("ttl")
    internal_type = _required("internalType", application("internalType"))
    if internal_type not in _INTERNAL_TYPES:
        raise Refusal(
            Rule.FIELD_TYPE, f"internalType: '{clip(internal_type)}' is no internal message type"
        )
    return Fields(
        named("messageID", message_id, _required("messageID", application("messageID"))),
        named("receiverCode", _code, _required("receiverCode", application("receiverCode"))),
        named("senderCode", _code, _required("senderCode", application("senderCode"))),
        _INTERNAL_TYPES[internal_type],
        named("subject", _type, _required("subject", properties.subject)),
        _moment("generated", application("generated")),
        _integer("messageMversion", application("messageMversion")),
        header.ttl,
        _moment("absolute-expiry-time", properties.absolute_expiry_time),
        _optional("correlation-id", properties.correlation_id),
        _optional("senderApplication", application("senderApplication")),
        _optional("baMessageID", application("baMessageID")),
    )


def disagreements(fields: Fields, metadata: Metadata) -> Iterator[str]:
    """AMQP fields that say something else than the metadata (see divergences, fields that disagree).

    An absent optional field says nothing, so it cannot differ.
    """
    if fields.message_id != metadata.message_id:
        yield "messageID"
    if fields.receiver_code != metadata.receiver_code:
        yield "receiverCode"
    if fields.sender_code != metadata.sender_code:
        yield "senderCode"
    if fields.generated.milliseconds != metadata.generated.milliseconds:
        yield "generated"
    if fields.internal_type is not metadata.internal_type:
        yield "internalType"
    if fields.mversion != metadata.message_mversion:
        yield "messageMversion"
    if fields.subject != metadata.message_type:
        yield "subject"
    if fields.sender_application not in ("", metadata.sender_application):
        yield "senderApplication"
    if fields.ba_message_id not in ("", metadata.ba_message_id):
        yield "baMessageID"
    if fields.correlation_id not in ("", metadata.related_message_id):
        yield "correlation-id"
    expiration = metadata.expiration_time
    if expiration is not None and expiration.milliseconds != fields.absolute_expiry.milliseconds:
        yield "absolute-expiry-time"


def _read_body(sections: Sections, limits: AmqpLimits) -> tuple[str, memoryview]:
    """503 Table 8: one sequence of two elements. The second one is not copied here."""
    if len(sections.body) != 1 or sections.body[0].kind is not Section.AMQP_SEQUENCE:
        raise malformed("the body is not one amqp-sequence section")
    parts = elements(sections.body[0].value, limits)
    if len(parts) != 2:
        raise malformed(f"the body has {len(parts)} elements instead of 2")
    if parts[1][0] not in BINARY:
        raise Refusal(Rule.FIELD_TYPE, "element #2 of the body is no binary")
    xml = decode_value(parts[0], limits)
    if type(xml) is not str:
        raise Refusal(Rule.FIELD_TYPE, "element #1 of the body is no string")
    return xml, binary(parts[1])


def _required(name: str, value: Value) -> str:
    text = _optional(name, value)
    if not text:
        raise _missing(name)
    return text


def _optional(name: str, value: Value) -> str:
    if value is None:
        return ""
    # A symbol or char is a str in Python, but not in AMQP.
    if type(value) is not str:
        raise wrong_type(name, value)
    return value


def _moment(name: str, value: Value) -> Instant:
    """A timestamp, or a date-time as text (see divergences, types of application properties)."""
    if isinstance(value, Timestamp):
        return named(name, Instant.of_milliseconds, value)
    return named(name, Instant.parse, _required(name, value))


def _integer(name: str, value: Value) -> int:
    if value is None:
        raise _missing(name)
    if isinstance(value, _INTEGERS):
        return int(value)
    raise wrong_type(name, value)


def _missing(name: str) -> Refusal:
    return Refusal(Rule.FIELD_MISSING, f"the required AMQP field {name} is missing")
