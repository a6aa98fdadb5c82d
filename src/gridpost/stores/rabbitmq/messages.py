"""How a message of a queue lies in RabbitMQ, and what the things there are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gridpost.core.amqp091 import Incoming, Properties
from gridpost.core.queues import Queued
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.values import from_microseconds, to_microseconds

QUEUE: Final = "queue/"
HELD: Final = "held/"
UNREADABLE: Final = "unreadable"
"""What no edge put there, kept for the operator."""
LINKS: Final = "links/"
"""Whoever has links to a queue consumes here; whoever removes it, exclusively."""
PROBE: Final = "probe"
EDGES: Final = "edges"
"""Fanout exchange: what all edges have to know at once."""

_CONTENT_TYPE: Final = "application/vnd.gridpost.bare-message"
_NO_LIMIT: Final = -1


def arguments(version: tuple[int, ...], **more: Any) -> Mapping[str, Any]:
    """Of a durable queue. From 4.0 on RabbitMQ drops what failed twenty times unless told not to."""
    limit = {"x-delivery-limit": _NO_LIMIT} if version >= (4,) else {}
    return {"x-queue-type": "quorum", **limit, **more}


def encode(message: Queued, **headers: Any) -> tuple[bytes, Properties]:
    content = message.content
    assert content is not None
    return bytes(content), Properties(
        headers={
            "id": message.message_id,
            "sender": message.sender,
            "message-type": message.message_type,
            "stored-at": to_microseconds(message.stored_at),
            "expires-at": to_microseconds(message.expires_at),
            **({} if message.priority is None else {"priority": message.priority}),
            **headers,
        },
        content_type=_CONTENT_TYPE,
    )


def decode(incoming: Incoming, number: int) -> Queued:
    headers = incoming.properties.headers
    try:
        priority = headers.get("priority")
        return Queued(
            number,
            str(headers["id"]),
            str(headers["sender"]),
            str(headers["message-type"]),
            from_microseconds(int(headers["stored-at"])),
            from_microseconds(int(headers["expires-at"])),
            len(incoming.body),
            None if priority is None else int(priority),
            int(headers.get("x-delivery-count", 0)),
            incoming.body,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refusal(
            Rule.STORE_DAMAGED, "a message in RabbitMQ that no edge wrote", repr(error)
        ) from None
