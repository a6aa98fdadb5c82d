"""The operations listener as an application: health, Prometheus figures, and views as JSON.

Reading has no authentication, so whoever runs it binds it to a loopback address; actions have it where
`admit` is given.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gridpost.core.refusal import Refusal

Health = Callable[[], Awaitable[dict[str, Any]]]
View = Callable[[], Any]
Action = Callable[[dict[str, Any]], Awaitable[Any]]
Admit = Callable[[str], Awaitable[str]]
"""From an Authorization header to the name of whoever acts; empty: the request may say it."""

# A store that hangs must not look healthy.
_HEALTH_SECONDS = 10.0
_DEEP_SECONDS = 60.0


def operations_app(
    health: Health,
    registry: CollectorRegistry,
    measure: Callable[[], Awaitable[None] | None],
    views: Mapping[str, View],
    actions: Mapping[str, Action] | None = None,
    deep: Health | None = None,
    admit: Admit | None = None,
) -> Starlette:
    """`measure` brings figures that describe a state up to date before they are shown.

    `/health/live` says that the process answers, `/health/ready` (and `/health`) that it can do its
    work, `/health/deep` that the work gets done, as far as a component has a way to try it.
    """

    async def live(request: Request) -> Response:
        return JSONResponse({"ok": True})

    def shower(health: Health, seconds: float) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            return await _shown(health, seconds)

        return show

    async def show_metrics(request: Request) -> Response:
        measuring = measure()
        if measuring is not None:
            await measuring
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    def viewer(view: View) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            found = view()
            return JSONResponse(await found if isawaitable(found) else found)

        return show

    def actor(action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def act(request: Request) -> Response:
            who = ""
            if admit is not None:
                try:
                    who = await admit(request.headers.get("authorization", ""))
                except Refusal as refusal:
                    headers = {"www-authenticate": "Bearer"}
                    return JSONResponse({"refused": _told(refusal)}, 401, headers)
            try:
                form = json.loads(await request.body() or b"{}")
                return JSONResponse(await action({**form, "by": who} if who else form))
            except Refusal as refusal:
                return JSONResponse({"refused": _told(refusal)}, 409)

        return act

    return Starlette(
        routes=[
            Route("/health", shower(health, _HEALTH_SECONDS)),
            Route("/health/live", live),
            Route("/health/ready", shower(health, _HEALTH_SECONDS)),
            Route("/health/deep", shower(deep or health, _DEEP_SECONDS)),
            Route("/metrics", show_metrics),
            *(Route(f"/{name}", viewer(view)) for name, view in views.items()),
            *(
                Route(f"/{name}", actor(action), methods=["POST"])
                for name, action in (actions or {}).items()
            ),
        ]
    )


def _told(refusal: Refusal) -> dict[str, str]:
    return {"rule": refusal.rule.name, "message": refusal.message, "id": refusal.id}


async def _shown(health: Health, seconds: float) -> Response:
    try:
        async with asyncio.timeout(seconds):
            found = await health()
    except (Refusal, TimeoutError) as error:
        reason = (
            error.message if isinstance(error, Refusal) else f"no answer in {seconds:g} seconds"
        )
        return JSONResponse({"ok": False, "reason": reason}, 503)
    return JSONResponse(found, 200 if found.get("ok") else 503)
