"""Messages for a message box, and the short works that tests do with them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gridpost.core.delivery import Decision, Event, Occurrence, Side, begin, decide
from gridpost.core.identifiers import MessageId
from gridpost.core.journal import AdministrationRow
from gridpost.core.message import InternalMessage, InternalType, Metadata
from gridpost.core.message_box import BoxEntry
from gridpost.core.message_path import Route
from gridpost.core.ports import UnitOfWork
from support.builders import NOW, metadata

ROUTE = Route.parse("INDIRECT:B1")
EXPIRY = NOW + timedelta(hours=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def box_entry(
    side: Side = Side.SENT,
    *,
    message_id: str = "",
    expires: datetime = EXPIRY,
    now: datetime = NOW,
    application: str = "",
    conversation_id: str = "",
    size: int = 0,
    **fields: Any,
) -> BoxEntry:
    """An entry before its first event; `fields` replace those of its metadata."""
    described = replace(metadata(expires=expires), **fields)
    if message_id:
        described = replace(described, message_id=MessageId(message_id))
    delivery = begin(side, described.message_id, expires, now)
    return BoxEntry(delivery, described, ROUTE, b"\x07" * 64, size, application, conversation_id)


def put(unit: UnitOfWork, entry: BoxEntry, content: bytes = b"document") -> bool:
    """Put it and let its first event happen, at the time it was made."""
    first = Event.ACCEPT if entry.delivery.side is Side.SENT else Event.VERIFIED
    if entry.metadata.internal_type is InternalType.TRACING_MESSAGE:
        sent = entry.delivery.side is Side.SENT
        first = Event.ACCEPT_TRACING if sent else Event.VERIFIED_TRACING
    if not unit.box.put(entry, content):
        return False
    happen(unit, entry, first, entry.delivery.changed_at)
    return True


def happen(
    unit: UnitOfWork, entry: BoxEntry, event: Event, now: datetime = NOW, detail: str = ""
) -> Decision:
    """An event of a message that is in the box."""
    found = unit.box.find(entry.delivery.side, entry.message_id)
    assert found is not None
    decision = decide(found.delivery, Occurrence(event, detail), now)
    unit.box.move(entry.delivery.side, decision)
    return decision


def internal(entry: BoxEntry, content: bytes = b"document") -> InternalMessage:
    return InternalMessage(entry.metadata, content)


def acknowledgement(of: Metadata, content: bytes = b"ack") -> InternalMessage:
    own = metadata(
        InternalType.DELIVERY_ACKNOWLEDGEMENT, sender=of.receiver_code, receiver=of.sender_code
    )
    return InternalMessage(replace(own, related_message_id=of.message_id), content)


def note(text: str, at: datetime = NOW) -> AdministrationRow:
    """The smallest journal row."""
    return AdministrationRow(at, "tester", text)
