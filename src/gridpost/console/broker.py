"""The console of a broker: queues, connections, the restriction, and what was refused why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gridpost.console.configuring import SettingPages, SettingsDesk
from gridpost.console.frame import Frame, Visitor
from gridpost.console.roles import Role
from gridpost.console.settings import Place
from gridpost.core.component import Component, ComponentType
from gridpost.core.journal import RefusalRow
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.broker.broker import QueueView

PLACES = (
    Place("/", "Queues", "queue"),
    Place("/connections", "Connections", "connection"),
    Place("/restriction", "Restriction", "restriction"),
    Place("/refusals", "Refusals", "refusal"),
    Place("/settings", "Settings", "settings", Role.ADMINISTRATOR),
)
LISTED = 50
COUNTED = 5_000


class Served(Protocol):
    """The running broker, as its operator sees it."""

    def queues(self) -> Sequence[QueueView]: ...

    async def release(self, queue: str) -> int: ...

    async def health(self) -> Mapping[str, Any]: ...

    def connections(self) -> Sequence[Any]: ...

    def components(self) -> Sequence[Component]: ...

    def counters(self) -> Mapping[str, int]: ...


class RestrictionDesk(Protocol):
    def current(self) -> tuple[Sequence[str], Sequence[str], str]:
        """Components, message-type patterns, and a mark of the file."""
        ...

    def warnings(self, components: Sequence[str], message_types: Sequence[str]) -> Sequence[str]:
        """503 cl. 7.3.2, and what the change would cut off."""
        ...

    async def save(
        self, components: Sequence[str], message_types: Sequence[str], mark: str, by: str
    ) -> None: ...


class BrokerConsole:
    def __init__(
        self, frame: Frame, served: Served, restriction: RestrictionDesk, settings: SettingsDesk
    ) -> None:
        self._frame = frame
        self._settings = SettingPages(frame, settings)
        self._served = served
        self._restriction = restriction

    def app(self) -> ASGIApp:
        route = self._frame.route
        return self._frame.app(
            [
                route("/", self._queues),
                route("/queues/{code}/release", self._release, Role.OPERATOR, "POST"),
                route("/connections", self._connections),
                route("/restriction", self._show_restriction),
                route("/restriction", self._save_restriction, Role.ADMINISTRATOR, "POST"),
                route("/refusals", self._refusals),
                *self._settings.routes(),
            ]
        )

    async def _queues(self, request: Request, visitor: Visitor) -> Response:
        live = "live" in request.query_params
        queues = self._served.queues()
        return self._frame.render(
            request,
            "broker/queues_live.html" if live else "broker/queues.html",
            **({"fragment": True} if live else {}),
            queues=sorted(queues, key=lambda q: (-q.depth, q.code)),
            depth=sum(q.depth for q in queues),
            octets=sum(q.octets for q in queues),
            held=sum(q.held for q in queues),
            oldest=min((q.oldest_at for q in queues if q.oldest_at is not None), default=None),
            health=await self._served.health(),
            counters=self._served.counters(),
        )

    async def _release(self, request: Request, visitor: Visitor) -> Response:
        code = request.path_params["code"]
        if code not in {q.code for q in self._served.queues()}:
            raise Refusal(Rule.RESOURCE_UNKNOWN, "there is no such queue")
        # Written down first: messages begin to flow with the release itself.
        await self._frame.audit.wrote(visitor.actor, "held messages released", code)
        released = await self._served.release(code)
        return self._frame.back(visitor, "/", f"{released} messages of {code} are delivered again.")

    async def _connections(self, request: Request, visitor: Visitor) -> Response:
        live = "live" in request.query_params
        return self._frame.render(
            request,
            "broker/connections_live.html" if live else "broker/connections.html",
            **({"fragment": True} if live else {}),
            connections=sorted(self._served.connections(), key=lambda c: str(c.identity)),
        )

    async def _show_restriction(self, request: Request, visitor: Visitor) -> Response:
        components, types, mark = self._restriction.current()
        warnings = self._restriction.warnings(components, types)
        return self._restricting(request, components, types, mark, warnings, "")

    async def _save_restriction(self, request: Request, visitor: Visitor) -> Response:
        components = [c for text in visitor.texts("components") for c in text.split()]
        types = visitor.text("message_types").split()
        mark = visitor.text("mark")
        try:
            warnings = self._restriction.warnings(components, types)
            if visitor.text("do") != "save":
                return self._restricting(request, components, types, mark, warnings, "", True)
            await self._restriction.save(components, types, mark, visitor.actor)
        except Refusal as refusal:
            return self._restricting(request, components, types, mark, (), refusal.message)
        return self._frame.back(visitor, "/restriction", "The restriction is saved and in force.")

    def _restricting(
        self,
        request: Request,
        components: Sequence[str],
        types: Sequence[str],
        mark: str,
        warnings: Sequence[str],
        problem: str,
        checked: bool = False,
    ) -> Response:
        endpoints = sorted(
            (c for c in self._served.components() if c.type is ComponentType.ENDPOINT),
            key=lambda c: c.code,
        )
        known = {c.code for c in endpoints}
        return self._frame.render(
            request,
            "broker/restriction.html",
            422 if problem else 200,
            endpoints=endpoints,
            chosen=set(components),
            others=[c for c in components if c not in known],
            types=list(types),
            mark=mark,
            warnings=warnings,
            problem=problem,
            checked=checked,
        )

    async def _refusals(self, request: Request, visitor: Visitor) -> Response:
        rows = await self._frame.audit.page(RefusalRow.KIND, COUNTED)
        refusals = [(r.sequence, r.row) for r in rows if isinstance(r.row, RefusalRow)]
        counted = Counter(row.rule for _, row in refusals)
        newest: dict[str, datetime] = {}
        peers: dict[str, set[str]] = {}
        for _, row in refusals:
            newest.setdefault(row.rule, row.at)
            peers.setdefault(row.rule, set()).add(row.peer.split(" ")[0])
        wanted = request.query_params.get("rule", "")
        listed = [(n, row) for n, row in refusals if wanted in ("", row.rule)]
        return self._frame.render(
            request,
            "broker/refusals.html",
            reasons=[
                (rule, number, newest[rule], sorted(peers[rule])[:5], _clause(rule))
                for rule, number in counted.most_common()
            ],
            rows=[row for _, row in listed[:LISTED]],
            wanted=wanted,
            counted=len(refusals),
            capped=len(refusals) == COUNTED,
        )


def _clause(rule: str) -> str:
    known = Rule.__members__.get(rule)
    return "" if known is None else known.clause
