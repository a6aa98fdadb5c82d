"""A request to a console: who sends it, what its form says, and whether it came from our own page."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import FormData, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gridpost.console.roles import Role
from gridpost.console.sessions import Session
from gridpost.core.refusal import Refusal, Rule

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


def check_origin(request: Request) -> None:
    """A browser says where a form was; a page of another origin has nothing to post here."""
    host = request.headers.get("host", "")
    origin = request.headers.get("origin") or request.headers.get("referer", "")
    parts = urlsplit(origin)
    site = request.headers.get("sec-fetch-site", "same-origin")
    if parts.scheme != "https" or parts.netloc != host or site not in ("same-origin", "none"):
        raise Refusal(Rule.ACCESS_DENIED, "this request comes from another site")


async def form_of(request: Request) -> FormData:
    try:
        return await request.form(max_files=1, max_fields=MAX_FIELDS)
    except HTTPException as error:
        raise Refusal(Rule.USAGE, "the form cannot be read", str(error.detail)) from None


def address_of(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def inside(request: Request) -> str:
    return local(request.query_params.get("to", ""))


def local(path: str) -> str:
    """A path of this console; never the address of another site."""
    safe = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if safe and not path.startswith("/log") else "/"


def with_headers(app: ASGIApp) -> ASGIApp:
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
