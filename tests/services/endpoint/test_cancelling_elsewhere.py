"""Cancelling through one process a message that another process of the endpoint is to transfer.

Two stores on one database, each with a dispatcher and an operator: what two processes have.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from gridpost.assembly.endpoint_wishes import Wishes
from gridpost.core.delivery import Side, State
from gridpost.core.holds import HoldKind
from gridpost.core.identifiers import ComponentCode
from gridpost.core.journal import AdministrationRow
from gridpost.core.links import Octets
from gridpost.core.message_path import Route
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext, EndpointSettings
from gridpost.services.endpoint.dispatch import Dispatcher
from gridpost.services.endpoint.operating import Operating
from gridpost.services.endpoint.submission import Document, Submission
from gridpost.services.endpoint.transfer import Transfer
from gridpost.stores.postgres.endpoint import PostgresEndpointStore
from gridpost.stores.postgres.news import Listener, Topic
from support.post import World, keys_of
from support.postgres import PostgresDatabase
from support.waiting import eventually


class Courier:
    """Counts what leaves; `go_on` lets it arrive."""

    def __init__(self) -> None:
        self.begun = 0
        self.slowness: Callable[[], float] = lambda: 0.0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def deliver(self, route: Route, receiver: ComponentCode, *octets: Octets) -> None:
        self.begun += 1
        await asyncio.sleep(self.slowness())
        await self.go_on.wait()


class OneProcess:
    def __init__(self, store: PostgresEndpointStore, world: World) -> None:
        self.store = store
        self.courier = Courier()
        self.context = EndpointContext(
            ComponentCode("E1"),
            store,
            keys_of("E1")[0],
            world.clock,
            lambda: world.directory,
            EndpointSettings(),
        )
        self.submission = Submission(self.context)
        self.dispatcher = Dispatcher(self.context, Transfer(self.context, self.courier))
        self.operating = Operating(self.context, self.submission, self.dispatcher)
        self.wishes = Wishes(store, self.operating)
        self.operating.ask_owner = self.wishes.ask
        self.hears = True
        self._listener = Listener(store.settings, lambda: store.process, self._heard)

    async def _heard(self, topic: Topic, about: str) -> None:
        if topic in (Topic.HOLDS, Topic.EVERYTHING):
            await self.operating.reload()
            if self.hears:
                await self.wishes.answer()

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self.dispatcher.run()),
            asyncio.create_task(self._listener.run()),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.store.close()

    async def send(self) -> str:
        return await self.submission.send("app", Document("E2", "A01", b"document"))

    async def state(self, message_id: str) -> State:
        entry = await self.store.read(lambda work: work.box.find(Side.SENT, message_id))
        assert entry is not None
        return entry.delivery.state


Pair = AbstractAsyncContextManager[tuple[OneProcess, OneProcess]]


@pytest.fixture
def pair(postgres: PostgresDatabase) -> Pair:
    @asynccontextmanager
    async def opened() -> AsyncIterator[tuple[OneProcess, OneProcess]]:
        world = World()
        stores = [PostgresEndpointStore.open(postgres.settings(), "E1") for _ in range(2)]
        first, second = (OneProcess(store, world) for store in stores)
        for one in (first, second):
            one.start()
        try:
            yield first, second
        finally:
            for one in (first, second):
                await one.stop()

    return opened()


async def test_a_message_that_another_process_has_not_begun_to_transfer_is_cancelled(
    pair: Pair,
) -> None:
    async with pair as (first, second):
        await first.operating.pause(HoldKind.PARTNER, "E2", "olga")
        message_id = await first.send()
        await second.operating.cancel(message_id, "olga", "wrong day")
        for one in (first, second):
            assert await one.state(message_id) is State.FAILED
        rows = await first.store.read(lambda work: work.journal.read(0, 1000))
        (row,) = (
            r.row
            for r in rows
            if isinstance(r.row, AdministrationRow) and r.row.action == "message cancelled"
        )
        assert (row.actor, row.target, row.reason) == ("olga", message_id, "wrong day")
        await second.operating.resume(HoldKind.PARTNER, "E2", "olga")
        later = await first.send()
        async with asyncio.timeout(60):
            while await first.state(later) is not State.DELIVERING:
                await asyncio.sleep(0.01)
        assert (first.courier.begun, second.courier.begun) == (1, 0)


async def test_a_message_that_another_process_transfers_is_not_cancelled(pair: Pair) -> None:
    async with pair as (first, second):
        first.courier.go_on.clear()
        message_id = await first.send()
        await eventually(lambda: first.courier.begun == 1)
        with pytest.raises(Refusal) as under_way:
            await second.operating.cancel(message_id, "olga")
        assert under_way.value.rule is Rule.UNDER_WAY
        assert "at this moment" in under_way.value.message
        first.courier.go_on.set()
        async with asyncio.timeout(60):
            while await second.state(message_id) is not State.DELIVERING:
                await asyncio.sleep(0.01)
        with pytest.raises(Refusal) as too_late:
            await second.operating.cancel(message_id, "olga")
        assert too_late.value.rule is Rule.NOT_CANCELLABLE


async def test_of_a_begin_and_a_cancel_at_the_same_time_exactly_one_wins(pair: Pair) -> None:
    chance = random.Random(1)
    async with pair as (first, second):
        first.courier.slowness = lambda: chance.uniform(0, 0.02)
        cancelled: list[str] = []
        refused: list[str] = []

        async def one() -> None:
            await asyncio.sleep(chance.uniform(0, 0.2))
            message_id = await first.send()
            try:
                await second.operating.cancel(message_id, "olga")
            except Refusal as refusal:
                assert refusal.rule in (Rule.UNDER_WAY, Rule.NOT_CANCELLABLE)
                refused.append(message_id)
            else:
                cancelled.append(message_id)

        # In between, transfers that wait: those lose against the operator.
        await asyncio.gather(*(one() for _ in range(20)))
        await first.operating.pause(HoldKind.PARTNER, "E2", "olga")
        waiting = [await first.send() for _ in range(20)]

        async def both(message_id: str) -> None:
            try:
                await second.operating.cancel(message_id, "olga")
            except Refusal:
                refused.append(message_id)
            else:
                cancelled.append(message_id)

        resume = first.operating.resume(HoldKind.PARTNER, "E2", "olga")
        await asyncio.gather(resume, *(both(message_id) for message_id in waiting))
        for message_id in refused:
            async with asyncio.timeout(60):
                while await second.state(message_id) is not State.DELIVERING:
                    await asyncio.sleep(0.01)
        for message_id in cancelled:
            assert await second.state(message_id) is State.FAILED
        assert len(cancelled) + len(refused) == 40
        assert first.courier.begun == len(refused)
        assert second.courier.begun == 0


async def test_a_wish_that_was_given_up_is_not_fulfilled_later(pair: Pair) -> None:
    async with pair as (first, second):
        await first.operating.pause(HoldKind.PARTNER, "E2", "olga")
        message_id = await first.send()
        first.hears = False
        second.wishes.patience = 0.2
        with pytest.raises(Refusal) as refused:
            await second.operating.cancel(message_id, "olga")
        assert refused.value.rule is Rule.UNDER_WAY
        await first.wishes.answer()
        assert await first.state(message_id) is State.ACCEPTED


async def test_the_wish_is_answered_by_whoever_takes_the_transfer_over(pair: Pair) -> None:
    async with pair as (first, second):
        await first.operating.pause(HoldKind.PARTNER, "E2", "olga")
        message_id = await first.send()
        first.hears = False
        asking = asyncio.create_task(second.operating.cancel(message_id, "olga"))
        await asyncio.sleep(0.2)
        assert not asking.done()
        await first.stop()
        # As the process does that has this duty; the server may still be ending the session.
        while not await second.store.take_over():
            await asyncio.sleep(0.01)
        await asking
        assert await second.state(message_id) is State.FAILED
