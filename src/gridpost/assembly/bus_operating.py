"""How a bus is watched: by one of the processes that share its home, whichever was there first."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from gridpost.assembly.bus_configuration import BusConfiguration
from gridpost.assembly.watching import Watched, Watching, shared_cursors, watching
from gridpost.core.amqp091 import RabbitConnection
from gridpost.core.ports import Clock
from gridpost.services.bus import watching as conditions
from gridpost.services.bus.service import BusService
from gridpost.services.operations.journal_follow import (
    ReadJournal,
    RecentTrouble,
    Streams,
    one_stream,
)
from gridpost.stores.sqlite.bus import SqliteBusLedger

if TYPE_CHECKING:
    from gridpost.stores.postgres.bus import PostgresBusLedger

AnyLedger: TypeAlias = "SqliteBusLedger | PostgresBusLedger"
_TURN = "watching.lock"
_JOURNAL = "following the journal"


class BusWatch:
    """What health tells: the alerts, where this process watches."""

    def __init__(self, dead: conditions.DeadLetters) -> None:
        self.dead = dead
        self.watching: Watching | None = None

    def alerts(self) -> list[dict[str, str]]:
        return [] if self.watching is None else self.watching.alerts()

    def health(self) -> dict[str, Any]:
        if self.watching is None:
            return {"watched_by": "another process of this bus"}
        return self.watching.health()


@asynccontextmanager
async def bus_watch(
    configuration: BusConfiguration,
    clock: Clock,
    ledger: AnyLedger,
    service: BusService,
    connection: Callable[[], RabbitConnection | None],
) -> AsyncIterator[BusWatch]:
    """Processes of one home share the memory of what was told: two would tell everything twice."""
    rules = configuration.alerts.rules.thresholds()
    home = configuration.home
    await asyncio.to_thread(home.mkdir, mode=0o700, parents=True, exist_ok=True)
    dead = conditions.DeadLetters(service, connection)
    more = [conditions.broker(service), dead.observe]
    watch = BusWatch(dead)

    async def run() -> None:
        async with (
            _turn(home / _TURN, configuration.alerts.cycle.total_seconds()),
            _streams(ledger) as streams,
        ):
            cursors = shared_cursors(configuration.postgres)
            who = Watched(configuration.code, home, clock, streams, cursors)
            async with watching(who, configuration, RecentTrouble(rules.window), more) as found:
                watch.watching = found
                await asyncio.Event().wait()

    task = asyncio.create_task(run())
    try:
        yield watch
    finally:
        await _ended(task)
        await dead.close()


@asynccontextmanager
async def _streams(ledger: AnyLedger) -> AsyncIterator[Streams]:
    """Of those that watch, on several machines, one at a time reads what is in PostgreSQL."""
    if isinstance(ledger, SqliteBusLedger):
        yield one_stream(
            ledger.identity.instance,
            lambda after, limit: ledger.read(lambda unit: unit.journal.listed(after, limit)),
        )
        return
    from gridpost.stores.postgres.leases import Leases
    from gridpost.stores.postgres.processes import process_name

    leases = Leases(ledger.settings, process_name())
    leases.add(_JOURNAL, lambda _: _for_ever())

    async def streams() -> Mapping[str, ReadJournal]:
        return await ledger.streams() if _JOURNAL in leases.held() else {}

    task = asyncio.create_task(leases.run())
    try:
        yield streams
    finally:
        await _ended(task)


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@asynccontextmanager
async def _turn(file: Path, seconds: float) -> AsyncIterator[None]:
    """The lock goes with the process, however it ends."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(seconds)
        yield
    finally:
        os.close(handle)
