"""What only the RabbitMQ store does: several edges at once, alarms, messages that nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gridpost.core.amqp091 import Properties
from gridpost.core.queues import Queued, Remove
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.rabbitmq import RabbitQueueStore, RabbitSettings
from gridpost.stores.sqlite.queues import QueueSettings, SqliteQueueStore
from gridpost.transports.amqp091.channel import Amqp091Channel
from support.queues import NOW, SetClock, commit, put, queued, row
from support.rabbitmq import Rabbit, rabbitmq_node
from support.waiting import eventually

ALL = 1_000_000


@asynccontextmanager
async def edge(
    folder: Path, rabbit: Rabbit, host: str, clock: SetClock | None = None
) -> AsyncIterator[RabbitQueueStore]:
    clock = clock or SetClock()
    local = SqliteQueueStore.open(folder, "B1", clock, QueueSettings(min_free=0))
    settings = RabbitSettings(removal=timedelta(seconds=1))
    client = rabbit.client(virtual_host=host)
    store = RabbitQueueStore(local, client, clock, settings)
    await store.serve(lambda _: None, lambda _: None)
    try:
        yield store
    finally:
        await store.close()


async def test_a_subscription_gets_what_comes_and_no_more_than_its_credit(
    rabbitmq: Rabbit, tmp_path: Path
) -> None:
    got: list[Queued] = []
    async with edge(tmp_path / "a", rabbitmq, rabbitmq.virtual_host()) as store:
        await store.create("E2")
        store.subscribe("E2", 3, got.append)
        for at in range(5):
            await commit(store, put(message=queued(b"%d" % at)))
        await eventually(lambda: len(got) == 3)
        await commit(store, Remove("E2", got[0], row()))
        await eventually(lambda: len(got) == 4)
        assert [m.content for m in got] == [b"0", b"1", b"2", b"3"]
        assert await store.waiting("E2") == 1


async def test_a_queue_that_another_edge_uses_is_not_removed(
    rabbitmq: Rabbit, tmp_path: Path
) -> None:
    host = rabbitmq.virtual_host()
    async with (
        edge(tmp_path / "a", rabbitmq, host) as first,
        edge(tmp_path / "b", rabbitmq, host) as second,
    ):
        await first.create("E2")
        await second.create("E2")
        with pytest.raises(Refusal) as refused:
            await first.remove("E2")
        assert refused.value.rule is Rule.QUEUE_IN_USE
        await commit(second, put())
        await second.leave("E2")
        assert not await first.remove("E2")
        (message,) = await second.read("E2", 0, ALL, ALL)
        await commit(second, Remove("E2", message, row()))
        second.unsubscribe("E2")
        async with asyncio.timeout(60):
            while not await first.remove("E2"):
                await asyncio.sleep(0.1)


async def test_whose_last_neighbour_leaves_meanwhile_joins_and_locks_out_all_the_same(
    rabbitmq: Rabbit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ drops a `links/` queue with its last consumer, also just after a declaration."""
    real, vanished = Amqp091Channel.declare_queue, []

    async def declare(channel: Amqp091Channel, name: str = "", **options: Any) -> Any:
        declared = await real(channel, name, **options)
        if name == "links/E2" and len(vanished) % 2 == 0:
            await channel.delete_queue(name)
        if name == "links/E2":
            vanished.append(name)
        return declared

    monkeypatch.setattr(Amqp091Channel, "declare_queue", declare)
    async with edge(tmp_path / "a", rabbitmq, rabbitmq.virtual_host()) as store:
        await store.create("E2")
        assert len(vanished) == 2
        assert await store.remove("E2")
    assert len(vanished) == 4


async def test_what_nobody_reads_is_swept_when_it_has_expired(
    rabbitmq: Rabbit, tmp_path: Path
) -> None:
    clock = SetClock()
    async with edge(tmp_path / "a", rabbitmq, rabbitmq.virtual_host(), clock) as store:
        await commit(store, put(message=queued(b"old", expires=timedelta(minutes=1))))
        await commit(store, put(message=queued(b"new")))
        await store.leave("E2")
        clock.at = NOW + timedelta(minutes=2)
        await store.drop_expired(clock.at, ALL)
        assert [m.content for m in await store.read("E2", 0, ALL, ALL)] == [b"new"]
        rows = await store.journal(lambda journal: journal.read(0, ALL))
        assert [r.row.outcome for r in rows][-1] == "expired"  # type: ignore[attr-defined]


async def test_a_message_that_no_edge_wrote_is_set_aside_and_not_lost(
    rabbitmq: Rabbit, tmp_path: Path
) -> None:
    host = rabbitmq.virtual_host()
    async with edge(tmp_path / "a", rabbitmq, host) as store:
        await store.create("E2")
        connection = await rabbitmq.client(virtual_host=host).connect()
        channel = await connection.channel()
        await channel.publish(b"who am I", Properties(), routing_key="queue/E2")
        await commit(store, put(message=queued(b"ours")))
        assert [m.content for m in await store.read("E2", 0, ALL, ALL)] == [b"ours"]
        async with asyncio.timeout(60):
            while (found := await channel.get("unreadable")) is None:
                await asyncio.sleep(0.05)
        assert found.body == b"who am I"
        await connection.close()


async def test_while_rabbitmq_is_short_of_memory_new_messages_are_refused(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    settings = ["vm_memory_high_watermark.absolute = 1MB"]
    with rabbitmq_node(tmp_path / "node", settings=settings) as rabbit:
        async with edge(tmp_path / "a", rabbit, "/") as store:
            # RabbitMQ says so when somebody publishes; that message stays unanswered.
            store.submit((put(),), lambda refusal: None)
            await eventually(lambda: store.space.refusing, 60)
            assert "RabbitMQ" in store.space.reason
            with pytest.raises(Refusal) as refused:
                await commit(store, put())
            assert refused.value.rule is Rule.STORE_FULL
            # Consumers come and go all the same, and health can be asked.
            await store.create("E3")
            assert await store.read("E3", 0, ALL, ALL) == []
            assert await store.probe() >= timedelta(0)


async def test_a_confirmed_message_is_not_called_refused_when_the_journal_is_out_of_room(
    rabbitmq: Rabbit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in its queue: its producer hears nothing until the row is written, and `accepted` then."""
    real, refused = SqliteQueueStore.submit, []

    def submit(local: SqliteQueueStore, operations: Any, done: Any) -> None:
        if len(refused) < 2:
            refused.append(operations)
            full = Refusal(Rule.STORE_FULL, "the disk is full")
            asyncio.get_running_loop().call_soon(done, full)
        else:
            real(local, operations, done)

    async with edge(tmp_path / "a", rabbitmq, rabbitmq.virtual_host()) as store:
        await store.create("E2")
        monkeypatch.setattr(SqliteQueueStore, "submit", submit)
        async with asyncio.timeout(60):
            await commit(store, put(message=queued(b"once")))
        assert len(refused) == 2
        assert [m.content for m in await store.read("E2", 0, ALL, ALL)] == [b"once"]
        rows = await store.journal(lambda journal: journal.read(0, ALL))
        assert [r.row.outcome for r in rows] == ["accepted"]  # type: ignore[attr-defined]
