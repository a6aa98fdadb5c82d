"""The standing of one edge among those that share a database: its number, its lock, what it is told.

An edge lives as long as the connection that holds the lock of its number. A connection that is made
again gets another number: what the edge had before is free, also for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
import structlog
from psycopg import Notify, sql

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres.faults import refusal_of
from gridpost.stores.postgres.leases import AsyncConnection, connect_async
from gridpost.stores.postgres.settings import PostgresSettings

log = structlog.get_logger(__name__)

_NUMBER = "SELECT nextval('edge_number')"
# Before the row is there for others to see: a row without its lock is that of a dead edge.
_LOCK: LiteralString = (
    "SELECT pg_advisory_lock(hashtextextended(current_schema() || ' edge', %s::bigint))"
)
_ADD = "INSERT INTO edge (number, holder, since) VALUES (%s, %s, now())"


class EdgeConnection:
    """Keeps one connection that holds the lock and listens; makes it again when it broke."""

    def __init__(
        self,
        settings: PostgresSettings,
        channel: str,
        holder: str,
        *,
        taken: Callable[[int], None],
        told: Callable[[Notify], None],
        lost: Callable[[Refusal], None],
        retry: timedelta,
    ) -> None:
        self._settings = settings
        self._channel = channel
        self._holder = holder
        self._taken = taken
        self._told = told
        self._lost = lost
        self._retry = retry.total_seconds()
        self._dropped: asyncio.Future[Refusal] | None = None

    def drop(self, refusal: Refusal) -> None:
        """What this edge had is void: begin anew."""
        if self._dropped is not None and not self._dropped.done():
            self._dropped.set_result(refusal)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._lost(await self._serve())
            await asyncio.sleep(self._retry)

    async def _serve(self) -> Refusal:
        """Why it ended."""
        connection: AsyncConnection | None = None
        try:
            connection = await connect_async(self._settings)
            number = await self._stand_up(connection)
            self._dropped = asyncio.get_running_loop().create_future()
            self._taken(number)
            return await self._listen(connection, self._dropped)
        except Refusal as refusal:
            return refusal
        except psycopg.Error as error:
            return refusal_of(error) or Refusal(Rule.INTERNAL, "the database failed", str(error))
        finally:
            self._dropped = None
            if connection is not None:
                await connection.close()

    async def _stand_up(self, connection: AsyncConnection) -> int:
        found = await (await connection.execute(_NUMBER)).fetchone()
        assert found is not None
        number = int(found[0])
        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        await connection.execute(_LOCK, (number,))
        await connection.execute(_ADD, (number, self._holder))
        return number

    async def _listen(
        self, connection: AsyncConnection, dropped: asyncio.Future[Refusal]
    ) -> Refusal:
        listening = asyncio.create_task(self._hear(connection))
        try:
            ends: set[asyncio.Future[Any]] = {listening, dropped}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if dropped.done():
                return dropped.result()
            await listening
            return Refusal(Rule.STORE_UNREACHABLE, "the database ended the connection")
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError, psycopg.Error):
                await listening

    async def _hear(self, connection: AsyncConnection) -> None:
        async for notify in connection.notifies():
            self._told(notify)
