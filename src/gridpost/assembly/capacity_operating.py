"""What operators have of a capacity service: its JSON API, its console, its alerts, and a safe restore."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import structlog
from cryptography.hazmat.primitives.serialization import pkcs12
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gridpost.assembly.after_restore import missing_of
from gridpost.assembly.capacity_configuration import (
    COMPONENT,
    CapacityConfiguration,
    RabbitmqSection,
)
from gridpost.assembly.console import FileCredentials, console_port, whose
from gridpost.assembly.watching import Watched, Watching, shared_cursors, watching
from gridpost.console.capacity import PLACES, CapacityConsole
from gridpost.console.frame import Frame
from gridpost.core.capacity import Status
from gridpost.core.capacity_ledger import CapacityLedger
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal
from gridpost.services.capacity import desk
from gridpost.services.capacity import watching as conditions
from gridpost.services.capacity.administration import Administration
from gridpost.services.capacity.api import AdministrationApi
from gridpost.services.capacity.service import CapacityService
from gridpost.services.operations import observers
from gridpost.services.operations.journal_follow import RecentTrouble, one_stream
from gridpost.stores.sqlite.snapshot import restored
from gridpost.transports.https import ClientCertificate, ServerTls, serve
from gridpost.transports.loopback import serve_loopback

log = structlog.get_logger(__name__)

T = TypeVar("T")
_AT_ONCE = 0.5
"""Seconds after which a service that has no turn yet is a standby."""
_DOCUMENT = 64 * 1024 * 1024


@asynccontextmanager
async def api_port(
    configuration: CapacityConfiguration, api: AdministrationApi
) -> AsyncIterator[int | None]:
    section = configuration.administration
    if section is None:
        yield None
    elif section.certificate is None or section.key is None:
        async with serve_loopback(api.app(), section.host, section.port) as port:
            yield port
    else:
        tls = ServerTls(FileCredentials(section.certificate, section.key), ClientCertificate.NONE)
        async with serve(api.app(), section.host, section.port, tls) as server:
            yield server.port


async def standing_by(configuration: CapacityConfiguration, turn: Coroutine[Any, Any, T]) -> T:
    """Waits for the turn; a standby tells on the operations port that it is one."""
    waiting = asyncio.create_task(turn)
    try:
        await asyncio.wait({waiting}, timeout=_AT_ONCE)
        if not waiting.done():
            async with _standby_port(configuration):
                await asyncio.wait({waiting})
        return await waiting
    finally:
        waiting.cancel()


@asynccontextmanager
async def _standby_port(configuration: CapacityConfiguration) -> AsyncIterator[None]:
    section = configuration.operations
    async with AsyncExitStack() as stack:
        try:
            port = await stack.enter_async_context(
                serve_loopback(standby_app(), section.host, section.port)
            )
            log.info("standing by", operations_port=port)
        except Refusal as refusal:
            # The active service of this very configuration has the port.
            log.warning("standing by without a health listener", reason=refusal.message)
        yield


def standby_app() -> Starlette:
    """A standby is well, and cannot do the work: `/health` says so, `/health/ready` sends nobody here."""
    told = {"active": False, "state": "standing by"}

    async def well(request: Request) -> Response:
        return JSONResponse({"ok": True, **told})

    async def not_ready(request: Request) -> Response:
        return JSONResponse({"ok": False, **told}, 503)

    return Starlette(
        routes=[
            Route("/health", well),
            Route("/health/live", well),
            Route("/health/ready", not_ready),
            Route("/health/deep", not_ready),
        ]
    )


def console_frame(
    configuration: CapacityConfiguration, clock: Clock, ledger: CapacityLedger
) -> Frame | None:
    section = configuration.console
    if section is None:
        return None
    return Frame(whose(configuration.code, "capacity"), section.settings(), clock, ledger, PLACES)


@asynccontextmanager
async def console(
    configuration: CapacityConfiguration,
    frame: Frame | None,
    administration: Administration,
    service: CapacityService,
) -> AsyncIterator[int | None]:
    section = configuration.console
    if section is None or frame is None or section.certificate is None or section.key is None:
        yield None
        return
    pages = CapacityConsole(frame, administration, service.health)
    own = FileCredentials(section.certificate, section.key)
    async with console_port(section, pages.app(), own, _DOCUMENT) as port:
        yield port


def watch(
    configuration: CapacityConfiguration,
    clock: Clock,
    ledger: CapacityLedger,
    service: CapacityService,
) -> AbstractAsyncContextManager[Watching]:
    rules = configuration.alerts.rules.thresholds()
    configuration.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    who = Watched(
        configuration.code,
        configuration.home,
        clock,
        one_stream(
            ledger.identity.instance,
            lambda after, limit: ledger.read(lambda reader: reader.journal.listed(after, limit)),
        ),
        shared_cursors(configuration.postgres),
    )
    more = [
        conditions.broker(service),
        conditions.shortfall(service),
        observers.ending(
            clock, lambda: _package_end(configuration.rabbitmq), rules.certificate_expiry
        ),
    ]
    return watching(who, configuration, RecentTrouble(rules.window), more)


def _package_end(section: RabbitmqSection) -> Sequence[tuple[str, datetime]]:
    """Read each time: a renewed package counts at once."""
    if section.package is None:
        return ()
    secret = "" if section.passphrase is None else section.passphrase.get_secret_value()
    try:
        package = pkcs12.load_pkcs12(section.package.read_bytes(), secret.encode() or None)
    except (OSError, ValueError):
        # Half-way through a renewal; the connection itself says what is wrong with it.
        return ()
    if package.cert is None:
        return ()
    return (("rabbitmq", package.cert.certificate.not_valid_after_utc),)


async def halt_after_restore(
    store: Path, ledger: CapacityLedger, service: CapacityService, at: datetime
) -> None:
    """Before the first run after a restore: what is missing in the ledger must not be sold again."""
    found = restored(store)
    if found is None:
        return
    log.warning("restored from a backup", taken_at=found.taken_at, missing=missing_of(COMPONENT))
    newest = await ledger.read(lambda reader: reader.latest(1))
    if newest and newest[0].at > datetime.fromisoformat(found.restored_at):
        return
    names, actor = service.settings.names, f"restored from a backup of {found.taken_at}"
    for border in service.settings.market.borders:
        await ledger.run(
            lambda unit, border=border: desk.set_status(  # type: ignore[misc]
                unit, names, border, "", Status.HALT, actor, at
            )
        )
