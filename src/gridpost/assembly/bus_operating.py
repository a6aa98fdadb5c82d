"""How a bus is watched: by one of the processes that share its home, whichever was there first."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gridpost.assembly.bus_configuration import BusConfiguration
from gridpost.assembly.watching import Watched, Watching, watching
from gridpost.core.amqp091 import RabbitConnection
from gridpost.core.journal import Recorded
from gridpost.core.ports import Clock
from gridpost.services.bus import watching as conditions
from gridpost.services.bus.service import BusService
from gridpost.services.operations.journal_follow import ReadJournal, RecentTrouble
from gridpost.stores.sqlite.bus import SqliteBusLedger

if TYPE_CHECKING:
    from gridpost.stores.postgres.bus import PostgresBusLedger

_TURN = "watching.lock"


class BusWatch:
    """What health tells: the alerts, where this process watches."""

    def __init__(self, dead: conditions.DeadLetters) -> None:
        self.dead = dead
        self.watching: Watching | None = None

    def health(self) -> dict[str, Any]:
        if self.watching is None:
            return {"watched_by": "another process of this bus"}
        return self.watching.health()


@asynccontextmanager
async def bus_watch(
    configuration: BusConfiguration,
    clock: Clock,
    ledger: SqliteBusLedger | PostgresBusLedger,
    service: BusService,
    connection: Callable[[], RabbitConnection | None],
) -> AsyncIterator[BusWatch]:
    """Processes of one home share the memory of what was told: two would tell everything twice."""
    rules = configuration.alerts.rules.thresholds()
    home = configuration.home
    await asyncio.to_thread(home.mkdir, mode=0o700, parents=True, exist_ok=True)
    instance = ledger.identity.instance
    who = Watched(configuration.code, home, instance, clock, _journal_of(ledger))
    dead = conditions.DeadLetters(service, connection)
    more = [
        conditions.broker(service),
        dead.observe,
    ]
    watch = BusWatch(dead)

    async def run() -> None:
        async with (
            _turn(home / _TURN, configuration.alerts.cycle.total_seconds()),
            watching(who, configuration, RecentTrouble(rules.window), more) as found,
        ):
            watch.watching = found
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    try:
        yield watch
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await dead.close()


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


def _journal_of(ledger: SqliteBusLedger | PostgresBusLedger) -> ReadJournal:
    async def listed(after: int, limit: int) -> Sequence[Recorded]:
        if isinstance(ledger, SqliteBusLedger):
            return await ledger.read(lambda unit: unit.journal.listed(after, limit))
        # In PostgreSQL every thread of every process has a stream of the journal.
        return ()

    return listed
