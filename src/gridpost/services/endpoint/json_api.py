"""The JSON API: how business applications send, receive and ask over HTTP.

Decides what a request means and how a refusal is answered. Everything it does goes through
Submission, Handover, Enquiry and their like; it has no way of its own to messages.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Scope

from gridpost.core.channels import Channel, Origin
from gridpost.core.delivery import Side
from gridpost.core.message_box import BoxEntry
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.enquiry import Enquiry
from gridpost.services.endpoint.events import Events
from gridpost.services.endpoint.evidence import Evidence
from gridpost.services.endpoint.explaining import Explaining
from gridpost.services.endpoint.handover import Handover
from gridpost.services.endpoint.json_forms import (
    document_of,
    entry_form,
    explanation_form,
    one_side,
    read_json,
    search_of,
    status_of,
    text_of,
    trace_form,
)
from gridpost.services.endpoint.json_operating import OperatorApi
from gridpost.services.endpoint.openapi import openapi_document
from gridpost.services.endpoint.operating import Operating
from gridpost.services.endpoint.refusing import keep_refusal
from gridpost.services.endpoint.submission import Submission
from gridpost.services.endpoint.users import User, Users, check_channel, check_send
from gridpost.wire.proof_file import encode as encode_proof

log = structlog.get_logger(__name__)

PREFIX = "/api/v1"
ClientChain = Callable[[Scope], tuple[bytes, ...]]
Handler = Callable[[Request, User], Awaitable[Response]]


class JsonApi:
    def __init__(
        self,
        context: EndpointContext,
        users: Users,
        submission: Submission,
        handover: Handover,
        enquiry: Enquiry,
        explaining: Explaining,
        evidence: Evidence,
        events: Events,
        client_chain: ClientChain,
        operating: Operating,
    ) -> None:
        self._context = context
        self.users = users
        self._submission = submission
        self._handover = handover
        self._enquiry = enquiry
        self._explaining = explaining
        self._evidence = evidence
        self._events = events
        self._client_chain = client_chain
        self._operators = OperatorApi(operating)

    def app(self) -> Starlette:
        def route(path: str, handler: Handler, method: str = "GET") -> Route:
            return Route(PREFIX + path, self._guarded(handler), methods=[method])

        return Starlette(
            routes=[
                Route(PREFIX + "/openapi.json", self._openapi, methods=["GET"]),
                route("/messages", self._send, "POST"),
                route("/messages", self._search),
                route("/messages/{id}", self._status),
                route("/messages/{id}/trace", self._trace),
                route("/messages/{id}/explanation", self._explain),
                route("/messages/{id}/proof", self._proof),
                route("/received", self._receive),
                route("/received/{id}/content", self._content),
                route("/received/{id}/confirm", self._confirm, "POST"),
                route("/connectivity-tests", self._test, "POST"),
                route("/events", self._stream),
                *self._operators.routes(route),
            ],
            exception_handlers={HTTPException: _nothing_here},
        )

    # ------------------------------------------------------------ sending

    async def _send(self, request: Request, user: User) -> Response:
        document = await document_of(request, self._context.settings.max_content)
        check_send(user, document.message_type)
        message_id = await self._submission.send(_origin(user), document)
        return JSONResponse({"messageID": message_id}, 201)

    async def _test(self, request: Request, user: User) -> Response:
        body = await read_json(request, 64 * 1024)
        receiver, type_ = text_of(body, "receiverCode"), text_of(body, "messageType")
        check_send(user, type_)
        message_id = await self._submission.test_connectivity(_origin(user), receiver, type_)
        return JSONResponse({"messageID": message_id}, 201)

    # ------------------------------------------------------------ receiving

    async def _receive(self, request: Request, user: User) -> Response:
        type_ = request.query_params.get("messageType", "")
        self.users.check_receive(user, Channel.JSON, type_)
        download = request.query_params.get("content", "true") != "false"
        handed = await self._handover.receive(type_, download=download, channel=Channel.JSON)
        if handed.entry is None:
            return JSONResponse({"message": None, "remaining": 0})
        message = entry_form(handed.entry)
        if handed.content is not None:
            content = await asyncio.to_thread(b64encode, handed.content)
            message["content"] = content.decode("ascii")
        return JSONResponse({"message": message, "remaining": handed.remaining})

    async def _content(self, request: Request, user: User) -> Response:
        entry = await self._enquiry.entry(Side.RECEIVED, request.path_params["id"])
        self.users.check_receive(user, Channel.JSON, entry.metadata.message_type)
        content = await self._handover.content(entry.message_id)
        return Response(content, media_type="application/octet-stream")

    async def _confirm(self, request: Request, user: User) -> Response:
        entry = await self._enquiry.entry(Side.RECEIVED, request.path_params["id"])
        self.users.check_receive(user, Channel.JSON, entry.metadata.message_type)
        await self._handover.confirm(entry.message_id)
        return JSONResponse({"messageID": entry.message_id})

    # ------------------------------------------------------------ asking

    async def _status(self, request: Request, user: User) -> Response:
        side = one_side(request)
        entry = await self._enquiry.entry(side, request.path_params["id"])
        self._check_side(user, side, entry.metadata.message_type)
        return JSONResponse(await self._form(entry))

    async def _trace(self, request: Request, user: User) -> Response:
        side = one_side(request)
        entry = await self._enquiry.entry(side, request.path_params["id"])
        self._check_side(user, side, entry.metadata.message_type)
        trace = await self._enquiry.trace(side, entry.message_id)
        form = await self._form(entry)
        return JSONResponse({**form, "trace": [trace_form(line) for line in trace]})

    async def _explain(self, request: Request, user: User) -> Response:
        side = one_side(request)
        entry = await self._enquiry.entry(side, request.path_params["id"])
        self._check_side(user, side, entry.metadata.message_type)
        found = await self._explaining.explain(side, entry.message_id)
        return JSONResponse({**await self._form(entry), **explanation_form(found)})

    async def _proof(self, request: Request, user: User) -> Response:
        side = one_side(request)
        entry = await self._enquiry.entry(side, request.path_params["id"])
        self._check_side(user, side, entry.metadata.message_type)
        file = await self._evidence.export(side, entry.message_id)
        data = await asyncio.to_thread(encode_proof, file)
        return Response(data, media_type="application/zip")

    async def _search(self, request: Request, user: User) -> Response:
        search, limit, before = search_of(request)
        found, more = await self._enquiry.search(
            search,
            limit,
            before,
            visible=lambda entry: self._may_see(
                user, entry.delivery.side, entry.metadata.message_type
            ),
        )
        links = await self._enquiry.links(*found)
        forms = [entry_form(entry, links.get(entry.message_id)) for entry in found]
        return JSONResponse({"messages": forms, "next": more})

    async def _form(self, entry: BoxEntry) -> dict[str, Any]:
        links = await self._enquiry.links(entry)
        return entry_form(entry, links.get(entry.message_id))

    async def _stream(self, request: Request, user: User) -> Response:
        def now() -> User | None:
            return self.users.still(user, Channel.JSON)

        def visible(side: Side, message_type: str) -> bool:
            found = now()
            return found is not None and self._is_told(found, side, message_type)

        async def lines() -> AsyncIterator[str]:
            async for event in self._events.subscribe(visible, lambda: now() is not None):
                yield event

        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)

    def check(self) -> None:
        """After a change of the configuration: streams of users that may not come in now end."""
        self._events.check()

    def _may_see(self, user: User, side: Side, message_type: str) -> bool:
        if side is Side.SENT:
            return user.may_send(message_type)
        return self.users.may_see(user, message_type)

    def _is_told(self, user: User, side: Side, message_type: str) -> bool:
        """A document that waits for another channel is nothing to fetch here."""
        if side is Side.SENT:
            return user.may_send(message_type)
        return self.users.may_receive(user, Channel.JSON, message_type)

    def _check_side(self, user: User, side: Side, message_type: str) -> None:
        if side is Side.SENT:
            check_send(user, message_type)
        else:
            self.users.check_see(user, message_type)

    # ------------------------------------------------------------ around every request

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(openapi_document())

    def _guarded(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            name = ""
            try:
                try:
                    user = await self.users.who(
                        request.headers.get("authorization", ""), self._client_chain(request.scope)
                    )
                except Refusal as refusal:
                    return await self._refused(refusal, 401, name)
                name = user.name
                check_channel(user, Channel.JSON)
                return await handler(request, user)
            except Refusal as refusal:
                return await self._refused(refusal, status_of(refusal), name)
            except Exception:
                bug = Refusal(Rule.INTERNAL, "unexpected error")
                log.exception("unexpected error", id=bug.id, path=request.url.path)
                return await self._refused(bug, 500, name)

        return guarded

    async def _refused(self, refusal: Refusal, status: int, user: str) -> Response:
        await keep_refusal(self._context, refusal, user=user, security=status in (401, 403))
        told: dict[str, Any] = {
            "code": refusal.code,
            "rule": refusal.rule.name,
            "message": refusal.message,
            "details": refusal.details,
            "retryable": refusal.retryable,
            "id": refusal.id,
        }
        headers = {"www-authenticate": 'Basic realm="gridpost"'} if status == 401 else None
        return JSONResponse({"refused": told}, status, headers)


def _origin(user: User) -> str:
    return str(Origin(Channel.JSON, user.name))


async def _nothing_here(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    refusal = Refusal(Rule.RESOURCE_UNKNOWN, f"there is no {request.method} of {request.url.path}")
    told = {"code": refusal.code, "rule": refusal.rule.name, "message": refusal.message}
    return JSONResponse({"refused": {**told, "details": "", "id": refusal.id}}, status)
