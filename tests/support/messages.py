"""Messages for tests of the seal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.core.instant import Instant
from gridpost.core.message import InternalMessage, InternalType, Metadata
from support.pki import NOW

CONTENT = b"<Document>a schedule \xc3\xa9\x00\xff</Document>"
MESSAGE_ID = "0a4c1b6e-52cc-4c7a-9a38-0d7b6a1e2f30"


def metadata(**changes: Any) -> Metadata:
    """Every signed attribute has a value of its own."""
    base = Metadata(
        message_id=MessageId(MESSAGE_ID),
        receiver_code=ComponentCode("E2"),
        message_type=MessageType("A01"),
        generated=Instant.of(NOW),
        expiration_time=None,
        sender_code=ComponentCode("E1"),
        internal_type=InternalType.STANDARD_MESSAGE,
        extension="xml",
        related_message_id="rel-1",
        sender_application="App7",
        ba_message_id="BA1",
    )
    return replace(base, **changes)


def message(content: bytes = CONTENT, **changes: Any) -> InternalMessage:
    return InternalMessage(metadata(**changes), content)


def acknowledgement(content: bytes, **changes: Any) -> InternalMessage:
    """From E2 to E1, about `message()`."""
    return InternalMessage(
        metadata(
            **{
                "message_id": MessageId("5d0f8a52-7d0c-45de-8f0b-3fd1a43a7a10"),
                "receiver_code": ComponentCode("E1"),
                "sender_code": ComponentCode("E2"),
                "internal_type": InternalType.DELIVERY_ACKNOWLEDGEMENT,
                "related_message_id": MESSAGE_ID,
                "extension": "",
                "sender_application": "",
                "ba_message_id": "",
                **changes,
            }
        ),
        content,
    )
