"""The desk of a node's administrator: registering endpoints, renewing their certificates, the node list.

Keys and certificates are pasted or uploaded as PEM: a private key never comes here, and one that does
is not taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gridpost.console.frame import Frame
from gridpost.console.roles import Role
from gridpost.console.visiting import Visitor
from gridpost.core.component import Contact
from gridpost.core.node import NodeComponent
from gridpost.core.refusal import Refusal, Rule

KINDS = ("authentication", "signing", "encryption")
CONTACT = ("organization", "person", "email", "phone")
MAX_LIST = 1024 * 1024
"""Bytes of a node-list file."""


class Desk(Protocol):
    """What an administrator may have changed; every change is journalled with `by`."""

    def component(self, code: str) -> NodeComponent:
        """Refuses a code that is not in the directory."""
        ...

    async def register(
        self, by: str, code: str, contact: Contact, mversion: int, papers: Mapping[str, str]
    ) -> None:
        """`papers`: PEM texts by kind."""
        ...

    async def renew(self, by: str, code: str, papers: Mapping[str, str]) -> None: ...

    async def import_nodes(self, by: str, text: str) -> int:
        """As a whole or not at all; how many nodes the list has."""
        ...

    def certificates(self, code: str) -> str:
        """The certificates of a component that count, and those that they come from, as PEM."""
        ...


class DeskPages:
    def __init__(self, frame: Frame, desk: Desk) -> None:
        self._frame = frame
        self._desk = desk

    def routes(self) -> list[Route]:
        route, role = self._frame.route, Role.ADMINISTRATOR
        return [
            route("/register", self._register_form, role),
            route("/register", self._register, role, "POST"),
            route("/components/{code}/renew", self._renew_form, role),
            route("/components/{code}/renew", self._renew, role, "POST"),
            route("/components/{code}/certificates.pem", self._certificates),
            route("/nodes/import", self._import_form, role),
            route("/nodes/import", self._import, role, "POST"),
        ]

    async def _register_form(self, request: Request, visitor: Visitor) -> Response:
        return self._registering(request, {"mversion": "1"})

    async def _register(self, request: Request, visitor: Visitor) -> Response:
        given = {name: visitor.text(name) for name in ("code", "mversion", *CONTACT, *KINDS)}
        try:
            _all_given(given, ("code", *CONTACT, *KINDS))
            if not given["mversion"].isdigit():
                raise Refusal(Rule.USAGE, "the MADES version is a number")
            await self._desk.register(
                visitor.actor,
                given["code"],
                Contact(*(given[name] for name in CONTACT)),
                int(given["mversion"]),
                _papers(given),
            )
        except Refusal as refusal:
            return self._registering(request, given, refusal)
        code = given["code"]
        return self._frame.back(
            visitor,
            f"/components/{code}",
            f"{code} is registered; its administrator needs the certificates below.",
        )

    async def _renew_form(self, request: Request, visitor: Visitor) -> Response:
        return self._renewing(request, {})

    async def _renew(self, request: Request, visitor: Visitor) -> Response:
        given = {name: visitor.text(name) for name in KINDS}
        code = self._desk.component(request.path_params["code"]).code
        try:
            if not _papers(given):
                raise Refusal(Rule.USAGE, "give a key or a certificate for at least one kind")
            await self._desk.renew(visitor.actor, code, _papers(given))
        except Refusal as refusal:
            return self._renewing(request, given, refusal)
        return self._frame.back(
            visitor,
            f"/components/{code}",
            f"{code} has new certificates; the present ones count until they end.",
        )

    async def _certificates(self, request: Request, visitor: Visitor) -> Response:
        code = self._desk.component(request.path_params["code"]).code
        name = {"content-disposition": f'attachment; filename="{code}.pem"'}
        text = self._desk.certificates(code)
        return Response(text, media_type="application/x-pem-file", headers=name)

    async def _import_form(self, request: Request, visitor: Visitor) -> Response:
        return self._importing(request, "")

    async def _import(self, request: Request, visitor: Visitor) -> Response:
        text = visitor.text("text").replace("\r\n", "\n")  # as browsers send it
        try:
            text = await _uploaded(visitor) or text
            if not text:
                raise Refusal(Rule.USAGE, "choose a node-list file, or paste its content")
            count = await self._desk.import_nodes(visitor.actor, text)
        except Refusal as refusal:
            return self._importing(request, text, refusal)
        return self._frame.back(visitor, "/nodes", f"The list is taken over: {count} nodes.")

    # ------------------------------------------------------------ pages

    def _registering(
        self, request: Request, given: Mapping[str, str], refusal: Refusal | None = None
    ) -> Response:
        return self._shown(request, "node/register.html", refusal, given=given)

    def _renewing(
        self, request: Request, given: Mapping[str, str], refusal: Refusal | None = None
    ) -> Response:
        component = self._desk.component(request.path_params["code"])
        return self._shown(request, "node/renew.html", refusal, given=given, component=component)

    def _importing(self, request: Request, text: str, refusal: Refusal | None = None) -> Response:
        return self._shown(request, "node/import.html", refusal, text=text)

    def _shown(
        self, request: Request, template: str, refusal: Refusal | None, **values: object
    ) -> Response:
        problem = "" if refusal is None else refusal.message
        return self._frame.render(
            request, template, 422 if problem else 200, problem=problem, **values
        )


def _papers(given: Mapping[str, str]) -> dict[str, str]:
    return {kind: given[kind] for kind in KINDS if given.get(kind)}


def _all_given(given: Mapping[str, str], names: tuple[str, ...]) -> None:
    missing = [name for name in names if not given[name]]
    if missing:
        raise Refusal(Rule.USAGE, f"fill in: {', '.join(missing)}")


async def _uploaded(visitor: Visitor) -> str:
    file = visitor.form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        return ""
    data = await file.read(MAX_LIST + 1)
    if len(data) > MAX_LIST:
        raise Refusal(Rule.LIMIT_EXCEEDED, f"a node-list file has at most {MAX_LIST} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal(Rule.USAGE, "the file is not text in UTF-8") from None
