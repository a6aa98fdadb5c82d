"""Duties of which one process at a time has charge: who has it, since which number, and until when.

A lease is a lock of the server that lives as long as a connection. Each take-over has a higher
number; a holder that does not know yet that its connection is gone is stopped by that number, which
is checked in the transaction that writes (`Fence`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

import psycopg
import structlog
from psycopg.rows import TupleRow

from gridpost.stores.postgres.session import (
    GUARANTEES,
    Connection,
    check_guarantees,
    session_settings,
)
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.postgres.transaction import Fence

log = structlog.get_logger(__name__)

Duty: TypeAlias = Callable[[Fence], Awaitable[None]]
"""Runs until it is cancelled. It writes through `PostgresStore.fenced(fence)`."""

AsyncConnection: TypeAlias = psycopg.AsyncConnection[TupleRow]

_TRY = "SELECT pg_try_advisory_lock(hashtextextended(current_schema() || ' lease ' || %s, 0))"
_RELEASE = "SELECT pg_advisory_unlock(hashtextextended(current_schema() || ' lease ' || %s, 0))"
# Waits for transactions of the former holder that have passed their check.
_TAKE_OVER = """
    INSERT INTO lease (name, token, holder, since) VALUES (%s, 1, %s, now())
    ON CONFLICT (name) DO UPDATE
    SET token = lease.token + 1, holder = excluded.holder, since = excluded.since
    RETURNING token
"""
_PATIENCE = 5
"""A holder whose question is not answered within so many looks has lost its leases."""


def take_over(connection: Connection, name: str, holder: str) -> Fence:
    """Become the newest holder; works of former ones are refused from now on (`Fence`)."""
    taken = connection.execute(_TAKE_OVER, (name, holder)).fetchone()
    if taken is None:
        raise psycopg.InterfaceError("a take-over has no number")
    return Fence(name, taken[0])


async def connect_async(settings: PostgresSettings) -> AsyncConnection:
    """As session.connect, for an event loop."""
    connection = await psycopg.AsyncConnection.connect(settings.conninfo(), autocommit=True)
    try:
        found = await (await connection.execute(GUARANTEES)).fetchone()
        if found is not None:
            check_guarantees(found, connection.info.server_version, settings.place())
        await connection.execute(session_settings(settings))
    except BaseException:
        await connection.close()
        raise
    return connection


@dataclass(slots=True)
class _Running:
    fence: Fence
    task: asyncio.Task[None]


class Leases:
    """The duties of this process: it tries to get each of them, and does those that it has."""

    def __init__(self, settings: PostgresSettings, holder: str) -> None:
        """`holder` is for the operator: machine and process."""
        self._settings = settings
        self._holder = holder
        self._duties: dict[str, Duty] = {}
        self._running: dict[str, _Running] = {}
        self._look = settings.lease_look.total_seconds()

    def add(self, name: str, duty: Duty) -> None:
        """Before `run`."""
        self._duties[name] = duty

    def held(self) -> dict[str, int]:
        """What this process has charge of, with the number of its take-over."""
        return {name: running.fence.token for name, running in self._running.items()}

    async def run(self) -> None:
        """Until cancelled: then duties have ended before their leases are let go."""
        while True:
            try:
                connection = await connect_async(self._settings)
            except psycopg.Error as error:
                log.warning("no database for leases", reason=str(error))
                await asyncio.sleep(self._look)
                continue
            try:
                await self._serve(connection)
            except (psycopg.Error, TimeoutError) as error:
                log.warning("leases lost", reason=str(error), leases=sorted(self._running))
            finally:
                await self._stop_all()
                await connection.close()
            await asyncio.sleep(self._look)

    async def _serve(self, connection: AsyncConnection) -> None:
        while True:
            async with asyncio.timeout(self._look * _PATIENCE):
                await connection.execute("SELECT 1")
                for name in self._duties:
                    await self._consider(connection, name)
            await asyncio.sleep(self._look)

    async def _consider(self, connection: AsyncConnection, name: str) -> None:
        running = self._running.get(name)
        if running is not None:
            if running.task.done():
                # It failed: perhaps another process can do it.
                del self._running[name]
                await connection.execute(_RELEASE, (name,))
            return
        got = await (await connection.execute(_TRY, (name,))).fetchone()
        if got != (True,):
            return
        taken = await (await connection.execute(_TAKE_OVER, (name, self._holder))).fetchone()
        if taken is None:
            raise psycopg.InterfaceError("a take-over has no number")
        fence = Fence(name, taken[0])
        log.info("lease taken", lease=name, token=fence.token)
        self._running[name] = _Running(fence, asyncio.create_task(self._do(name, fence)))

    async def _do(self, name: str, fence: Fence) -> None:
        try:
            await self._duties[name](fence)
        except Exception:
            log.exception("duty failed", lease=name)

    async def _stop_all(self) -> None:
        tasks = [running.task for running in self._running.values()]
        self._running.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
