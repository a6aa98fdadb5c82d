"""The endpoint interface of MADES 1.1 (cl. 5.2): what is read, and what is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lxml import etree

from gridpost.core.instant import Instant
from gridpost.core.message import Metadata
from gridpost.wire.mades.endpoint_service import SendMessage, ServiceError
from gridpost.wire.mades11.forms import boolean, container, text
from gridpost.wire.xml_text import element, optional, safe

_XSI = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'

ERROR_ITEMS = {
    "SendMessage": "receiverCode",
    "ReceiveMessage": "businessType",
    "ConfirmReceiveMessage": "messageID",
    "ConnectivityTest": "receiverCode",
    "CheckMessageStatus": "messageID",
}
"""What an error repeats of its request."""


def read_send(body: etree._Element) -> SendMessage:
    return SendMessage(
        text(body, "message/receiverCode"),
        text(body, "message/businessType"),
        text(body, "message/senderApplication"),
        text(body, "message/baMessageID"),
        text(body, "conversationID"),
    )


def read_receive(body: etree._Element) -> tuple[str, bool]:
    return text(body, "businessType"), boolean(body, "downloadMessage")


def with_message_id(operation: str, message_id: str) -> str:
    return container(f"{operation}Response", element("messageID", message_id))


def nothing_received() -> str:
    return container("ReceiveMessageResponse", element("remainingMessagesCount", "0"))


def received(metadata: Metadata, remaining: int) -> tuple[str, str]:
    """What stands before and after the base64 text of `content` (Table 74)."""
    whole = container(
        "ReceiveMessageResponse",
        "<receivedMessage>"
        + element("messageID", metadata.message_id)
        + element("receiverCode", metadata.receiver_code)
        + element("senderCode", metadata.sender_code)
        + element("businessType", metadata.message_type)
        + "<content>\0</content>"
        + optional("senderApplication", metadata.sender_application)
        + optional("baMessageID", metadata.ba_message_id)
        + "</receivedMessage>"
        + element("remainingMessagesCount", str(remaining)),
    )
    before, _, after = whole.partition("\0")
    return before, after


@dataclass(frozen=True, slots=True)
class OldTraceItem:
    """Table 70."""

    timestamp: Instant
    state: str
    component: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class OldStatus:
    """Table 69."""

    metadata: Metadata
    state: str
    receive_timestamp: Instant | None
    trace: Sequence[OldTraceItem]
    names: Mapping[str, str]


def status(found: OldStatus) -> str:
    metadata, received_at = found.metadata, found.receive_timestamp
    items = "".join(
        "<trace>"
        + element("timestamp", str(item.timestamp))
        + element("state", item.state)
        + element("component", item.component)
        + element("componentDescription", found.names.get(item.component) or item.component)
        + (element("details", safe(item.details)) if item.details else _nil("details"))
        + "</trace>"
        for item in found.trace
    )
    return container(
        "CheckMessageStatusResponse",
        "<messageStatus>"
        + element("messageID", metadata.message_id)
        + element("state", found.state)
        + element("receiverCode", metadata.receiver_code)
        + element("senderCode", metadata.sender_code)
        + element("businessType", metadata.message_type)
        + optional("senderApplication", metadata.sender_application)
        + optional("baMessageID", metadata.ba_message_id)
        + element("sendTimestamp", str(metadata.generated))
        + optional("receiveTimestamp", "" if received_at is None else str(received_at))
        + (f"<trace>{items}</trace>" if items else _nil("trace"))
        + "</messageStatus>",
    )


def error_item(operation: str, body: etree._Element) -> str | None:
    """What can be said of a request, even one that breaks the schema."""
    path = ERROR_ITEMS[operation]
    found = body.find(f"message/{path}" if operation == "SendMessage" else path)
    return None if found is None else found.text or ""


def error(operation: str, found: ServiceError, item: str | None) -> str:
    return container(
        f"{operation}Error",
        element("errorCode", found.code)
        + element("errorID", found.error_id)
        + element("errorMessage", safe(found.message))
        + ("" if item is None else element(ERROR_ITEMS[operation], safe(item)))
        + optional("errorDetails", safe(found.details)),
    )


def _nil(name: str) -> str:
    return f'<{name} {_XSI} xsi:nil="true"/>'
