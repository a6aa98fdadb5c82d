"""What a broker reads of an internal message that passes through (503 cl. 6.5.1): AMQP fields only.

The header is taken off, because ttl and delivery-count are the broker's to write (AMQP 3.2.1);
everything behind it passes on as it came and is never decoded beyond the properties.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import datetime, timedelta

from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.wire.amqp.codec import Buffer
from gridpost.wire.amqp.sections import decode_header, split_head
from gridpost.wire.mades.amqp_message import FIELD_LIMITS, MAX_TTL, read_fields

_COUNT = struct.Struct(">BI")


@dataclass(slots=True)
class Passing:
    """The fields that decide on acceptance and route, and the octets that pass on."""

    message_id: MessageId
    receiver_code: ComponentCode
    sender_code: ComponentCode
    subject: MessageType
    absolute_expiry: datetime
    ttl: int
    priority: int | None
    bare: Buffer

    def expires_at(self, now: datetime) -> datetime:
        """503 Tables 5 and 6: whichever is earlier; ttl counts from its arrival (AMQP 3.2.1)."""
        if self.ttl >= MAX_TTL:
            return self.absolute_expiry
        return min(self.absolute_expiry, now + timedelta(milliseconds=self.ttl))


def read_passing(message: Buffer) -> Passing:
    """Refuses a message that lacks a field of Tables 5 to 7, or is no AMQP message."""
    sections = split_head(message)
    fields = read_fields(sections)
    return Passing(
        fields.message_id,
        fields.receiver_code,
        fields.sender_code,
        fields.subject,
        fields.absolute_expiry.at,
        fields.ttl,
        decode_header(sections, FIELD_LIMITS).priority,
        sections.after_header,
    )


def passing_header(priority: int | None, ttl: int, failed_deliveries: int) -> bytes:
    """The header of the next transfer: durable, with the time that is left."""
    count = b"\x43" if not failed_deliveries else _COUNT.pack(0x70, failed_deliveries)
    first = b"\x42" if failed_deliveries else b"\x41"
    level = (0x40,) if priority is None else (0x50, priority)
    ttl = max(0, min(ttl, MAX_TTL))
    body = bytes((5, 0x41, *level, 0x70)) + ttl.to_bytes(4, "big") + first + count
    return b"\x00\x53\x70\xc0" + bytes((len(body),)) + body
