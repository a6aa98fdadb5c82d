"""A ledger in PostgreSQL: one active service, and a standby that goes on with the same numbers."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from gridpost.core.refusal import Refusal
from support.capacity_site import CapacitySite, capacity_service, wanted
from support.waiting import eventually

pytestmark = pytest.mark.asyncio


async def until_allocated(client, quantity):
    """The service may be changing: a request is returned, refused or unknown meanwhile."""
    async with asyncio.timeout(60):
        while True:
            try:
                result = await client.allocate([wanted(quantity)])
                if not result.known:
                    result = await client.resolve(result)
                if result.known and result.confirmed:
                    return result
            except Refusal:
                await asyncio.sleep(0.1)


class Service:
    """Serves until it is told to end or has lost its turn, as `gridpost capacity run` does."""

    def __init__(self, *where, **place) -> None:
        self.site: CapacitySite | None = None
        self._end = asyncio.Event()
        self.task = asyncio.create_task(self._serve(where, place))

    async def _serve(self, where, place) -> None:
        async with capacity_service(*where, **place) as self.site:
            ended = asyncio.create_task(self._end.wait())
            await asyncio.wait({ended, self.site.running.lost}, return_when="FIRST_COMPLETED")
            ended.cancel()

    async def end(self) -> None:
        self._end.set()
        await self.task


async def test_a_standby_takes_over_the_ledger_in_the_database(rabbit, postgres, tmp_path):
    host = rabbit.virtual_host()
    place = {"store": "postgres", "postgres": {"dsn": postgres.dsn}}
    first = Service(rabbit, tmp_path / "first", host, **place)
    await eventually(lambda: first.site is not None, 60)
    await first.site.publish()
    async with first.site.client() as client:
        assert (await client.allocate([wanted(100)])).confirmed == 100
        second = Service(rabbit, tmp_path / "second", host, **place)
        await asyncio.sleep(1)
        assert second.site is None
        # The database drops the first one: it must not go on with what it has in memory.
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await asyncio.wait_for(first.task, 60)
        await eventually(lambda: second.site is not None, 60)
        assert (await until_allocated(client, 50)).confirmed == 50
        rows = [row for row in second.site.running.administration.atc() if row["allocated"]]
        assert [row["available"] for row in rows] == [850]
        await eventually(lambda: client.service_alive, 60)
    await second.end()
