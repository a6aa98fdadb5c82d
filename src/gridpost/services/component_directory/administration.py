"""The administration of a component-directory as a JSON API: what an administrator may see and do.

The console and the command line use it alike. Everything that changes something is journalled with
the administrator's name, in the transaction of the change itself.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime
from typing import Any

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gridpost.core.component import Component
from gridpost.core.directory_ports import RegistryStore
from gridpost.core.identifiers import clip
from gridpost.core.journal import JournalRow, values
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import Registration, RegistrationStatus
from gridpost.services.component_directory.answers import status_of
from gridpost.services.component_directory.authority import fingerprint
from gridpost.services.component_directory.metrics import DirectoryMetrics
from gridpost.services.component_directory.office import RegistryOffice
from gridpost.services.component_directory.papers import InstallationKit
from gridpost.services.component_directory.publication import Publication
from gridpost.services.component_directory.upkeep import Upkeep
from gridpost.services.operations.administrators import Administrators
from gridpost.services.operations.administrators_door import Action, AdministratorsDoor
from gridpost.wire.directory import MEDIA_TYPE, encode_components

log = structlog.get_logger(__name__)

PREFIX = "/admin/v1"
MAX_BODY = 64 * 1024
PAGE = 1000


class Administration:
    """Builds the ASGI application. `pack` makes the file that is handed to a new component."""

    def __init__(
        self,
        store: RegistryStore,
        clock: Clock,
        office: RegistryOffice,
        publication: Publication,
        upkeep: Upkeep,
        metrics: DirectoryMetrics,
        administrators: Administrators,
        pack: Callable[[InstallationKit, str], bytes],
    ) -> None:
        self._store = store
        self._clock = clock
        self._office = office
        self._publication = publication
        self._upkeep = upkeep
        self._metrics = metrics
        self._door = AdministratorsDoor(
            administrators, now=clock.now, note=self._note, status_of=status_of
        )
        self._pack = pack
        self.more_health: Callable[[], dict[str, Any]] = dict
        """What the health of this process tells besides the books."""

    def app(self) -> Starlette:
        def route(path: str, action: Action, method: str = "GET") -> Route:
            return Route(PREFIX + path, self._door.behind(action), methods=[method])

        return Starlette(
            routes=[
                Route("/health", self._health, methods=["GET"]),
                Route("/metrics", self._door.behind(self._figures), methods=["GET"]),
                route("/health", self._full_health),
                route("/registrations", self._registrations),
                route("/registrations/{id}", self._registration),
                route("/registrations/{id}/approve", self._approve, "POST"),
                route("/registrations/{id}/reject", self._reject, "POST"),
                route("/components", self._components),
                route("/components/{code}", self._component),
                route("/components/{code}/revoke", self._revoke, "POST"),
                route("/invitations", self._invite, "POST"),
                route("/export", self._export),
                route("/journal", self._journal),
            ],
            exception_handlers={HTTPException: _http_error},
        )

    async def _note(self, row: JournalRow) -> None:
        await self._store.run(lambda unit: unit.journal.append(row))

    async def _health(self, request: Request) -> Response:
        """For a load balancer: without names, and without a token."""
        try:
            health = await self._upkeep.health()
        except Exception:
            log.exception("health cannot be told")
            return JSONResponse({"status": "failed"}, 503)
        return JSONResponse({"status": health.status, "expiring": len(health.expiring)})

    async def _full_health(self, request: Request, who: str) -> Response:
        health = await self._upkeep.health()
        return JSONResponse(
            {
                "status": health.status,
                "components": health.components,
                "pending": health.pending,
                "expiring": [
                    {
                        "component": e.component,
                        "kind": e.kind,
                        "certificate_id": e.certificate_id,
                        "not_after": _time(e.not_after),
                    }
                    for e in health.expiring
                ],
                "peers": [
                    {
                        "code": p.code,
                        "succeeded_at": _time(p.succeeded_at),
                        "failed_at": _time(p.failed_at),
                        "reason": p.reason,
                    }
                    for p in health.peers
                ],
                **self.more_health(),
            }
        )

    async def _figures(self, request: Request, who: str) -> Response:
        return Response(
            generate_latest(self._metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST}
        )

    async def _registrations(self, request: Request, who: str) -> Response:
        text = request.query_params.get("status", "")
        if text and text not in RegistrationStatus.__members__:
            raise Refusal(Rule.USAGE, f"'{clip(text)}' is no status of a registration")
        found = await self._office.search(RegistrationStatus(text) if text else None, PAGE)
        return JSONResponse({"registrations": [_registration(r) for r in found]})

    async def _registration(self, request: Request, who: str) -> Response:
        return JSONResponse(_registration(await self._office.show(request.path_params["id"])))

    async def _approve(self, request: Request, who: str) -> Response:
        return JSONResponse(
            _registration(await self._office.approve(request.path_params["id"], by=who))
        )

    async def _reject(self, request: Request, who: str) -> Response:
        reason = _field(await _json(request), "reason")
        return JSONResponse(
            _registration(await self._office.reject(request.path_params["id"], reason, by=who))
        )

    async def _components(self, request: Request, who: str) -> Response:
        directory = await self._publication.directory()
        at = self._clock.now()
        return JSONResponse(
            {
                "subsystems": [
                    {
                        "component_directory": s.component_directory,
                        "content_id": s.content_id,
                        "valid_until": _time(s.valid_until),
                        "valid": s.valid_at(at),
                    }
                    for s in directory.subsystems.values()
                ],
                "components": [
                    _component(c) for s in directory.subsystems.values() for c in s.components
                ],
            }
        )

    async def _component(self, request: Request, who: str) -> Response:
        code = request.path_params["code"]
        component = await self._publication.find(code)
        if component is None:
            raise Refusal(Rule.COMPONENT_UNKNOWN, f"{clip(code)} is not in the directory")
        return JSONResponse(_component(component))

    async def _revoke(self, request: Request, who: str) -> Response:
        reason = _field(await _json(request), "reason")
        component = await self._office.revoke(request.path_params["code"], reason, by=who)
        return JSONResponse({"revoked": component.code})

    async def _invite(self, request: Request, who: str) -> Response:
        body = await _json(request)
        code, password = _field(body, "code"), _field(body, "password")
        kit = await self._office.invite(code, by=who)
        return JSONResponse(
            {
                "code": kit.invitation.code,
                "expires_at": _time(kit.invitation.expires_at),
                "bundle": b64encode(self._pack(kit, password)).decode("ascii"),
            },
            201,
        )

    async def _export(self, request: Request, who: str) -> Response:
        """The whole content, as a component that synchronises for the first time would get it."""
        answer = await self._publication.answer((), only_home=False)
        return Response(encode_components(answer), media_type=MEDIA_TYPE)

    async def _journal(self, request: Request, who: str) -> Response:
        after = request.query_params.get("after", "0")
        if not after.isdigit():
            raise Refusal(Rule.USAGE, "'after' is the number of a journal row")
        rows = await self._store.read(lambda unit: unit.journal.read(int(after), PAGE))
        return JSONResponse(
            {
                "rows": [
                    {
                        "sequence": recorded.sequence,
                        "kind": recorded.row.KIND,
                        **{name: _plain(value) for name, value in values(recorded.row).items()},
                    }
                    for recorded in rows
                ]
            }
        )


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return JSONResponse({"refused": {"message": "there is nothing of this kind here"}}, status)


async def _json(request: Request) -> dict[str, Any]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise Refusal(Rule.LIMIT_EXCEEDED, f"a body may have {MAX_BODY} bytes at most")
    try:
        value = json.loads(bytes(body) or b"{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Refusal(Rule.USAGE, "the body must be one JSON object")
    return value


def _field(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Refusal(Rule.USAGE, f"'{name}' is missing")
    return value


def _registration(registration: Registration) -> dict[str, Any]:
    request = registration.request
    return {
        "id": registration.registration_id,
        "code": request.code,
        "status": registration.status,
        "extension": registration.extension,
        "organization": request.contact.organization,
        "person": request.contact.person,
        "email": request.contact.email,
        "phone": request.contact.phone,
        "keys": [k.kind for k in request.public_keys],
        "external": [c.kind for c in request.certificates],
        "submitted_at": _time(registration.submitted_at),
        "reason": registration.reason,
        "decided_at": _time(registration.decided_at),
        "decided_by": registration.decided_by,
        "certificates": [c.certificate_id for c in registration.issued],
    }


def _component(component: Component) -> dict[str, Any]:
    return {
        "code": component.code,
        "type": component.type,
        "component_directory": component.component_directory,
        "organization": component.contact.organization,
        "person": component.contact.person,
        "email": component.contact.email,
        "phone": component.contact.phone,
        "urls": list(component.urls),
        "mades_version": component.implementation.mades_version,
        "created": str(component.created or ""),
        "modified": str(component.modified or ""),
        "certificates": [
            {
                "kind": c.kind,
                "certificate_id": c.certificate_id,
                "sha256": fingerprint(c.der).hex(),
                "not_before": _time(c.not_before),
                "not_after": _time(c.not_after),
            }
            for c in component.certificates
        ],
        "paths": [
            {
                "message_type": p.message_type,
                "path": str(p.route),
                "valid_from": p.valid_from.text,
                "valid_until": str(p.valid_until or ""),
                "senders": ["*"] if p.senders is None else sorted(p.senders),
            }
            for p in component.paths
        ],
        "restriction": None
        if component.restriction is None
        else {
            "components": sorted(component.restriction.components),
            "message_types": list(component.restriction.message_types),
        },
    }


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return value.isoformat() if isinstance(value, datetime) else value
