"""The REST binding: the same handlers, with the verb in the method and the header in HTTP's own.

A body is the noun's payload, not an envelope; the envelope is made here. The answer is the response's
envelope, or its payload where `Accept` says `application/vnd.gridpost.payload+xml`.
"""

from __future__ import annotations

from datetime import datetime

from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from gridpost.core.envelope import (
    Header,
    Identifier,
    IdKind,
    Pair,
    Payload,
    ReplayDetection,
    Request,
    RequestMessage,
    ResponseMessage,
    Result,
    User,
    Verb,
    specific,
)
from gridpost.core.envelope_exchange import fault
from gridpost.core.identifiers import clip
from gridpost.core.instant import Instant
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.door import WebDoor
from gridpost.services.bus.settings import BusSettings
from gridpost.services.bus.soap_api import Authenticate, anybody
from gridpost.wire.envelope import Fragment, decode, encode

PAYLOAD = "application/vnd.gridpost.payload+xml"
_METHODS = {"GET": Verb.GET, "POST": Verb.CREATE, "PUT": Verb.CHANGE, "DELETE": Verb.DELETE}
_ACTIONS = {"cancel": Verb.CANCEL, "close": Verb.CLOSE, "execute": Verb.EXECUTE}
_STATUS = {
    Rule.OBJECT_UNKNOWN.name: 404,
    Rule.OBJECT_EXISTS.name: 409,
    Rule.ENVELOPE_REPLAY.name: 409,
    Rule.NOT_HANDLED.name: 404,
    Rule.ENVELOPE_CONTEXT.name: 403,
    Rule.HANDLER_TIMEOUT.name: 504,
    Rule.INTERNAL.name: 500,
}

_REFUSED = {Rule.LIMIT_EXCEEDED: 413}


class RestApi:
    def __init__(
        self, door: WebDoor, settings: BusSettings, authenticate: Authenticate = anybody
    ) -> None:
        self._door = door
        self._settings = settings
        self._authenticate = authenticate

    def routes(self) -> list[BaseRoute]:
        path = "/bus/{context}/rest/{noun}"
        methods = list(_METHODS)
        return [
            Route(path, self._call, methods=methods),
            Route(path + "/{id}", self._call, methods=methods),
            Route(path + "/{id}/{action}", self._call, methods=["POST"]),
        ]

    async def _call(self, request: HttpRequest) -> Response:
        try:
            await self._authenticate(request)
        except Refusal as refusal:
            headers = {"www-authenticate": 'Basic realm="gridpost"'}
            return PlainTextResponse(refusal.message + "\n", 401, headers)
        context = request.path_params["context"]
        if context not in self._settings.contexts:
            return PlainTextResponse("there is no such context here\n", 404)
        try:
            message = await self._message(request, context)
            given = await self._door.request(encode(message), context, request.url.path)
        except Refusal as refusal:
            status = 503 if refusal.retryable else _REFUSED.get(refusal.rule, 400)
            return Response(encode(fault(refusal)), status, media_type="application/xml")
        return _answer(request, given.body)

    async def _body(self, request: HttpRequest) -> bytes:
        """All of it is read, so that the client comes to the answer; no more than allowed is kept."""
        limit, kept, total = self._settings.max_bytes, bytearray(), 0
        async for chunk in request.stream():
            total += len(chunk)
            if total <= limit:
                kept += chunk
        if total > limit:
            raise Refusal(Rule.LIMIT_EXCEEDED, f"a payload has at most {limit} bytes")
        return bytes(kept)

    async def _message(self, request: HttpRequest, context: str) -> RequestMessage:
        noun, action = request.path_params["noun"], request.path_params.get("action")
        verb = _METHODS.get(request.method, Verb.GET)
        if action is not None:
            if action not in _ACTIONS:
                raise Refusal(Rule.ENVELOPE_VERB, f"'{clip(action)}' is no action of an object")
            verb = _ACTIONS[action]
        body = await self._body(request)
        said, query = request.headers, request.query_params
        kind = IdKind(query["kind"]) if query.get("kind") in tuple(IdKind) else None
        ids = [i for i in (request.path_params.get("id"), *query.getlist("id")) if i]
        wanted = Request(
            _time(query.get("start"), "start"),
            _time(query.get("end"), "end"),
            tuple(Pair(n, v) for n, v in query.multi_items() if n not in _QUERY),
            tuple(Identifier(i, kind) for i in ids),
        )
        header = Header(
            verb,
            noun,
            replay_detection=_replay(said.get("x-nonce"), said.get("x-created")),
            context=said.get("x-context", context),
            source=said.get("x-source"),
            async_reply=True if "x-reply-address" in said else None,
            reply_address=said.get("x-reply-address"),
            ack_required=False if said.get("prefer") == "respond-async" else None,
            user=User(said["x-user-id"]) if "x-user-id" in said else None,
            message_id=said.get("x-message-id") or said.get("idempotency-key"),
            correlation_id=said.get("x-correlation-id"),
        )
        payload = None
        if body.strip():
            payload = Payload((Fragment.parse(body, self._settings.reading.limits),))
        return RequestMessage(header, None if wanted == Request() else wanted, payload)


_QUERY = ("id", "start", "end", "kind")


def _replay(nonce: str | None, created: str | None) -> ReplayDetection | None:
    if not nonce and not created:
        return None
    at = _time(created, "X-Created")
    if not nonce or at is None:
        raise Refusal(Rule.BAD_VALUE, "X-Nonce and X-Created go together")
    return ReplayDetection(nonce, at)


def _time(text: str | None, name: str) -> Instant | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise Refusal(Rule.BAD_VALUE, f"{name} is a time with its offset: 2026-01-31T00:00:00Z")
    return Instant.of(at)


def _answer(request: HttpRequest, body: bytes | None) -> Response:
    if body is None:
        return Response(status_code=202)
    message = specific(decode(body))
    if not isinstance(message, ResponseMessage):
        return Response(body, 400, media_type="application/xml")
    reply = message.reply
    status = 200
    if reply.result is Result.FAILED:
        status = next((_STATUS[code] for code in sorted(reply.codes) if code in _STATUS), 422)
    elif reply.more_follow:
        status = 202
    elif request.method == "POST" and "action" not in request.path_params:
        status = 201
    headers = {"x-correlation-id": message.header.correlation_id or ""}
    content = message.payload.content if message.payload is not None else ()
    if PAYLOAD in request.headers.get("accept", "") and len(content) == 1 and status == 200:
        return Response(content[0].text, status, headers, PAYLOAD)
    return Response(body, status, headers, "application/xml")
