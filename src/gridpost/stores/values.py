"""How values of the core stand in a database: times as integers, metadata as JSON.

All stores with a database write these the same way, and read back exactly what was written.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.core.instant import Instant
from gridpost.core.message import Entry, InternalType, Metadata, Processor, ValueType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# Escapes everything that is not ASCII: any text comes back as it was, lone surrogates included.
write_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
read_json = json.loads


def to_microseconds(at: datetime) -> int:
    """Microseconds since 1970 in UTC. A datetime without a zone is a bug and raises."""
    return (at - _EPOCH) // _MICROSECOND


def from_microseconds(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def write_processors(processors: tuple[Processor, ...]) -> str:
    return write_json(_plain(processors)) if processors else "[]"


def read_processors(text: str) -> tuple[Processor, ...]:
    return () if text == "[]" else _processors(read_json(text))


def write_metadata(metadata: Metadata) -> str:
    """Metadata that nobody searches, as one JSON object."""
    return write_json(
        {
            "message_id": metadata.message_id,
            "receiver_code": metadata.receiver_code,
            "message_type": metadata.message_type,
            "generated": _write_instant(metadata.generated),
            "expiration_time": _write_instant(metadata.expiration_time),
            "sender_code": metadata.sender_code,
            "internal_type": metadata.internal_type,
            "extension": metadata.extension,
            "related_message_id": metadata.related_message_id,
            "sender_application": metadata.sender_application,
            "ba_message_id": metadata.ba_message_id,
            "processors": _plain(metadata.processors),
            "message_mversion": metadata.message_mversion,
            "sender_description": metadata.sender_description,
        }
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


def _plain(processors: tuple[Processor, ...]) -> list[Any]:
    """[[id, [[key, type, value], …]], …]: nothing is left out and nothing changes its place."""
    return [
        [p.processor_id, [[entry.key, entry.type, entry.value] for entry in p.entries]]
        for p in processors
    ]


def _processors(plain: list[Any]) -> tuple[Processor, ...]:
    return tuple(
        Processor(
            processor_id,
            tuple(Entry(key, ValueType(type_), value) for key, type_, value in entries),
        )
        for processor_id, entries in plain
    )


def _write_instant(instant: Instant | None) -> tuple[int, str] | None:
    return None if instant is None else (to_microseconds(instant.at), instant.text)


def _read_instant(pair: tuple[int, str] | None) -> Instant | None:
    return None if pair is None else Instant(from_microseconds(pair[0]), pair[1])
