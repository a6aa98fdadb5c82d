"""The console of a component-directory: registrations to decide, components, other directories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gridpost.console.certificates import shown, shown_key
from gridpost.console.configuring import SettingPages, SettingsDesk
from gridpost.console.frame import Frame, Visitor
from gridpost.console.roles import Role
from gridpost.console.settings import Place
from gridpost.core.component import Component
from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import Registration, RegistrationStatus
from gridpost.core.synchronisation import Directory
from gridpost.services.component_directory.upkeep import Health

PLACES = (
    Place("/", "Overview", "overview"),
    Place("/registrations", "Registrations", "registration"),
    Place("/components", "Components", "component"),
    Place("/directories", "Other directories", "directory"),
    Place("/settings", "Settings", "settings", Role.ADMINISTRATOR),
)
PAGE = 200


class Office(Protocol):
    """The registry office, as an administrator uses it."""

    async def search(
        self, status: RegistrationStatus | None, limit: int = 1000
    ) -> Sequence[Registration]: ...

    async def show(self, registration_id: str) -> Registration: ...

    async def approve(self, registration_id: str, *, by: str) -> Registration: ...

    async def reject(self, registration_id: str, reason: str, *, by: str) -> Registration: ...

    async def revoke(self, code: str, reason: str, *, by: str) -> Component: ...


class Published(Protocol):
    async def directory(self) -> Directory: ...

    async def find(self, code: str) -> Component | None: ...


class Watched(Protocol):
    async def health(self) -> Health: ...


class DirectoryConsole:
    def __init__(
        self,
        frame: Frame,
        office: Office,
        published: Published,
        watched: Watched,
        contacts: Callable[[], Mapping[str, datetime]],
        settings: SettingsDesk,
    ) -> None:
        """`contacts` says when each component last synchronised since this directory started."""
        self._frame = frame
        self._office = office
        self._published = published
        self._watched = watched
        self._contacts = contacts
        self._settings = SettingPages(frame, settings)

    def app(self) -> ASGIApp:
        route = self._frame.route
        return self._frame.app(
            [
                route("/", self._overview),
                route("/registrations", self._registrations),
                route("/registrations/{id}", self._registration),
                route("/registrations/{id}/approve", self._approve, Role.OPERATOR, "POST"),
                route("/registrations/{id}/reject", self._reject, Role.OPERATOR, "POST"),
                route("/components", self._components),
                route("/components/{code}", self._component),
                route("/components/{code}/revoke", self._revoke_form, Role.ADMINISTRATOR),
                route("/components/{code}/revoke", self._revoke, Role.ADMINISTRATOR, "POST"),
                route("/directories", self._directories),
                *self._settings.routes(),
            ]
        )

    async def _overview(self, request: Request, visitor: Visitor) -> Response:
        health = await self._watched.health()
        pending = await self._office.search(RegistrationStatus.PENDING, 5)
        directory = await self._published.directory()
        return self._frame.render(
            request,
            "directory/overview.html",
            health=health,
            pending=pending,
            everywhere=sum(len(s.components) for s in directory.subsystems.values()),
            subsystems=list(directory.subsystems.values()),
            contacts=self._contacts(),
        )

    async def _registrations(self, request: Request, visitor: Visitor) -> Response:
        text = request.query_params.get("status", "PENDING")
        if text != "ALL" and text not in RegistrationStatus.__members__:
            raise Refusal(Rule.USAGE, f"'{clip(text)}' is no status of a registration")
        found = await self._office.search(
            None if text == "ALL" else RegistrationStatus(text), PAGE + 1
        )
        return self._frame.render(
            request,
            "directory/registrations.html",
            rows=found[:PAGE],
            more=len(found) > PAGE,
            status=text,
            statuses=[*RegistrationStatus, "ALL"],
        )

    async def _registration(self, request: Request, visitor: Visitor) -> Response:
        registration = await self._office.show(request.path_params["id"])
        asked = registration.request
        return self._frame.render(
            request,
            "directory/registration.html",
            registration=registration,
            keys=[shown_key(k) for k in asked.public_keys],
            external=[shown(c) for c in asked.certificates],
            issued=[shown(c) for c in registration.issued],
            taken=await self._published.find(asked.code),
        )

    async def _approve(self, request: Request, visitor: Visitor) -> Response:
        registration = await self._office.approve(request.path_params["id"], by=visitor.actor)
        return self._frame.back(
            visitor,
            f"/registrations/{registration.registration_id}",
            f"{registration.request.code} is approved and published.",
        )

    async def _reject(self, request: Request, visitor: Visitor) -> Response:
        registration = await self._office.reject(
            request.path_params["id"], visitor.text("reason"), by=visitor.actor
        )
        return self._frame.back(
            visitor,
            f"/registrations/{registration.registration_id}",
            f"The registration of {registration.request.code} is rejected.",
        )

    async def _components(self, request: Request, visitor: Visitor) -> Response:
        directory = await self._published.directory()
        wanted = request.query_params.get("search", "").strip()
        kind = request.query_params.get("type", "")
        rows = [
            (subsystem, component)
            for subsystem in directory.subsystems.values()
            for component in subsystem.components
            if _named(component, wanted) and kind in ("", component.type)
        ]
        return self._frame.render(
            request,
            "directory/components.html",
            rows=sorted(rows, key=lambda row: row[1].code)[:PAGE],
            count=len(rows),
            search=wanted,
            type=kind,
            contacts=self._contacts(),
        )

    async def _component(self, request: Request, visitor: Visitor) -> Response:
        component, directory = await self._known(request)
        return self._frame.render(
            request,
            "directory/component.html",
            component=component,
            certificates=[shown(c) for c in component.certificates],
            subsystem=directory.subsystems[component.component_directory],
            contact=self._contacts().get(component.code),
            ours=component.component_directory == self._frame.whose.code,
            itself=component.code == self._frame.whose.code,
        )

    async def _revoke_form(self, request: Request, visitor: Visitor) -> Response:
        component, _ = await self._known(request)
        return self._revoking(request, component, "", "")

    async def _revoke(self, request: Request, visitor: Visitor) -> Response:
        component, _ = await self._known(request)
        reason = visitor.text("reason")
        if visitor.text("confirm") != component.code:
            return self._revoking(
                request, component, reason, f"Type the code {component.code} to confirm."
            )
        await self._office.revoke(component.code, reason, by=visitor.actor)
        return self._frame.back(
            visitor,
            "/components",
            f"{component.code} is revoked: its certificates never count again.",
        )

    async def _directories(self, request: Request, visitor: Visitor) -> Response:
        health = await self._watched.health()
        directory = await self._published.directory()
        return self._frame.render(
            request,
            "directory/directories.html",
            peers=[(p, directory.subsystems.get(p.code)) for p in health.peers],
        )

    def _revoking(
        self, request: Request, component: Component, reason: str, problem: str
    ) -> Response:
        return self._frame.render(
            request,
            "directory/revoke.html",
            422 if problem else 200,
            component=component,
            certificates=[shown(c) for c in component.certificates],
            reason=reason,
            problem=problem,
        )

    async def _known(self, request: Request) -> tuple[Component, Directory]:
        code = request.path_params["code"]
        directory = await self._published.directory()
        for subsystem in directory.subsystems.values():
            for component in subsystem.components:
                if component.code == code:
                    return component, directory
        raise Refusal(Rule.COMPONENT_UNKNOWN, f"{clip(code)} is not in the directory")


def _named(component: Component, text: str) -> bool:
    return text.lower() in f"{component.code} {component.contact.organization}".lower()
