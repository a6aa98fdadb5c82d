"""The web service of an endpoint for applications (503 cl. 11.1): what is read, and what is answered.

Local elements stand in no namespace (see divergences, namespaces of the SOAP interface).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lxml import etree

from gridpost.core.delivery import Status
from gridpost.core.delivery_report import DeliveryReport
from gridpost.core.message import Metadata
from gridpost.wire.soap.interface import Interface, Operation
from gridpost.wire.xml_text import element, optional, safe

NAMESPACE = "http://mades.entsoe.eu/2/"
_NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"
_XSI = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'

CONTENT = (f"{{{NAMESPACE}}}SendMessageRequest", "message", "content")
"""Where the document stands in a request."""

ERROR_ITEMS = {
    "SendMessage": "receiverCode",
    "ReceiveMessage": "messageType",
    "ConfirmReceiveMessage": "messageID",
    "ConnectivityTest": "receiverCode",
    "CheckMessageStatus": "messageID",
}
"""503 Tables 31, 35, 38, 44 and 47: what an error repeats of its request."""


def _operation(name: str) -> Operation:
    request = f"{{{NAMESPACE}}}{name}Request"
    large = (CONTENT,) if request == CONTENT[0] else ()
    return Operation(name, request, NAMESPACE + name, large)


ENDPOINT_SERVICE = Interface(
    "mades/MadesEndpointV2.wsdl", NAMESPACE, [_operation(name) for name in ERROR_ITEMS]
)


# ---------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True)
class SendMessage:
    """503 Tables 28 and 29; the document itself does not come this way."""

    receiver_code: str
    message_type: str
    sender_application: str
    ba_message_id: str
    conversation_id: str


def read_send(body: etree._Element) -> SendMessage:
    return SendMessage(
        text(body, "message/receiverCode"),
        text(body, "message/messageType"),
        text(body, "message/senderApplication"),
        text(body, "message/baMessageID"),
        text(body, "conversationID"),
    )


def read_receive(body: etree._Element) -> tuple[str, bool]:
    """503 Table 32: the message-type, and whether the document is wanted."""
    return text(body, "messageType"), text(body, "downloadMessage").strip() in ("true", "1")


def read_message_id(body: etree._Element) -> str:
    return text(body, "messageID")


def read_connectivity_test(body: etree._Element) -> tuple[str, str]:
    return text(body, "receiverCode"), text(body, "messageType")


def error_item(operation: str, body: etree._Element) -> str | None:
    """What can be said of a request, even one that breaks the schema."""
    path = ERROR_ITEMS[operation]
    found = body.find(f"message/{path}" if operation == "SendMessage" else path)
    return None if found is None else found.text or ""


def text(body: etree._Element, path: str) -> str:
    """Absent, nil and empty mean the same."""
    found = body.find(path)
    return "" if found is None or found.get(_NIL) in ("true", "1") else found.text or ""


# ---------------------------------------------------------------- responses


def with_message_id(operation: str, message_id: str) -> str:
    """503 Tables 30, 37 and 46."""
    return _global(f"{operation}Response", element("messageID", message_id))


def nothing_received() -> str:
    """503 Table 33 when nothing waits."""
    return _global("ReceiveMessageResponse", element("remainingMessagesCount", "0"))


def received(metadata: Metadata, remaining: int) -> tuple[str, str]:
    """What stands before and after the base64 text of `content` (503 Tables 33 and 34)."""
    whole = _global(
        "ReceiveMessageResponse",
        "<receivedMessage>"
        + element("messageID", metadata.message_id)
        + element("receiverCode", metadata.receiver_code)
        + element("senderCode", metadata.sender_code)
        + element("messageType", metadata.message_type)
        + "<content>\0</content>"
        + optional("senderApplication", metadata.sender_application)
        + optional("baMessageID", metadata.ba_message_id)
        + "</receivedMessage>"
        + element("remainingMessagesCount", str(remaining)),
    )
    before, _, after = whole.partition("\0")
    return before, after


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """503 Table 41."""

    metadata: Metadata
    state: Status
    report: DeliveryReport
    names: Mapping[str, str]
    """Display names of components."""


def status(found: MessageStatus) -> str:
    metadata = found.metadata
    items = "".join(
        "<trace>"
        + element("timestamp", str(event.timestamp))
        + element("state", event.status)
        + element("component", event.component)
        + element("componentDescription", found.names.get(event.component) or event.component)
        + (element("details", safe(event.details)) if event.details else _nil("details"))
        + "</trace>"
        for event in found.report.events
    )
    received_at = found.report.received_at
    return _global(
        "CheckMessageStatusResponse",
        "<messageStatus>"
        + element("messageID", metadata.message_id)
        + element("state", found.state)
        + element("receiverCode", metadata.receiver_code)
        + element("senderCode", metadata.sender_code)
        + element("messageType", metadata.message_type)
        + optional("senderApplication", metadata.sender_application)
        + optional("baMessageID", metadata.ba_message_id)
        + element("sendTimestamp", str(metadata.generated))
        + optional("receiveTimestamp", "" if received_at is None else str(received_at))
        + (f"<trace>{items}</trace>" if items else _nil("trace"))
        + "</messageStatus>",
    )


@dataclass(frozen=True, slots=True)
class ServiceError:
    """503 Table 26."""

    code: str
    error_id: str
    message: str
    details: str = ""


def error(operation: str, found: ServiceError, item: str | None) -> str:
    return _global(
        f"{operation}Error",
        element("errorCode", found.code)
        + element("errorID", found.error_id)
        + element("errorMessage", safe(found.message))
        + ("" if item is None else element(ERROR_ITEMS[operation], safe(item)))
        + optional("errorDetails", safe(found.details)),
    )


def _global(name: str, content: str) -> str:
    return f'<mades:{name} xmlns:mades="{NAMESPACE}">{content}</mades:{name}>'


def _nil(name: str) -> str:
    return f'<{name} {_XSI} xsi:nil="true"/>'
