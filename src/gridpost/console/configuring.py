"""Pages that change a component's configuration: message-paths, settings, and the tool that tries paths.

What is saved goes into the configuration file and counts at once; the file stays the only truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gridpost.console.frame import Frame, Visitor
from gridpost.console.roles import Role
from gridpost.core.acceptance import accept
from gridpost.core.component import ComponentType
from gridpost.core.identifiers import component_code, message_type
from gridpost.core.message_path import find_path
from gridpost.core.refusal import Refusal
from gridpost.services.endpoint.context import EndpointContext

MOST_PATHS = 500


@dataclass(frozen=True, slots=True)
class PathForm:
    """One message-path as it stands in the form: texts, right or wrong."""

    message_type: str = "*"
    path: str = ""
    senders: str = "*"
    valid_from: str = ""
    valid_until: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """503 cl. 7.3.1: problems keep paths from being saved. 7.3.2: warnings do not."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class PathsDesk(Protocol):
    def current(self) -> tuple[Sequence[PathForm], str]:
        """The paths, and a mark of the file by which a change in the meantime is found."""
        ...

    def check(self, paths: Sequence[PathForm]) -> Verdict: ...

    async def save(self, paths: Sequence[PathForm], mark: str, by: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Setting:
    """One parameter that counts without a restart."""

    name: str
    """Its place in the file, with dots."""
    label: str
    help: str
    kind: str = "text"
    """text, list or switch."""


class SettingsDesk(Protocol):
    @property
    def settings(self) -> Sequence[tuple[str, Sequence[Setting]]]:
        """In groups, each with a heading."""
        ...

    def current(self) -> tuple[Mapping[str, str], str]: ...

    async def save(self, values: Mapping[str, str], mark: str, by: str) -> Sequence[str]:
        """What was changed; a refusal says what is wrong and nothing is changed."""
        ...


class PathPages:
    def __init__(self, frame: Frame, context: EndpointContext, desk: PathsDesk) -> None:
        self._frame = frame
        self._context = context
        self._desk = desk

    def routes(self) -> list[Route]:
        route = self._frame.route
        return [
            route("/paths", self._show),
            route("/paths", self._edit, Role.ADMINISTRATOR, "POST"),
            route("/paths/which", self._which),
        ]

    async def _show(self, request: Request, visitor: Visitor) -> Response:
        paths, mark = self._desk.current()
        return self._page(request, list(paths), mark, self._desk.check(paths))

    async def _edit(self, request: Request, visitor: Visitor) -> Response:
        columns = [
            visitor.texts(name)
            for name in ("message_type", "path", "senders", "valid_from", "valid_until")
        ]
        paths = [PathForm(*row) for row in zip(*columns, strict=False)][:MOST_PATHS]
        mark, do = visitor.text("mark"), visitor.text("do")
        if do == "add":
            paths.append(PathForm())
        elif do.startswith("remove-") and do[7:].isdigit():
            del paths[int(do[7:]) : int(do[7:]) + 1]
        verdict = self._desk.check(paths)
        if do == "save" and not verdict.problems:
            try:
                await self._desk.save(paths, mark, visitor.actor)
            except Refusal as refusal:
                verdict = Verdict((refusal.message, *filter(None, [refusal.details])))
            else:
                return self._frame.back(
                    visitor, "/paths", "The message paths are saved and will be published."
                )
        checked = do in ("check", "save")
        status = 422 if checked and verdict.problems else 200
        return self._page(request, paths, mark, verdict, status, draft=True, checked=checked)

    def _page(
        self,
        request: Request,
        paths: list[PathForm],
        mark: str,
        verdict: Verdict,
        status: int = 200,
        *,
        draft: bool = False,
        checked: bool = False,
    ) -> Response:
        now = self._frame.clock.now()
        components = list(self._context.directory().components(now))
        return self._frame.render(
            request,
            "endpoint/paths.html",
            status,
            paths=paths,
            mark=mark,
            verdict=verdict,
            draft=draft,
            checked=checked,
            brokers=sorted(c.code for c in components if c.type is ComponentType.BROKER),
            endpoints=sorted(c.code for c in components if c.type is ComponentType.ENDPOINT),
        )

    async def _which(self, request: Request, visitor: Visitor) -> Response:
        query = request.query_params
        asked = {
            "direction": query.get("direction", "to"),
            "peer": query.get("peer", "").strip(),
            "type": query.get("type", "").strip(),
        }
        found = refusal = None
        if asked["peer"] and asked["type"]:
            try:
                found = self._search(asked["direction"] == "from", asked["peer"], asked["type"])
            except Refusal as refused:
                refusal = refused
        return self._frame.render(
            request, "endpoint/which.html", fragment=True, asked=asked, found=found, refusal=refusal
        )

    def _search(self, incoming: bool, peer: str, type_: str) -> dict[str, str]:
        """The path by which a message would go now, with what made it the one."""
        code, now = component_code(peer), self._frame.clock.now()
        wanted = message_type(type_, strict=self._context.settings.strict_patterns)
        directory, own = self._context.directory(), self._context.code
        sender, recipient = (code, own) if incoming else (own, code)
        accepted = accept(
            directory, sender=sender, recipient=recipient, message_type=wanted, at=now
        )
        origin = directory.find(sender, now)
        path = find_path(
            accepted.recipient.paths,
            message_type=wanted,
            sender=sender,
            sender_takes_connections=origin is not None and origin.takes_connections,
            recipient=recipient,
            at=now,
        )
        return {
            "sender": sender,
            "recipient": recipient,
            "route": str(accepted.route),
            "pattern": path.message_type,
            "why": "the identical message-type"
            if str(path.message_type) == wanted
            else "the longest pattern that matches",
            "valid_from": path.valid_from.text,
            "valid_until": str(path.valid_until or "no end"),
            "senders": "any" if path.senders is None else ", ".join(sorted(path.senders)),
            "certificate": accepted.encryption_certificate.certificate_id,
        }


class SettingPages:
    def __init__(self, frame: Frame, desk: SettingsDesk) -> None:
        self._frame = frame
        self._desk = desk

    def routes(self) -> list[Route]:
        route = self._frame.route
        return [
            route("/settings", self._show, Role.ADMINISTRATOR),
            route("/settings", self._save, Role.ADMINISTRATOR, "POST"),
        ]

    async def _show(self, request: Request, visitor: Visitor) -> Response:
        values, mark = self._desk.current()
        return self._page(request, values, mark, "")

    async def _save(self, request: Request, visitor: Visitor) -> Response:
        names = [s.name for _, group in self._desk.settings for s in group]
        values = {name: visitor.text(name) for name in names}
        mark = visitor.text("mark")
        try:
            changed = await self._desk.save(values, mark, visitor.actor)
        except Refusal as refusal:
            more = f" {refusal.details}" if refusal.details else ""
            return self._page(request, values, mark, f"{refusal.message}{more}")
        told = f"Saved and in use: {', '.join(changed)}." if changed else "Nothing was changed."
        return self._frame.back(visitor, "/settings", told)

    def _page(
        self, request: Request, values: Mapping[str, str], mark: str, problem: str
    ) -> Response:
        return self._frame.render(
            request,
            "settings.html",
            422 if problem else 200,
            groups=self._desk.settings,
            values=values,
            mark=mark,
            problem=problem,
        )
