"""Connections that are not let in are journalled, however many there are, and never hold anybody up."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from prometheus_client import CollectorRegistry

from gridpost.core.journal import RefusalRow
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.component_directory.doorstep import Doorstep
from gridpost.services.component_directory.metrics import DirectoryMetrics
from gridpost.stores.memory.directory import MemoryDirectoryStore
from gridpost.wire.directory import decode_error
from support.component_directory import TestClock
from support.waiting import eventually

CD = "component-directory"


async def rows(store: MemoryDirectoryStore) -> list[RefusalRow]:
    found = await store.read(lambda unit: unit.journal.read(0, 1000))
    return [recorded.row for recorded in found if isinstance(recorded.row, RefusalRow)]


@pytest.mark.req("503-10-a", component=CD)
async def test_a_flood_is_written_in_part_and_counted_as_a_whole() -> None:
    store = MemoryDirectoryStore()
    metrics = DirectoryMetrics(CollectorRegistry())
    doorstep = Doorstep(store, TestClock(), metrics, most=5, round_seconds=0.5)
    task = asyncio.create_task(doorstep.run())
    for number in range(5_000):
        refusal = Refusal(Rule.CHAIN_NOT_TRUSTED, "the certificate was not accepted")
        doorstep.refused(refusal, f"192.0.2.1:{number}")
    media_type, body = doorstep.malformed("\x16\x03\x01")
    assert decode_error(body).id
    assert media_type == "application/xml"
    written: list[RefusalRow] = []

    def summed() -> bool:
        return any("more were refused" in row.message for row in written)

    async def look() -> bool:
        written[:] = await rows(store)
        return summed()

    async with asyncio.timeout(60):
        while not await look():
            await asyncio.sleep(0.02)
    assert [row.peer for row in written[:5]] == [f"192.0.2.1:{n}" for n in range(5)]
    assert all(row.security for row in written[:5])
    assert [row.message.partition(" ")[0] for row in written[5:]] == ["4995", "1"]
    # The next round has room again, and what waits at the end is written.
    await eventually(lambda: doorstep._left == 5)
    doorstep.refused(Refusal(Rule.PEER_UNKNOWN, "the peer showed no certificate"), "192.0.2.2:1")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert (await rows(store))[-1].peer == "192.0.2.2:1"
