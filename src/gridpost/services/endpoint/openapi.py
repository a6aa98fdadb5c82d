"""The OpenAPI document of the JSON API: the contract that applications generate their clients from."""

from __future__ import annotations

from functools import cache
from typing import Any

from gridpost import __version__
from gridpost.core.delivery import Side, State, Status
from gridpost.core.holds import HoldKind

_TEXT = {"type": "string"}
_SIDE = {"type": "string", "enum": [side.value for side in Side]}
_STATUS = {"type": "string", "enum": [status.value for status in Status]}
_TIME = {"type": "string", "format": "date-time"}


@cache
def openapi_document() -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Gridpost endpoint",
            "version": __version__,
            "description": "Send, receive and follow documents of the electricity market.",
        },
        "servers": [{"url": "/api/v1"}],
        "security": [{"basic": []}, {"certificate": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "certificate": {"type": "mutualTLS"},
            },
            "schemas": _schemas(),
        },
    }


def _paths() -> dict[str, Any]:
    message_id = _parameter("id", "path", "The message ID.")
    side = _parameter("side", "query", "Whose view: sent (default) or received.", _SIDE)
    document = ("receiverCode", "messageType", "baMessageID", "senderApplication", "extension")
    return {
        "/messages": {
            "post": _operation(
                "send",
                "Send a document; the answer comes when it is safely stored.",
                [
                    _parameter(
                        "Idempotency-Key",
                        "header",
                        "Repeating a request with this key sends nothing twice.",
                    ),
                    *(
                        _parameter(name, "query", "For a body that is the document itself.")
                        for name in document
                    ),
                ],
                ("201", _ref("MessageID")),
                body={
                    "application/json": {"schema": _ref("Document")},
                    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
                },
            ),
            "get": _operation(
                "search",
                "Look for messages, newest first. A page may be short: only `next` null is the end.",
                [
                    side,
                    _parameter("status", "query", "Status of a sent message.", _STATUS),
                    *(
                        _parameter(name, "query", "Equal to this.")
                        for name in ("messageID", "conversationID", "baMessageID", "peer")
                    ),
                    _parameter("messageType", "query", "Equal to this."),
                    _parameter("since", "query", "Stored at or after.", _TIME),
                    _parameter("until", "query", "Stored before.", _TIME),
                    _parameter("limit", "query", "At most so many.", {"type": "integer"}),
                    _parameter("before", "query", "`next` of the page before.", {"type": "integer"}),
                ],
                ("200", _object(messages=_array(_ref("Message")), next={"type": ["integer", "null"]})),
            ),
        },
        "/messages/{id}": {
            "get": _operation("status", "One message.", [message_id, side], ("200", _ref("Message")))
        },
        "/messages/{id}/trace": {
            "get": _operation(
                "trace", "Everything that happened to it.", [message_id, side], ("200", _ref("Trace"))
            )
        },
        "/messages/{id}/explanation": {
            "get": _operation(
                "explain",
                "Why it is not there yet, and who must act.",
                [message_id, side],
                ("200", _ref("Explanation")),
            )
        },
        "/messages/{id}/proof": {
            "get": _operation(
                "proof",
                "The proof of the message as one file, to be verified offline.",
                [message_id, side],
                ("200", None),
                media_type="application/zip",
            )
        },
        "/received": {
            "get": _operation(
                "receive",
                "The first message of a type that no application has confirmed.",
                [
                    _parameter("messageType", "query", "Exactly this type.", required=True),
                    _parameter("content", "query", "false: without the document."),
                ],
                ("200", _ref("Received")),
            )
        },
        "/received/{id}/content": {
            "get": _operation(
                "content",
                "The document as it is.",
                [message_id],
                ("200", None),
                media_type="application/octet-stream",
            )
        },
        "/received/{id}/confirm": {
            "post": _operation(
                "confirm", "The document is safe with the application.", [message_id],
                ("200", _ref("MessageID")),
            )
        },
        "/connectivity-tests": {
            "post": _operation(
                "testConnectivity",
                "Send a tracing-message; its status becomes DELIVERED when the recipient answers.",
                [],
                ("201", _ref("MessageID")),
                body={
                    "application/json": {"schema": _object(receiverCode=_TEXT, messageType=_TEXT)}
                },
            )
        },
        "/events": {
            "get": _operation(
                "events",
                "Server-sent events: `status` of sent messages, `waiting` documents.",
                [],
                ("200", None),
                media_type="text/event-stream",
            )
        },
        **_operating(message_id),
    }  # fmt: skip


