"""What is around every page of a console: sign-in, sessions, roles, forged requests, headers, errors.

No handler runs before its visitor is known, has the role, and, where something changes, has shown
that the request comes from a page of this console.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog
from starlette.applications import Starlette
from starlette.datastructures import FormData, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gridpost.console.audit import Audit, JournalStore
from gridpost.console.oidc import OidcDoor
from gridpost.console.rendering import assets, environment
from gridpost.console.roles import LockOut, People, Role
from gridpost.console.sessions import Session, Sessions
from gridpost.console.settings import ConsoleSettings, Place, Whose
from gridpost.core.identifiers import clip
from gridpost.core.journal import AdministrationRow, RefusalRow
from gridpost.core.ports import Clock
from gridpost.core.refusal import Code, Fault, Refusal, Rule

log = structlog.get_logger(__name__)

AUDIT_PAGE = 50
FIGURES = Place("/figures", "Key figures", "overview")
MAX_FIELDS = 2000
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "strict-transport-security": "max-age=31536000",
}
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


@dataclass(slots=True)
class Visitor:
    """Who is at the other end of this request."""

    session: Session
    role: Role
    form: FormData = field(default_factory=FormData)

    @property
    def actor(self) -> str:
        """What the journal says about who did something."""
        return f"{self.session.name} (console)"

    def may(self, role: str) -> bool:
        return self.role.may(Role(role))

    def text(self, name: str) -> str:
        value = self.form.get(name, "")
        return value.strip() if isinstance(value, str) else ""

    def texts(self, name: str) -> list[str]:
        return [v.strip() for v in self.form.getlist(name) if isinstance(v, str)]


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
        self.people = People(settings.people)
        self._lock_out = LockOut(settings.attempts, settings.locked)
        self._sessions = Sessions(settings.idle, settings.longest)
        self._places = (*places, Place("/audit", "Audit log", "audit", Role.OPERATOR))
        self._assets = assets()
        self._environment = environment(self._assets, clock.now)
        # Cookies are shared by all ports of a host: consoles beside each other need their own.
        digest = hashlib.sha256(f"{whose.kind} {whose.code}".encode()).hexdigest()[:12]
        self.cookie = f"__Host-gridpost-{digest}"
        self._oidc: OidcDoor | None = None
        self.settings = settings
        self.reconfigure(settings)

    def reconfigure(self, settings: ConsoleSettings) -> None:
        """Sessions of people who are still known go on."""
        self.settings = settings
        self.people.replace(settings.people)
        self._sessions.idle, self._sessions.longest = settings.idle, settings.longest
        self._lock_out.attempts, self._lock_out.lasting = settings.attempts, settings.locked
        if settings.oidc is None:
            self._oidc = None
        elif self._oidc is None or self._oidc.settings != settings.oidc:
            self._oidc = OidcDoor(settings.oidc)

    # ------------------------------------------------------------ routes

    def app(self, routes: Sequence[Route]) -> ASGIApp:
        inner = Starlette(
            routes=[
                Route("/static/{name}", self._asset, methods=["GET"]),
                Route("/login", self._guarded(self._login_form), methods=["GET"]),
                Route("/login", self._guarded(self._login), methods=["POST"]),
                Route("/login/oidc", self._guarded(self._oidc_begin), methods=["GET"]),
                Route("/login/oidc/callback", self._guarded(self._oidc_end), methods=["GET"]),
                self.route("/logout", self._logout, Role.VIEWER, "POST"),
                self.route("/audit", self._audit_page, Role.OPERATOR),
                self.route(FIGURES.path, self._figures_page),
                *routes,
            ],
            exception_handlers={HTTPException: self._no_page},
        )
        return _with_headers(inner)

    def route(
        self, path: str, handler: Handler, role: Role = Role.VIEWER, method: str = "GET"
    ) -> Route:
        """GET must change nothing: only other methods are protected against forged requests."""

        async def visited(request: Request) -> Response:
            visitor = self._visitor(request)
            if visitor is None:
                return self._to_login(request)
            request.state.visitor = visitor
            if method != "GET":
                self._check_origin(request)
                visitor.form = await _form(request)
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
            places=[p for p in self._shown() if visitor is not None and visitor.role.may(p.role)],
            now=self.clock.now(),
            sso=None if self._oidc is None else self._oidc.settings.label,
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

    # ------------------------------------------------------------ signing in

    async def _login_form(self, request: Request) -> Response:
        return self.render(request, "login.html", problem="", name="", to=_inside(request))

    async def _login(self, request: Request) -> Response:
        self._check_origin(request)
        form = await _form(request)
        name, password = str(form.get("name", "")).strip(), str(form.get("password", ""))
        now, address = self.clock.now(), _address(request)
        to = _local(str(form.get("to", "")))
        actor = f"{clip(name)} (console)"
        try:
            self._lock_out.check(now, name, address)
            if not await self.people.fits(name, password):
                locked = self._lock_out.failed(now, name, address)
                if locked:
                    await self.audit.wrote(actor, "console locked", clip(name), f"from {address}")
                raise Refusal(
                    Rule.ACCESS_DENIED, "this name and password do not fit", f"from {address}"
                )
        except Refusal as refusal:
            await self._note(refusal, actor, 403)
            return self.render(
                request, "login.html", 403, problem=refusal.message, name=name, to=to
            )
        self._lock_out.succeeded(name)
        role = self.people.role(name)
        if role is None:
            raise Refusal(Rule.ACCESS_DENIED, "this name is no longer known")
        await self.audit.wrote(actor, "signed in", name, f"from {address}")
        token, _ = self._sessions.begin(name, role, "password", self.people.mark(name), now)
        response = RedirectResponse(to, 303)
        self._set_cookie(response, token)
        return response

    async def _oidc_begin(self, request: Request) -> Response:
        if self._oidc is None:
            raise Refusal(Rule.RESOURCE_UNKNOWN, "there is no single sign-on here")
        url, browser = await self._oidc.begin(self.clock.now())
        response = RedirectResponse(url, 303)
        # The provider's page leads back here: a strict cookie would not come along.
        response.set_cookie(
            f"{self.cookie}-oidc", browser, 600, secure=True, httponly=True, samesite="lax"
        )
        return response

    async def _oidc_end(self, request: Request) -> Response:
        if self._oidc is None:
            raise Refusal(Rule.RESOURCE_UNKNOWN, "there is no single sign-on here")
        now = self.clock.now()
        browser = request.cookies.get(f"{self.cookie}-oidc", "")
        try:
            name, role = await self._oidc.finish(request.query_params, browser, now)
        except Refusal as refusal:
            await self._note(refusal, "(console)", 403)
            return self.render(request, "login.html", 403, problem=refusal.message, name="", to="/")
        await self.audit.wrote(
            f"{name} (console)", "signed in", name, f"{role} by OIDC, from {_address(request)}"
        )
        token, _ = self._sessions.begin(name, role, "oidc", "", now)
        # A redirect would still belong to the navigation from the provider, without our cookie.
        response = self.render(request, "welcome.html")
        self._set_cookie(response, token)
        response.delete_cookie(f"{self.cookie}-oidc", secure=True, httponly=True, samesite="lax")
        return response

    async def _logout(self, request: Request, visitor: Visitor) -> Response:
        self._sessions.end(request.cookies.get(self.cookie, ""))
        await self.audit.wrote(visitor.actor, "signed out", visitor.session.name)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(self.cookie, secure=True, httponly=True, samesite="strict")
        return response

    def _set_cookie(self, response: Response, token: str) -> None:
        response.set_cookie(
            self.cookie, token, path="/", secure=True, httponly=True, samesite="strict"
        )

    def _visitor(self, request: Request) -> Visitor | None:
        token, now = request.cookies.get(self.cookie, ""), self.clock.now()
        session = self._sessions.find(token, now) if token else None
        if session is None:
            return None
        role = session.role
        if session.by == "password":
            known = self.people.role(session.name)
            if known is None or not self.people.same_password(session.name, session.mark):
                self._sessions.end(token)
                return None
            role = known
        elif self._oidc is None:
            self._sessions.end(token)
            return None
        # A page that refreshes itself keeps nobody signed in who has left.
        if "live" not in request.query_params:
            session.seen = now
        return Visitor(session, role)

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
        visitor = self._visitor(request)
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

    def _check_origin(self, request: Request) -> None:
        """A browser says where a form was; a page of another origin has nothing to post here."""
        host = request.headers.get("host", "")
        origin = request.headers.get("origin") or request.headers.get("referer", "")
        parts = urlsplit(origin)
        site = request.headers.get("sec-fetch-site", "same-origin")
        if parts.scheme != "https" or parts.netloc != host or site not in ("same-origin", "none"):
            raise Refusal(Rule.ACCESS_DENIED, "this request comes from another site")

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


async def _form(request: Request) -> FormData:
    try:
        return await request.form(max_files=1, max_fields=MAX_FIELDS)
    except HTTPException as error:
        raise Refusal(Rule.USAGE, "the form cannot be read", str(error.detail)) from None


def _address(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def _inside(request: Request) -> str:
    return _local(request.query_params.get("to", ""))


def _local(path: str) -> str:
    """A path of this console; never the address of another site."""
    safe = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if safe and not path.startswith("/log") else "/"


def _with_headers(app: ASGIApp) -> ASGIApp:
    async def shown(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await app(scope, receive, sending)

    return shown


def _with_article(role: Role) -> str:
    return f"{'a' if role is Role.VIEWER else 'an'} {role}"
