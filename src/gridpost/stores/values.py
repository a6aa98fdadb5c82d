"""How values of the core stand in a database: times as integers, metadata as JSON.

All stores with a database write these the same way, and read back exactly what was written.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring_ascii as _text
from typing import Any

from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.core.instant import Instant
from gridpost.core.message import Entry, InternalType, Metadata, Processor, ValueType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# Escapes everything that is not ASCII: any text comes back as it was, lone surrogates included.
write_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
read_json = json.loads

_METADATA = (
    '{"message_id":%s,"receiver_code":%s,"message_type":%s,"generated":%s,"expiration_time":%s,'
    '"sender_code":%s,"internal_type":%s,"extension":%s,"related_message_id":%s,'
    '"sender_application":%s,"ba_message_id":%s,"processors":%s,"message_mversion":%d,'
    '"sender_description":%s}'
)


def to_microseconds(at: datetime) -> int:
    """Microseconds since 1970 in UTC. A datetime without a zone is a bug and raises."""
    return (at - _EPOCH) // _MICROSECOND


def from_microseconds(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def write_processors(processors: tuple[Processor, ...]) -> str:
    """[[id, [[key, type, value], …]], …]: nothing is left out and nothing changes its place."""
    return f"[{','.join([_write_processor(processor) for processor in processors])}]"


def _write_processor(processor: Processor) -> str:
    entries = [
        f"[{_text(entry.key)},{_text(entry.type)},{_text(entry.value)}]"
        for entry in processor.entries
    ]
    return f"[{_text(processor.processor_id)},[{','.join(entries)}]]"


def read_processors(text: str) -> tuple[Processor, ...]:
    return () if text == "[]" else _processors(read_json(text))


def write_metadata(metadata: Metadata) -> str:
    """Metadata that nobody searches, as one JSON object.

    Put together field by field: every acknowledgement comes by here, and building an object first
    takes twice as long.
    """
    return _METADATA % (
        _text(metadata.message_id),
        _text(metadata.receiver_code),
        _text(metadata.message_type),
        _write_instant(metadata.generated),
        _write_instant(metadata.expiration_time),
        _text(metadata.sender_code),
        _text(metadata.internal_type),
        _text(metadata.extension),
        _text(metadata.related_message_id),
        _text(metadata.sender_application),
        _text(metadata.ba_message_id),
        write_processors(metadata.processors),
        metadata.message_mversion,
        _text(metadata.sender_description),
    )


def read_metadata(text: str) -> Metadata:
    fields: dict[str, Any] = read_json(text)
    generated = _read_instant(fields["generated"])
    if generated is None:
        raise ValueError("metadata without the time of its generation")
    return Metadata(
        message_id=MessageId(fields["message_id"]),
        receiver_code=ComponentCode(fields["receiver_code"]),
        message_type=MessageType(fields["message_type"]),
        generated=generated,
        expiration_time=_read_instant(fields["expiration_time"]),
        sender_code=ComponentCode(fields["sender_code"]),
        internal_type=InternalType(fields["internal_type"]),
        extension=fields["extension"],
        related_message_id=fields["related_message_id"],
        sender_application=fields["sender_application"],
        ba_message_id=fields["ba_message_id"],
        processors=_processors(fields["processors"]),
        message_mversion=fields["message_mversion"],
        sender_description=fields.get("sender_description", ""),
    )


def _processors(plain: list[Any]) -> tuple[Processor, ...]:
    return tuple(
        Processor(
            processor_id,
            tuple(Entry(key, ValueType(type_), value) for key, type_, value in entries),
        )
        for processor_id, entries in plain
    )


def _write_instant(instant: Instant | None) -> str:
    return "null" if instant is None else f"[{to_microseconds(instant.at)},{_text(instant.text)}]"


def _read_instant(pair: tuple[int, str] | None) -> Instant | None:
    return None if pair is None else Instant(from_microseconds(pair[0]), pair[1])