def _operating(message_id: dict[str, Any]) -> dict[str, Any]:
    """For users with the right of an operator."""
    reason = {"application/json": {"schema": _object(reason=_TEXT)}}
    kind = {"type": "string", "enum": [k.value for k in HoldKind if k is not HoldKind.MAINTENANCE]}

    def act(name: str, summary: str, status: str = "200") -> dict[str, Any]:
        answer = (status, _ref("MessageID"))
        return {"post": _operation(name, summary, [message_id], answer, body=reason)}

    return {
        "/messages/{id}/resend": act(
            "resend", "Send the document of a FAILED message as a new one.", "201"
        ),
        "/messages/{id}/cancel": act("cancel", "Give up an ACCEPTED message, not yet transferred."),
        "/received/{id}/release": act("release", "Offer a document that a check held back."),
        "/received/{id}/drop": act("drop", "Refuse a document that a check held back."),
        "/held-back": {
            "get": _operation(
                "heldBack",
                "Documents that a check held back, oldest first.",
                [],
                ("200", _object(messages=_array(_ref("HeldBack")))),
            )
        },
        "/holds": {
            "get": _operation(
                "holds", "What is paused.", [], ("200", _object(holds=_array(_ref("Hold"))))
            ),
            "post": _operation(
                "pause",
                "Pause sending to and handing over from a partner, of a type, by a channel.",
                [],
                ("200", _ref("Hold")),
                body={
                    "application/json": {"schema": _object(kind=kind, value=_TEXT, reason=_TEXT)}
                },
            ),
            "delete": _operation(
                "resume",
                "Go on.",
                [
                    _parameter("kind", "query", "What was paused.", kind, required=True),
                    _parameter("value", "query", "Which one.", required=True),
                ],
                ("200", _object(changed={"type": "boolean"})),
            ),
        },
        "/maintenance": {
            "put": _operation(
                "maintenance",
                "Refuse new documents, or take them again.",
                [],
                ("200", _object(on={"type": "boolean"}, changed={"type": "boolean"})),
                body={
                    "application/json": {"schema": _object(on={"type": "boolean"}, reason=_TEXT)}
                },
            )
        },
    }


def _schemas() -> dict[str, Any]:
    message = {
        "messageID": _TEXT,
        "side": _SIDE,
        "status": {"type": ["string", "null"], "enum": [*(s.value for s in Status), None]},
        "state": {"type": "string", "enum": [state.value for state in State]},
        "changedAt": _TIME,
        "expiresAt": _TIME,
        "generated": _TIME,
        "internalType": _TEXT,
        "senderCode": _TEXT,
        "receiverCode": _TEXT,
        "messageType": _TEXT,
        "baMessageID": _TEXT,
        "senderApplication": _TEXT,
        "extension": _TEXT,
        "conversationID": _TEXT,
        "route": _TEXT,
        "size": {"type": "integer"},
        "resendOf": _TEXT,
        "resentAs": _array(_TEXT),
    }
    base64 = {"type": "string", "contentEncoding": "base64"}
    step = _object(step=_TEXT, good={"type": ["boolean", "null"]}, text=_TEXT)
    line = _object(
        at=_TIME,
        event=_TEXT,
        state=_TEXT,
        moved={"type": "boolean"},
        detail=_TEXT,
        acknowledgementID=_TEXT,
    )
    return {
        "Document": {
            **_object(
                receiverCode=_TEXT,
                messageType=_TEXT,
                content=base64,
                baMessageID=_TEXT,
                senderApplication=_TEXT,
                extension=_TEXT,
            ),
            "required": ["receiverCode", "messageType", "content"],
        },
        "MessageID": _object(messageID=_TEXT),
        "HeldBack": _object(**message, reason=_TEXT),
        "Hold": _object(kind=_TEXT, value=_TEXT, by=_TEXT, since=_TIME, reason=_TEXT),
        "Message": _object(**message),
        "Trace": _object(**message, trace=_array(line)),
        "Explanation": _object(**message, explanation=_TEXT, mustAct=_TEXT, steps=_array(step)),
        "Received": _object(
            message={"oneOf": [_object(**message, content=base64), {"type": "null"}]},
            remaining={"type": "integer"},
        ),
        "Refused": _object(
            refused=_object(
                code=_TEXT,
                rule=_TEXT,
                message=_TEXT,
                details=_TEXT,
                retryable={"type": "boolean"},
                id=_TEXT,
            )
        ),
    }


def _operation(
    name: str,
    summary: str,
    parameters: list[dict[str, Any]],
    answer: tuple[str, dict[str, Any] | None],
    *,
    body: dict[str, Any] | None = None,
    media_type: str = "application/json",
) -> dict[str, Any]:
    status, schema = answer
    content = {media_type: {"schema": schema} if schema is not None else {}}
    refused = {"application/json": {"schema": _ref("Refused")}}
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "parameters": parameters,
        "responses": {
            status: {"description": "Done.", "content": content},
            "default": {"description": "Refused, with the reason.", "content": refused},
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": body}
    return operation


def _parameter(
    name: str,
    place: str,
    text: str,
    schema: dict[str, Any] | None = None,
    *,
    required: bool = False,
) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "description": text,
        "required": required or place == "path",
        "schema": schema or _TEXT,
    }


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
