"""Duties of one process at a time: taken over when their holder is gone, and fenced against it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres.leases import Leases
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.postgres.transaction import Fence
from stores.postgres.notes import add, open_notes, texts
from support.postgres import PostgresDatabase
from support.waiting import eventually


class Worker:
    """A process with two duties."""

    def __init__(self, settings: PostgresSettings, name: str) -> None:
        self.fences: list[Fence] = []
        self.stopped = 0
        self.leases = Leases(settings, name)
        for duty in ("expiry", "renewal"):
            self.leases.add(duty, self._duty)

    async def _duty(self, fence: Fence) -> None:
        self.fences.append(fence)
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.leases.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def cut_leases(postgres: PostgresDatabase) -> None:
    """As when the machine of the holder loses its network: its locks go, and it does not know."""
    with postgres.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_database d "
            "ON d.oid = l.database WHERE locktype = 'advisory' AND datname = current_database()"
        )


async def test_a_duty_has_one_holder_and_goes_over_to_the_next(postgres: PostgresDatabase) -> None:
    settings = postgres.settings(lease_look=timedelta(seconds=0.1))
    store = open_notes(settings)
    one, two = Worker(settings, "one"), Worker(settings, "two")
    async with one.running():
        await eventually(lambda: len(one.leases.held()) == 2)
        async with two.running():
            fence = one.fences[0]
            await store.fenced(fence).run(add("by one"))
            await asyncio.sleep(0.5)
            assert two.leases.held() == {}
            assert one.stopped == 0
            # One hangs while it loses its connection: nothing stops its writing but the fence.
            with postgres.connect() as other:
                other.execute("SET search_path TO gridpost")
                other.execute("UPDATE lease SET token = token + 1 WHERE name = %s", (fence.name,))
            with pytest.raises(Refusal) as refused:
                await store.fenced(fence).run(add("too late"))
            assert refused.value.rule is Rule.LEASE_LOST
            cut_leases(postgres)
            await eventually(lambda: one.stopped == 2)
            await eventually(lambda: len(one.leases.held()) + len(two.leases.held()) == 2)
            newest = [*one.fences, *two.fences][-1]
            assert newest.token > fence.token
        await eventually(lambda: len(one.leases.held()) == 2)
    assert await store.read(texts) == ["by one"]
    await store.close()


async def test_a_take_over_waits_for_a_write_that_has_passed_its_check(
    postgres: PostgresDatabase,
) -> None:
    settings = postgres.settings(lease_look=timedelta(seconds=0.1))
    store = open_notes(settings)
    one, two = Worker(settings, "one"), Worker(settings, "two")
    async with one.running():
        await eventually(lambda: len(one.leases.held()) == 2)
        fence = next(f for f in one.fences if f.name == "expiry")

        begun = threading.Event()

        def slow(transaction: object) -> None:
            begun.set()
            transaction.connection.execute("SELECT pg_sleep(1)")
            add("slow")(transaction)

        run = asyncio.ensure_future(store.fenced(fence).run(slow))
        await eventually(begun.is_set)
    async with two.running():
        await eventually(lambda: "expiry" in two.leases.held())
        # The write was there before the new holder began.
        assert await store.read(texts) == ["slow"]
        await run
    await store.close()


async def test_a_duty_that_fails_is_begun_again(postgres: PostgresDatabase) -> None:
    settings = postgres.settings(lease_look=timedelta(seconds=0.05))
    await open_notes(settings).close()
    tokens: list[int] = []

    async def failing(fence: Fence) -> None:
        tokens.append(fence.token)
        if len(tokens) < 3:
            raise ValueError("a bug")
        await asyncio.Event().wait()

    leases = Leases(settings, "one")
    leases.add("expiry", failing)
    task = asyncio.create_task(leases.run())
    await eventually(lambda: len(tokens) == 3)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert tokens == [1, 2, 3]
