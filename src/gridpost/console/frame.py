"""What is around every page of a console: sign-in, sessions, roles, forged requests, headers, errors.

No handler runs before its visitor is known, has the role, and, where something changes, has shown
that the request comes from a page of this console.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gridpost.console.audit import Audit, JournalStore
from gridpost.console.door import Door
from gridpost.console.rendering import assets, environment
from gridpost.console.roles import Role
from gridpost.console.settings import ConsoleSettings, Place, Whose
from gridpost.console.visiting import Visitor, check_origin, form_of, with_headers
from gridpost.core.journal import AdministrationRow, RefusalRow
from gridpost.core.ports import Clock
from gridpost.core.refusal import Code, Fault, Refusal, Rule

__all__ = ["Frame", "Handler", "Visitor", "moment_of", "number_of", "status_of"]

log = structlog.get_logger(__name__)

AUDIT_PAGE = 50
FIGURES = Place("/figures", "Key figures", "overview")
_STATUS = {
    Rule.ACCESS_DENIED: 403,
    Rule.RESOURCE_UNKNOWN: 404,
    Rule.MESSAGE_UNKNOWN: 404,
    Rule.COMPONENT_UNKNOWN: 404,
    Rule.REGISTRATION_UNKNOWN: 404,
    Rule.REGISTRATION_DECIDED: 409,
    Rule.CONTENT_TOO_LARGE: 413,
    Rule.LIMIT_EXCEEDED: 413,
}


Handler = Callable[[Request, Visitor], Awaitable[Response]]


class Frame:
    def __init__(
        self,
        whose: Whose,
        settings: ConsoleSettings,
        clock: Clock,
        store: JournalStore,
        places: Sequence[Place],
    ) -> None:
        self.whose = whose
        self.clock = clock
        self.audit = Audit(store, clock)
        self._places = (*places, Place("/audit", "Audit log", "audit", Role.OPERATOR))
        self._assets = assets()
        self._environment = environment(self._assets, clock.now)
        # Cookies are shared by all ports of a host: consoles beside each other need their own.
        digest = hashlib.sha256(f"{whose.kind} {whose.code}".encode()).hexdigest()[:12]
        self.cookie = f"__Host-gridpost-{digest}"
        self.settings = settings
        self.alerts: Callable[[], Sequence[Mapping[str, Any]]] = tuple
        """What the component has found wrong with itself: the first thing that its overview shows."""
        self.door = Door(self.cookie, clock, self.audit, settings, self.render, self._note)

    def reconfigure(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.door.reconfigure(settings)

    # ------------------------------------------------------------ routes

    def app(self, routes: Sequence[Route]) -> ASGIApp:
        inner = Starlette(
            routes=[
                Route("/static/{name}", self._asset, methods=["GET"]),
                Route("/login", self._guarded(self.door.form), methods=["GET"]),
                Route("/login", self._guarded(self.door.sign_in), methods=["POST"]),
                Route("/login/oidc", self._guarded(self.door.oidc_begin), methods=["GET"]),
                Route("/login/oidc/callback", self._guarded(self.door.oidc_end), methods=["GET"]),
                self.route("/logout", self.door.sign_out, Role.VIEWER, "POST"),
                self.route("/audit", self._audit_page, Role.OPERATOR),
                self.route(FIGURES.path, self._figures_page),
                *routes,
            ],
            exception_handlers={HTTPException: self._no_page},
        )
        return with_headers(inner)

    def route(
        self, path: str, handler: Handler, role: Role = Role.VIEWER, method: str = "GET"
    ) -> Route:
        """GET must change nothing: only other methods are protected against forged requests."""

        async def visited(request: Request) -> Response:
            visitor = self.door.visitor(request)
            if visitor is None:
                return self._to_login(request)
            request.state.visitor = visitor
            if method != "GET":
                check_origin(request)
                visitor.form = await form_of(request)
                token = request.headers.get("x-csrf-token") or visitor.text("csrf")
                if not visitor.session.owns(token):
                    raise Refusal(Rule.ACCESS_DENIED, "this request came from no page of ours")
            if not visitor.role.may(role):
                raise Refusal(
                    Rule.ACCESS_DENIED,
                    f"{_with_article(visitor.role)} may not do this: it takes the role {role}",
                )
            return await handler(request, visitor)

        async def tidied(request: Request) -> Response:
            try:
                return await visited(request)
            finally:
                # An uploaded document lies in a temporary file until here.
                await request.close()

        return Route(path, self._guarded(tidied), methods=[method])

    def render(
        self, request: Request, template: str, code: int = 200, /, **values: Any
    ) -> HTMLResponse:
        visitor: Visitor | None = getattr(request.state, "visitor", None)
        notice = ""
        if visitor is not None and "fragment" not in values:
            notice, visitor.session.notice = visitor.session.notice, ""
        path = request.url.path
        text = self._environment.get_template(template).render(
            whose=self.whose,
            visitor=visitor,
            notice=notice,
            path=path,
            open_alerts=self.alerts() if visitor is not None and path == "/" else (),
            places=[p for p in self._shown() if visitor is not None and visitor.role.may(p.role)],
            now=self.clock.now(),
            sso=self.door.single_sign_on,
            documents=visitor is not None and visitor.role.may(self.settings.documents),
            **values,
        )
        return HTMLResponse(text, code, {"cache-control": "no-store"})

    def _shown(self) -> Sequence[Place]:
        """The lake may come with a change of the configuration."""
        return self._places if self.settings.lake is None else (*self._places, FIGURES)

    def back(self, visitor: Visitor, path: str, notice: str) -> Response:
        """After a change: the page it led to, and what happened."""
        visitor.session.notice = notice
        return RedirectResponse(path, 303)

    # ------------------------------------------------------------ audit

    async def _audit_page(self, request: Request, visitor: Visitor) -> Response:
        kind = request.query_params.get("kind", AdministrationRow.KIND)
        if kind not in (AdministrationRow.KIND, RefusalRow.KIND):
            raise Refusal(Rule.RESOURCE_UNKNOWN, "the log has actions and refusals")
        before = request.query_params.get("before", "")
        rows = await self.audit.page(
            kind, AUDIT_PAGE + 1, int(before) if before.isdigit() else None
        )
        shown = rows[:AUDIT_PAGE]
        more = shown[-1].sequence if len(rows) > AUDIT_PAGE else None
        return self.render(request, "audit.html", rows=shown, kind=kind, more=more, before=before)

    async def _figures_page(self, request: Request, visitor: Visitor) -> Response:
        folder = self.settings.lake
        if folder is None:
            raise Refusal(Rule.RESOURCE_UNKNOWN, "this console has no lake")
        known = await asyncio.to_thread(_figures, folder)
        return self.render(request, "figures.html", known=known)

    # ------------------------------------------------------------ around every request

    def _guarded(
        self, handler: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                return await handler(request)
            except Refusal as refusal:
                return await self._refused(request, refusal)
            except (ClientDisconnect, HTTPException):
                raise
            except Exception:
                bug = Refusal(Rule.INTERNAL, "something went wrong here")
                log.exception("unexpected error", id=bug.id, path=request.url.path)
                return await self._refused(request, bug)

        return guarded

    async def _refused(self, request: Request, refusal: Refusal) -> Response:
        visitor: Visitor | None = getattr(request.state, "visitor", None)
        status = status_of(refusal)
        await self._note(refusal, "(console)" if visitor is None else visitor.actor, status)
        template = "problem.html" if request.headers.get("hx-request") else "refused.html"
        return self.render(request, template, status, refusal=refusal, status=status)

    async def _note(self, refusal: Refusal, actor: str, status: int) -> None:
        log.warning(
            "console refused",
            rule=refusal.rule.name,
            reason=refusal.message,
            id=refusal.id,
            actor=actor,
        )
        if status == 404:
            return
        try:
            await self.audit.refused(refusal, actor, security=status == 403)
        except Refusal as failed:
            log.error("refusal not journalled", reason=failed.message, id=refusal.id)

    async def _no_page(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        visitor = self.door.visitor(request)
        if visitor is None:
            return self._to_login(request)
        request.state.visitor = visitor
        refusal = Refusal(Rule.RESOURCE_UNKNOWN, "there is no such page")
        return self.render(request, "refused.html", status, refusal=refusal, status=status)

    def _to_login(self, request: Request) -> Response:
        if request.headers.get("hx-request"):
            return Response(status_code=401, headers={"hx-redirect": "/login"})
        if request.method != "GET":
            return self.render(request, "login.html", 401, problem="sign in first", name="", to="/")
        path = request.url.path
        return RedirectResponse("/login" if path == "/" else f"/login?to={path}", 303)

    async def _asset(self, request: Request) -> Response:
        found = self._assets.get(request.path_params["name"])
        if found is None:
            return Response(status_code=404)
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(found.body, media_type=found.media_type, headers=headers)


def _figures(folder: Path) -> dict[str, Any]:
    """Read with pyarrow, which only consoles with a lake need."""
    from gridpost.pipeline.key_figures import overview
    from gridpost.pipeline.lake import Lake

    return overview(Lake.open(folder))


def status_of(refusal: Refusal) -> int:
    if refusal.rule in _STATUS:
        return _STATUS[refusal.rule]
    if refusal.code is Code.INTERNAL_ERROR:
        return 502 if refusal.rule.fault is Fault.PEER else 500
    if refusal.code is Code.CONCURRENT_ERROR:
        return 503
    return 403 if refusal.code is Code.AUTHENTICATION_ERROR else 422


def number_of(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    return int(text) if text.isdigit() else None


def moment_of(text: str, what: str) -> datetime | None:
    """A time in UTC as people write it, or as a browser's field does."""
    from gridpost.core.instant import Instant

    text = text.strip().replace(" ", "T")
    if not text:
        return None
    if len(text) == 10:
        text += "T00:00:00"
    elif len(text) == 16:
        text += ":00"
    try:
        return Instant.parse(text).at
    except Refusal as refusal:
        raise Refusal(Rule.USAGE, f"{what}: {refusal.message}") from None


def _with_article(role: Role) -> str:
    return f"{'a' if role is Role.VIEWER else 'an'} {role}"
