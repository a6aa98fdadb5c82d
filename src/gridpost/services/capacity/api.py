"""The administration of capacity as a JSON API: each administrator shows a token of his own.

What changes something is journalled with his name, in the commit of the change itself.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gridpost.core.instant import Instant
from gridpost.core.refusal import Code, Fault, Refusal, Rule
from gridpost.services.capacity.administration import Administration
from gridpost.services.operations.administrators import Administrators
from gridpost.services.operations.administrators_door import Action, AdministratorsDoor

log = structlog.get_logger(__name__)

PREFIX = "/admin/v1"
MAX_BODY = 64 * 1024 * 1024
PAGE = 1000

Handler = Callable[[Request, str], Awaitable[Any]]


class AdministrationApi:
    def __init__(self, administration: Administration, administrators: Administrators) -> None:
        self._administration = administration
        self.administrators = administrators
        self._door = AdministratorsDoor(
            administrators, now=administration.now, note=administration.note, status_of=status_of
        )

    def app(self) -> Starlette:
        administration = self._administration
        views = {name: _showing(view) for name, view in administration.views().items()}
        actions = {name: _acting(action) for name, action in administration.actions().items()}
        reads = {"events": self._events, "allocations": self._allocations, **views}
        return Starlette(
            routes=[
                *(
                    Route(
                        f"{PREFIX}/{name}", self._door.behind(_answering(handler)), methods=["GET"]
                    )
                    for name, handler in reads.items()
                ),
                *(
                    Route(
                        f"{PREFIX}/{name}", self._door.behind(_answering(handler)), methods=["POST"]
                    )
                    for name, handler in actions.items()
                ),
            ],
            exception_handlers={HTTPException: _http_error},
        )

    async def _events(self, request: Request, who: str) -> Any:
        query = request.query_params
        before = query.get("before", "")
        limit = query.get("limit", "100")
        if not limit.isdigit() or (before and not before.isdigit()):
            raise Refusal(Rule.USAGE, "before and limit are whole numbers")
        return await self._administration.events(
            min(int(limit), PAGE), int(before) if before else None
        )

    async def _allocations(self, request: Request, who: str) -> Any:
        query = request.query_params
        missing = [
            name
            for name in ("balancing_group", "area1", "area2", "from", "to")
            if not query.get(name)
        ]
        if missing:
            raise Refusal(Rule.USAGE, f"give {', '.join(missing)} in the query")
        return await self._administration.allocations(
            query["balancing_group"],
            (query["area1"], query["area2"]),
            Instant.parse(query["from"]).at,
            Instant.parse(query["to"]).at,
        )

    async def admit(self, authorization: str) -> str:
        """For another listener: the name behind the token; who has none is journalled and refused."""
        try:
            return await self.administrators.who(authorization)
        except Refusal as refusal:
            await self._door.refused(refusal, 401, "")
            raise


def status_of(refusal: Refusal) -> int:
    if refusal.rule is Rule.LIMIT_EXCEEDED:
        return 413
    if refusal.code is Code.CONCURRENT_ERROR:
        return 503
    if refusal.rule.fault is Fault.OURSELVES:
        return 500
    return 422


def _answering(handler: Handler) -> Action:
    async def answer(request: Request, who: str) -> Response:
        return JSONResponse(await handler(request, who))

    return answer


def _showing(view: Callable[[], Any]) -> Handler:
    async def show(request: Request, who: str) -> Any:
        return view()

    return show


def _acting(action: Callable[[dict[str, Any]], Awaitable[Any]]) -> Handler:
    async def act(request: Request, who: str) -> Any:
        return await action({**await _json(request), "by": who})

    return act


async def _json(request: Request) -> dict[str, Any]:
    octets = bytearray()
    async for piece in request.stream():
        octets += piece
        if len(octets) > MAX_BODY:
            raise Refusal(Rule.LIMIT_EXCEEDED, f"a request may have {MAX_BODY} bytes")
    try:
        body = json.loads(octets or b"{}")
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Refusal(Rule.USAGE, "the body is not a JSON object")
    return body


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    told = {"code": "", "rule": Rule.RESOURCE_UNKNOWN.name, "message": "there is nothing here"}
    return JSONResponse({"refused": {**told, "details": "", "id": ""}}, status)
