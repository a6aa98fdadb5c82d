"""The part of the JSON API that operators use; every call takes a user with that right."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gridpost.core.channels import Channel, Origin
from gridpost.core.holds import HoldKind
from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.json_forms import entry_form, read_json
from gridpost.services.endpoint.operating import Operating, told
from gridpost.services.endpoint.users import User, check_operator

_BODY = 64 * 1024
Handler = Callable[[Request, User], Awaitable[Response]]


class MakeRoute(Protocol):
    def __call__(self, path: str, handler: Handler, method: str = "GET") -> Route: ...


class OperatorApi:
    def __init__(self, operating: Operating) -> None:
        self._operating = operating

    def routes(self, route: MakeRoute) -> list[Route]:
        def guarded(handler: Handler) -> Handler:
            async def checked(request: Request, user: User) -> Response:
                check_operator(user)
                return await handler(request, user)

            return checked

        return [
            route(path, guarded(handler), method)
            for path, handler, method in (
                ("/messages/{id}/resend", self._resend, "POST"),
                ("/messages/{id}/cancel", self._cancel, "POST"),
                ("/received/{id}/release", self._release, "POST"),
                ("/received/{id}/drop", self._drop, "POST"),
                ("/held-back", self._held_back, "GET"),
                ("/holds", self._holds, "GET"),
                ("/holds", self._pause, "POST"),
                ("/holds", self._resume, "DELETE"),
                ("/maintenance", self._maintain, "PUT"),
            )
        ]

    async def _resend(self, request: Request, user: User) -> Response:
        reason = await _reason(request)
        new = await self._operating.resend(request.path_params["id"], _who(user), reason)
        return JSONResponse({"messageID": new}, 201)

    async def _cancel(self, request: Request, user: User) -> Response:
        message_id = request.path_params["id"]
        await self._operating.cancel(message_id, _who(user), await _reason(request))
        return JSONResponse({"messageID": message_id})

    async def _release(self, request: Request, user: User) -> Response:
        message_id = request.path_params["id"]
        await self._operating.release(message_id, _who(user), await _reason(request))
        return JSONResponse({"messageID": message_id})

    async def _drop(self, request: Request, user: User) -> Response:
        message_id = request.path_params["id"]
        await self._operating.drop(message_id, _who(user), await _reason(request))
        return JSONResponse({"messageID": message_id})

    async def _held_back(self, request: Request, user: User) -> Response:
        found = await self._operating.held_back()
        return JSONResponse(
            {"messages": [{**entry_form(entry), "reason": reason} for entry, reason in found]}
        )

    async def _holds(self, request: Request, user: User) -> Response:
        return JSONResponse({"holds": told(self._operating.holds.all)})

    async def _pause(self, request: Request, user: User) -> Response:
        body = await read_json(request, _BODY)
        kind = _kind(body.get("kind"))
        hold = await self._operating.pause(
            kind, _text(body.get("value"), "value"), _who(user), _text(body.get("reason"), "reason")
        )
        return JSONResponse(told([hold])[0])

    async def _resume(self, request: Request, user: User) -> Response:
        query = request.query_params
        kind = _kind(query.get("kind"))
        changed = await self._operating.resume(kind, query.get("value", ""), _who(user))
        return JSONResponse({"changed": changed})

    async def _maintain(self, request: Request, user: User) -> Response:
        body = await read_json(request, _BODY)
        on = body.get("on")
        if not isinstance(on, bool):
            raise Refusal(Rule.USAGE, "'on' must be true or false")
        changed = await self._operating.maintain(
            on, _who(user), _text(body.get("reason"), "reason")
        )
        return JSONResponse({"on": on, "changed": changed})


def _who(user: User) -> str:
    return str(Origin(Channel.JSON, user.name))


def _kind(text: object) -> HoldKind:
    kinds = [kind.value for kind in HoldKind if kind is not HoldKind.MAINTENANCE]
    if text not in kinds:
        raise Refusal(Rule.USAGE, f"kind is one of {', '.join(kinds)}, not '{clip(str(text))}'")
    return HoldKind(text)


def _text(value: object, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refusal(Rule.USAGE, f"'{name}' must be a text")
    return value


async def _reason(request: Request) -> str:
    return _text((await read_json(request, _BODY)).get("reason"), "reason")
