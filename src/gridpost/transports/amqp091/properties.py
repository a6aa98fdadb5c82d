"""How the properties of a message stand in the frames of the library, out and in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from aiormq import spec

from gridpost.core.amqp091 import Incoming, Properties

_PERSISTENT: Final = 2
_MILLISECOND: Final = timedelta(milliseconds=1)


def delivery_mode(properties: Properties) -> int:
    return _PERSISTENT if properties.persistent else 1


def expiration_text(expiration: timedelta) -> str:
    return str(expiration // _MILLISECOND)


def to_library(properties: Properties, message_id: str | None) -> spec.Basic.Properties:
    expiration = properties.expiration
    return spec.Basic.Properties(
        headers=dict(properties.headers),
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        delivery_mode=delivery_mode(properties),
        priority=properties.priority,
        correlation_id=properties.correlation_id,
        reply_to=properties.reply_to,
        expiration=None if expiration is None else expiration_text(expiration),
        message_id=message_id,
        timestamp=properties.timestamp,
        message_type=properties.type,
        user_id=properties.user_id,
        app_id=properties.app_id,
    )


def from_library(delivered: Any) -> Incoming:
    found, frame = delivered.header.properties, delivered.delivery
    expiration, timestamp = found.expiration, found.timestamp
    if isinstance(timestamp, int | float):
        timestamp = datetime.fromtimestamp(timestamp, UTC)
    return Incoming(
        frame.delivery_tag,
        delivered.body,
        Properties(
            headers=found.headers or {},
            content_type=found.content_type,
            content_encoding=found.content_encoding,
            persistent=found.delivery_mode == _PERSISTENT,
            priority=found.priority,
            correlation_id=found.correlation_id,
            reply_to=found.reply_to,
            expiration=timedelta(milliseconds=int(expiration)) if expiration else None,
            message_id=found.message_id,
            timestamp=timestamp,
            type=found.message_type,
            user_id=found.user_id,
            app_id=found.app_id,
        ),
        frame.exchange or "",
        frame.routing_key or "",
        bool(frame.redelivered),
        getattr(frame, "consumer_tag", None) or "",
    )
