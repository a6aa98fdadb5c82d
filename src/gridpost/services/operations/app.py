"""The operations listener as an application: health, Prometheus figures, and views as JSON.

It has no authentication, so whoever runs it binds it to a loopback address.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
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

# A store that hangs must not look healthy.
_HEALTH_SECONDS = 10.0


def operations_app(
    health: Health,
    registry: CollectorRegistry,
    measure: Callable[[], None],
    views: Mapping[str, View],
    actions: Mapping[str, Action] | None = None,
) -> Starlette:
    """`measure` brings figures that describe a state up to date before they are shown."""

    async def show_health(request: Request) -> Response:
        try:
            async with asyncio.timeout(_HEALTH_SECONDS):
                found = await health()
        except (Refusal, TimeoutError) as error:
            reason = error.message if isinstance(error, Refusal) else "no answer from the store"
            return JSONResponse({"ok": False, "reason": reason}, 503)
        return JSONResponse(found, 200 if found.get("ok") else 503)

    async def show_metrics(request: Request) -> Response:
        measure()
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    def viewer(view: View) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            return JSONResponse(view())

        return show

    def actor(action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def act(request: Request) -> Response:
            try:
                return JSONResponse(await action(json.loads(await request.body() or b"{}")))
            except Refusal as refusal:
                told = {"rule": refusal.rule.name, "message": refusal.message, "id": refusal.id}
                return JSONResponse({"refused": told}, 409)

        return act

    return Starlette(
        routes=[
            Route("/health", show_health),
            Route("/metrics", show_metrics),
            *(Route(f"/{name}", viewer(view)) for name, view in views.items()),
            *(
                Route(f"/{name}", actor(action), methods=["POST"])
                for name, action in (actions or {}).items()
            ),
        ]
    )
