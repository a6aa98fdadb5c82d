"""The door of a console: signing in with a password or by OIDC, sessions, lock-out, signing out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from gridpost.console.audit import Audit
from gridpost.console.oidc import OidcDoor
from gridpost.console.roles import LockOut, People
from gridpost.console.sessions import Sessions
from gridpost.console.settings import ConsoleSettings
from gridpost.console.visiting import Visitor, address_of, check_origin, form_of, inside, local
from gridpost.core.identifiers import clip
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule

Note = Callable[[Refusal, str, int], Awaitable[None]]


class Render(Protocol):
    def __call__(
        self, request: Request, template: str, code: int = 200, /, **values: Any
    ) -> HTMLResponse: ...


class Door:
    def __init__(
        self,
        cookie: str,
        clock: Clock,
        audit: Audit,
        settings: ConsoleSettings,
        render: Render,
        note: Note,
    ) -> None:
        self.cookie = cookie
        self.people = People(settings.people)
        self._clock = clock
        self._audit = audit
        self._render = render
        self._note = note
        self._lock_out = LockOut(settings.attempts, settings.locked)
        self._sessions = Sessions(settings.idle, settings.longest)
        self._oidc: OidcDoor | None = None
        self.reconfigure(settings)

    def reconfigure(self, settings: ConsoleSettings) -> None:
        """Sessions of people who are still known go on."""
        self.people.replace(settings.people)
        self._sessions.idle, self._sessions.longest = settings.idle, settings.longest
        self._lock_out.attempts, self._lock_out.lasting = settings.attempts, settings.locked
        if settings.oidc is None:
            self._oidc = None
        elif self._oidc is None or self._oidc.settings != settings.oidc:
            self._oidc = OidcDoor(settings.oidc)

    @property
    def single_sign_on(self) -> str | None:
        """The label of its button."""
        return None if self._oidc is None else self._oidc.settings.label

    async def form(self, request: Request) -> Response:
        return self._render(request, "login.html", problem="", name="", to=inside(request))

    async def sign_in(self, request: Request) -> Response:
        check_origin(request)
        form = await form_of(request)
        name, password = str(form.get("name", "")).strip(), str(form.get("password", ""))
        now, address = self._clock.now(), address_of(request)
        to = local(str(form.get("to", "")))
        actor = f"{clip(name)} (console)"
        try:
            self._lock_out.check(now, name, address)
            if not await self.people.fits(name, password):
                locked = self._lock_out.failed(now, name, address)
                if locked:
                    await self._audit.wrote(actor, "console locked", clip(name), f"from {address}")
                raise Refusal(
                    Rule.ACCESS_DENIED, "this name and password do not fit", f"from {address}"
                )
        except Refusal as refusal:
            await self._note(refusal, actor, 403)
            return self._render(
                request, "login.html", 403, problem=refusal.message, name=name, to=to
            )
        self._lock_out.succeeded(name)
        role = self.people.role(name)
        if role is None:
            raise Refusal(Rule.ACCESS_DENIED, "this name is no longer known")
        await self._audit.wrote(actor, "signed in", name, f"from {address}")
        token, _ = self._sessions.begin(name, role, "password", self.people.mark(name), now)
        response = RedirectResponse(to, 303)
        self._set_cookie(response, token)
        return response

    async def oidc_begin(self, request: Request) -> Response:
        if self._oidc is None:
            raise Refusal(Rule.RESOURCE_UNKNOWN, "there is no single sign-on here")
        url, browser = await self._oidc.begin(self._clock.now())
        response = RedirectResponse(url, 303)
        # The provider's page leads back here: a strict cookie would not come along.
        response.set_cookie(
            f"{self.cookie}-oidc", browser, 600, secure=True, httponly=True, samesite="lax"
        )
        return response

    async def oidc_end(self, request: Request) -> Response:
        if self._oidc is None:
            raise Refusal(Rule.RESOURCE_UNKNOWN, "there is no single sign-on here")
        now = self._clock.now()
        browser = request.cookies.get(f"{self.cookie}-oidc", "")
        try:
            name, role = await self._oidc.finish(request.query_params, browser, now)
        except Refusal as refusal:
            await self._note(refusal, "(console)", 403)
            return self._render(
                request, "login.html", 403, problem=refusal.message, name="", to="/"
            )
        await self._audit.wrote(
            f"{name} (console)", "signed in", name, f"{role} by OIDC, from {address_of(request)}"
        )
        token, _ = self._sessions.begin(name, role, "oidc", "", now)
        # A redirect would still belong to the navigation from the provider, without our cookie.
        response = self._render(request, "welcome.html")
        self._set_cookie(response, token)
        response.delete_cookie(f"{self.cookie}-oidc", secure=True, httponly=True, samesite="lax")
        return response

    async def sign_out(self, request: Request, visitor: Visitor) -> Response:
        self._sessions.end(request.cookies.get(self.cookie, ""))
        await self._audit.wrote(visitor.actor, "signed out", visitor.session.name)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(self.cookie, secure=True, httponly=True, samesite="strict")
        return response

    def _set_cookie(self, response: Response, token: str) -> None:
        response.set_cookie(
            self.cookie, token, path="/", secure=True, httponly=True, samesite="strict"
        )

    def visitor(self, request: Request) -> Visitor | None:
        token, now = request.cookies.get(self.cookie, ""), self._clock.now()
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
