"""What lies in the databases of earlier versions; written once, and expected ever after."""

from __future__ import annotations

from typing import Any

from gridpost.core.delivery import Event, Side
from gridpost.core.message import Entry, Processor, ValueType
from support.boxed import box_entry, happen, note, put
from support.queues import queued

PROCESSORS = (
    Processor("signature", (Entry("Signature", ValueType.STRING, "ä €"),)),
    Processor("zip"),
    Processor("encryption", (Entry("Length", ValueType.LONG, "007"),)),
)
SENT = box_entry(
    message_id="m-sent",
    application="trader",
    conversation_id="c-1",
    size=8,
    ba_message_id="ba-1",
    processors=PROCESSORS,
)
PLAIN = (Processor("signature", (Entry("Signature", ValueType.STRING, "abc"),)), Processor("zip"))
RECEIVED = box_entry(Side.RECEIVED, message_id="m-received", size=7, processors=PLAIN)


def fill_box(unit: Any) -> None:
    put(unit, SENT, b"document")
    happen(unit, SENT, Event.TRANSFERRED)
    put(unit, RECEIVED, b"another")
    unit.journal.append(note("written long ago"))


QUEUE = "E2"
QUEUED = queued(b"a sealed message", "6f9619ff-8b86-4d01-b42d-00cf4fc964ff")
