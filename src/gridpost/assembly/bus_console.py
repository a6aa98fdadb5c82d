"""The console of a bus, joined to the parts that run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gridpost.assembly.bus_configuration import (
    COMPONENT,
    BusConfiguration,
    read_bus_configuration,
)
from gridpost.assembly.bus_operating import AnyLedger, BusWatch
from gridpost.assembly.console import FileCredentials, reloaded_console, whose
from gridpost.console.bus import PLACES, BusConsole
from gridpost.console.frame import Frame
from gridpost.core.bus import Instance
from gridpost.core.journal import EnvelopeRow, Recorded
from gridpost.core.ports import Clock
from gridpost.services.bus.service import BusService


class ServedBus:
    """console.bus.Served."""

    def __init__(
        self,
        configuration: BusConfiguration,
        service: BusService,
        ledger: AnyLedger,
        watch: BusWatch,
    ) -> None:
        self._configuration = configuration
        self._service = service
        self._ledger = ledger
        self._watch = watch

    @property
    def connected(self) -> bool:
        return self._service.post.channel is not None

    @property
    def under_way(self) -> int:
        return self._service.under_way

    async def instances(self) -> Sequence[Instance]:
        return await self._service.instances()

    async def waiting(self) -> int:
        return await self._ledger.read(lambda unit: unit.waiting())

    async def dead_letters(self) -> Mapping[str, int] | None:
        return await self._watch.dead.count()

    async def envelopes(self, limit: int, before: int | None) -> Sequence[Recorded]:
        return await self._ledger.read(
            lambda unit: unit.journal.latest(EnvelopeRow.KIND, limit, before)
        )

    def alerts(self) -> Sequence[Mapping[str, Any]]:
        return self._watch.alerts()

    def interface(self) -> Sequence[Mapping[str, str]]:
        return self._service.interface()

    def subscribers(self) -> Sequence[Mapping[str, str]]:
        return [
            {"name": s.name, "verb": s.verb, "noun": s.noun, "to": _without_secrets(s.to)}
            for s in self._configuration.subscribers
        ]


def _without_secrets(place: str) -> str:
    """An address may hold the password of whoever uses it."""
    scheme, slashes, rest = place.partition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}" if slashes else place


@asynccontextmanager
async def bus_console(
    configuration: BusConfiguration,
    served: ServedBus,
    ledger: AnyLedger,
    clock: Clock,
    file: Path | None,
) -> AsyncIterator[int | None]:
    """Serves until the block ends; None where the configuration has no [console]."""
    section = configuration.console
    if section is None or section.certificate is None or section.key is None:
        yield None
        return
    frame = Frame(whose(configuration.code, COMPONENT), section.settings(), clock, ledger, PLACES)
    frame.alerts = served.alerts
    own = FileCredentials(section.certificate, section.key)
    async with reloaded_console(
        section,
        frame,
        BusConsole(frame, served).app(),
        own,
        file,
        lambda changed: read_bus_configuration(changed).console,
    ) as port:
        yield port
