"""How requests are read and values are written in the JSON API; names follow 503 Tables 29 to 40."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from datetime import datetime
from typing import Any

from starlette.requests import Request

from gridpost.core.delivery import Side, Status, TraceEntry
from gridpost.core.explanation import Explanation
from gridpost.core.holds import Links
from gridpost.core.identifiers import ComponentCode, clip
from gridpost.core.instant import Instant
from gridpost.core.message_box import BoxEntry, Search
from gridpost.core.refusal import Code, Refusal, Rule
from gridpost.services.endpoint.submission import Document

MAX_PAGE = 500

_STATUS = {
    Rule.ACCESS_DENIED: 403,
    Rule.MESSAGE_UNKNOWN: 404,
    Rule.CONVERSATION_REUSED: 409,
    Rule.NOT_WAITING: 409,
    Rule.NOT_CANCELLABLE: 409,
    Rule.NOT_FAILED: 409,
    Rule.NOT_HELD_BACK: 409,
    Rule.RESENT_ALREADY: 409,
    Rule.UNDER_WAY: 409,
    Rule.CHECK_FAILED: 503,
    Rule.MESSAGE_EXPIRED: 410,
    Rule.CONTENT_TOO_LARGE: 413,
    Rule.LIMIT_EXCEEDED: 413,
    Rule.STORE_FULL: 507,
    Rule.DIRECTORY_DATA_LAPSED: 503,
    Rule.NO_SIGNING_CERTIFICATE: 503,
}
_BY_CODE = {
    Code.INVALID_PARAMETERS: 400,
    Code.VALIDATION_ERROR: 422,
    Code.AUTHENTICATION_ERROR: 403,
    Code.CONCURRENT_ERROR: 503,
    Code.INTERNAL_ERROR: 500,
}


def status_of(refusal: Refusal) -> int:
    return _STATUS.get(refusal.rule, _BY_CODE[refusal.code])


async def document_of(request: Request, max_content: int) -> Document:
    """A document as JSON with base64, or as it is with its metadata in the query."""
    key = request.headers.get("idempotency-key", "")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "application/json":
        body = await read_json(request, max_content * 4 // 3 + 64 * 1024)
        content = _content(body)
        fields = {name: body.get(name, "") for name in _FIELDS}
    else:
        content = await _body(request, max_content)
        fields = {name: request.query_params.get(name, "") for name in _FIELDS}
    for name, value in fields.items():
        if not isinstance(value, str):
            raise Refusal(Rule.USAGE, f"'{name}' must be a text")
    return Document(
        fields["receiverCode"],
        fields["messageType"],
        content,
        fields["baMessageID"],
        fields["senderApplication"],
        fields["extension"],
        key,
    )


_FIELDS = ("receiverCode", "messageType", "baMessageID", "senderApplication", "extension")


def _content(body: dict[str, Any]) -> bytes:
    text = body.get("content", "")
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise Refusal(Rule.USAGE, "'content' must be base64") from None


async def _body(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise Refusal(Rule.CONTENT_TOO_LARGE, f"this endpoint accepts {limit} bytes")
    return bytes(body)


async def read_json(request: Request, limit: int) -> dict[str, Any]:
    try:
        value = json.loads(await _body(request, limit) or b"{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Refusal(Rule.USAGE, "the body must be one JSON object")
    return value


def text_of(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise Refusal(Rule.USAGE, f"'{name}' is missing")
    return value


def one_side(request: Request) -> Side:
    text = request.query_params.get("side", Side.SENT)
    try:
        return Side(text)
    except ValueError:
        raise Refusal(Rule.USAGE, f"side is sent or received, not '{clip(text)}'") from None


def search_of(request: Request) -> tuple[Search, int, int | None]:
    query = request.query_params
    side, status = query.get("side", ""), query.get("status", "")
    try:
        limit = max(1, min(MAX_PAGE, int(query.get("limit", "100"))))
        before = int(query["before"]) if "before" in query else None
        search = Search(
            Side(side) if side else None,
            query.get("messageID", ""),
            query.get("conversationID", ""),
            query.get("baMessageID", ""),
            ComponentCode(query["peer"]) if query.get("peer") else None,
            query.get("messageType", ""),
            Status(status) if status else None,
            _moment(query.get("since", "")),
            _moment(query.get("until", "")),
        )
    except ValueError as error:
        raise Refusal(Rule.USAGE, f"the search cannot be read: {clip(str(error))}") from None
    return search, limit, before


def _moment(text: str) -> datetime | None:
    return Instant.parse(text).at if text else None


def entry_form(entry: BoxEntry, links: Links | None = None) -> dict[str, Any]:
    links = links or Links()
    metadata, delivery = entry.metadata, entry.delivery
    return {
        "messageID": entry.message_id,
        "side": delivery.side,
        "status": delivery.status,
        "state": delivery.state,
        "changedAt": delivery.changed_at.isoformat(),
        "expiresAt": delivery.expires_at.isoformat(),
        "generated": metadata.generated.text,
        "internalType": metadata.internal_type,
        "senderCode": metadata.sender_code,
        "receiverCode": metadata.receiver_code,
        "messageType": metadata.message_type,
        "baMessageID": metadata.ba_message_id,
        "senderApplication": metadata.sender_application,
        "extension": metadata.extension,
        "conversationID": entry.conversation_id,
        "route": str(entry.route),
        "size": entry.size,
        "resendOf": links.resend_of,
        "resentAs": list(links.resent_as),
    }


def trace_form(line: TraceEntry) -> dict[str, Any]:
    return {
        "at": line.at.isoformat(),
        "event": line.event,
        "state": line.state,
        "moved": line.moved,
        "detail": line.detail,
        "acknowledgementID": line.acknowledgement_id,
    }


def explanation_form(found: Explanation) -> dict[str, Any]:
    return {
        "explanation": found.summary,
        "mustAct": found.actor,
        "steps": [{"step": s.name, "good": s.good, "text": s.text} for s in found.steps],
    }
