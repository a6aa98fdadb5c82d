"""The console of a MADES 1.1 node: registered endpoints, their certificates, other nodes, messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gridpost.console.certificates import shown
from gridpost.console.frame import Frame, number_of
from gridpost.console.node_desk import Desk, DeskPages
from gridpost.console.roles import Role
from gridpost.console.settings import Place
from gridpost.console.visiting import Visitor
from gridpost.core.identifiers import clip
from gridpost.core.node import BoxEntry, LocalState, NodeComponent, RemoteNode
from gridpost.core.refusal import Refusal, Rule

PLACES = (
    Place("/", "Overview", "overview"),
    Place("/components", "Components", "component"),
    Place("/nodes", "Other nodes", "directory"),
    Place("/messages", "Messages", "message"),
)
PAGE = 100


class Served(Protocol):
    """The running node, as its operator sees it."""

    def components(self) -> Mapping[str, NodeComponent]: ...

    @property
    def dversion(self) -> int: ...

    async def counts(self) -> Mapping[LocalState, int]: ...

    async def entries(self, after: int, limit: int) -> Sequence[BoxEntry]: ...

    async def nodes(self) -> Sequence[RemoteNode]: ...

    async def synchronise(self) -> Sequence[RemoteNode]: ...

    async def revoke(self, by: str, code: str, certificate_id: str, reason: str) -> None: ...


class NodeConsole:
    def __init__(self, frame: Frame, served: Served, desk: Desk) -> None:
        self._desk = DeskPages(frame, desk)
        self._frame = frame
        self._served = served

    def app(self) -> ASGIApp:
        route = self._frame.route
        return self._frame.app(
            [
                route("/", self._overview),
                route("/components", self._components),
                route("/components/{code}", self._component),
                route("/components/{code}/revoke", self._revoke_form, Role.ADMINISTRATOR),
                route("/components/{code}/revoke", self._revoke, Role.ADMINISTRATOR, "POST"),
                route("/nodes", self._nodes),
                route("/nodes/synchronise", self._synchronise, Role.OPERATOR, "POST"),
                route("/messages", self._messages),
                *self._desk.routes(),
            ]
        )

    async def _overview(self, request: Request, visitor: Visitor) -> Response:
        counts = await self._served.counts()
        components = self._served.components()
        return self._frame.render(
            request,
            "node/overview.html",
            counts=[(state, counts.get(state, 0)) for state in LocalState],
            waiting=sum(count for state, count in counts.items() if not state.is_final),
            everywhere=len(components),
            ours=sum(self._ours(c) for c in components.values()),
            nodes=await self._served.nodes(),
            dversion=self._served.dversion,
            itself=components.get(self._frame.whose.code),
        )

    async def _components(self, request: Request, visitor: Visitor) -> Response:
        wanted = request.query_params.get("search", "").strip()
        rows = [
            c
            for c in self._served.components().values()
            if wanted.lower() in f"{c.code} {c.contact.organization}".lower()
        ]
        return self._frame.render(
            request,
            "node/components.html",
            rows=sorted(rows, key=lambda c: c.code)[:PAGE],
            count=len(rows),
            search=wanted,
        )

    async def _component(self, request: Request, visitor: Visitor) -> Response:
        component = self._known(request)
        return self._frame.render(
            request,
            "node/component.html",
            component=component,
            certificates=[(shown(k.certificate), k.revoked) for k in component.certificates],
            ours=self._ours(component) and component.code != self._frame.whose.code,
        )

    async def _revoke_form(self, request: Request, visitor: Visitor) -> Response:
        certificate_id = request.query_params.get("certificate", "")
        return self._revoking(request, self._known(request), certificate_id, "", "")

    async def _revoke(self, request: Request, visitor: Visitor) -> Response:
        component = self._known(request)
        certificate_id, reason = visitor.text("certificate"), visitor.text("reason")
        if visitor.text("confirm") != component.code:
            problem = f"Type the code {component.code} to confirm."
            return self._revoking(request, component, certificate_id, reason, problem)
        await self._served.revoke(visitor.actor, component.code, certificate_id, reason)
        return self._frame.back(
            visitor,
            f"/components/{component.code}",
            f"The certificate {certificate_id} is revoked: it never counts again.",
        )

    def _revoking(
        self,
        request: Request,
        component: NodeComponent,
        certificate_id: str,
        reason: str,
        problem: str,
    ) -> Response:
        """MADES 1.1 cl. 3.16.8: one certificate, not the whole component."""
        found = [
            k.certificate
            for k in component.certificates
            if k.certificate.certificate_id == certificate_id and not k.revoked
        ]
        if not found or not self._ours(component):
            raise Refusal(Rule.RESOURCE_UNKNOWN, "there is no such certificate to revoke here")
        return self._frame.render(
            request,
            "node/revoke.html",
            422 if problem else 200,
            component=component,
            certificate=shown(found[0]),
            reason=reason,
            problem=problem,
        )

    async def _nodes(self, request: Request, visitor: Visitor) -> Response:
        components = self._served.components().values()
        nodes = await self._served.nodes()
        count = {n.code: sum(c.routing.node == n.code for c in components) for n in nodes}
        return self._frame.render(request, "node/nodes.html", nodes=nodes, count=count)

    async def _synchronise(self, request: Request, visitor: Visitor) -> Response:
        await self._frame.audit.wrote(visitor.actor, "synchronisation asked for")
        nodes = await self._served.synchronise()
        reached = sum(not node.problem for node in nodes)
        return self._frame.back(visitor, "/nodes", f"{reached} of {len(nodes)} nodes were reached.")

    async def _messages(self, request: Request, visitor: Visitor) -> Response:
        after = number_of(request.query_params, "after") or 0
        found = await self._served.entries(after, PAGE + 1)
        return self._frame.render(
            request,
            "node/messages.html",
            rows=found[:PAGE],
            more=found[PAGE - 1].number if len(found) > PAGE else None,
            after=after,
        )

    def _ours(self, component: NodeComponent) -> bool:
        return component.routing.node == self._frame.whose.code

    def _known(self, request: Request) -> NodeComponent:
        code = request.path_params["code"]
        found = self._served.components().get(code)
        if found is None:
            raise Refusal(Rule.COMPONENT_UNKNOWN, f"{clip(code)} is not in the directory")
        return found
