"""What an operator stops and lets go by the console: pauses, maintenance, single messages."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gridpost.console.frame import Frame, Visitor
from gridpost.console.roles import Role
from gridpost.core.channels import Channel
from gridpost.core.holds import HoldKind
from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.operating import Operating

KINDS = {
    HoldKind.PARTNER: "Partner",
    HoldKind.TYPE: "Message type",
    HoldKind.CHANNEL: "Channel",
}


class OperatingPages:
    """Each action journals itself, with who did it, in the commit of what it did."""

    def __init__(self, frame: Frame, operating: Operating) -> None:
        self._frame = frame
        self._operating = operating

    def routes(self) -> list[Route]:
        def act(path: str, handler: object) -> Route:
            return self._frame.route(path, handler, Role.OPERATOR, "POST")  # type: ignore[arg-type]

        return [
            self._frame.route("/operating", self._show, Role.OPERATOR),
            act("/operating/pause", self._pause),
            act("/operating/resume", self._resume),
            act("/operating/maintenance", self._maintain),
            act("/messages/sent/{id}/resend", self._resend),
            act("/messages/sent/{id}/cancel", self._cancel),
            act("/messages/received/{id}/release", self._release),
            act("/messages/received/{id}/drop", self._drop),
        ]

    async def _show(self, request: Request, visitor: Visitor) -> Response:
        return await self._page(request, {}, "")

    async def _pause(self, request: Request, visitor: Visitor) -> Response:
        given = {name: visitor.text(name) for name in ("kind", "value", "reason")}
        try:
            hold = await self._operating.pause(
                _kind(given["kind"]), given["value"], visitor.actor, given["reason"]
            )
        except Refusal as refusal:
            return await self._page(request, given, f"{refusal.message}.")
        return self._frame.back(
            visitor, "/operating", f"Paused: {KINDS[hold.kind].lower()} {hold.value}."
        )

    async def _resume(self, request: Request, visitor: Visitor) -> Response:
        kind, value = _kind(visitor.text("kind")), visitor.text("value")
        await self._operating.resume(kind, value, visitor.actor)
        return self._frame.back(
            visitor, "/operating", f"Goes on: {KINDS[kind].lower()} {clip(value)}."
        )

    async def _maintain(self, request: Request, visitor: Visitor) -> Response:
        on = visitor.text("do") == "begin"
        await self._operating.maintain(on, visitor.actor, visitor.text("reason"))
        told = (
            "Maintenance has begun: new documents are refused."
            if on
            else "Maintenance has ended: documents are taken again."
        )
        return self._frame.back(visitor, "/operating", told)

    async def _resend(self, request: Request, visitor: Visitor) -> Response:
        old = request.path_params["id"]
        new = await self._operating.resend(old, visitor.actor, visitor.text("reason"))
        return self._frame.back(
            visitor, f"/messages/sent/{new}", f"This message repeats {old}, which had failed."
        )

    async def _cancel(self, request: Request, visitor: Visitor) -> Response:
        message_id = request.path_params["id"]
        await self._operating.cancel(message_id, visitor.actor, visitor.text("reason"))
        return self._frame.back(
            visitor, f"/messages/sent/{message_id}", "The message is cancelled; it never left."
        )

    async def _release(self, request: Request, visitor: Visitor) -> Response:
        message_id = request.path_params["id"]
        await self._operating.release(message_id, visitor.actor, visitor.text("reason"))
        return self._frame.back(
            visitor, f"/messages/received/{message_id}", "The document is offered to applications."
        )

    async def _drop(self, request: Request, visitor: Visitor) -> Response:
        message_id = request.path_params["id"]
        await self._operating.drop(message_id, visitor.actor, visitor.text("reason"))
        return self._frame.back(
            visitor,
            f"/messages/received/{message_id}",
            "The document is dropped; its sender is told.",
        )

    async def _page(self, request: Request, given: dict[str, str], problem: str) -> Response:
        return self._frame.render(
            request,
            "endpoint/operating.html",
            422 if problem else 200,
            holds=self._operating.holds.pauses,
            maintenance=self._operating.holds.maintenance,
            held_back=await self._operating.held_back(),
            kinds=KINDS,
            channels=list(Channel),
            given=given,
            problem=problem,
        )


def _kind(text: str) -> HoldKind:
    found = next((kind for kind in KINDS if kind.value == text), None)
    if found is None:
        raise Refusal(Rule.USAGE, f"'{clip(text)}' is nothing that can be paused")
    return found
