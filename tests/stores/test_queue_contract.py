"""What every store of queues promises, whatever it keeps them in.

Where stores differ they say so (`Capabilities`); a test that needs a capability names it, and holds
for every store that has it. All other tests are the same for all of them.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from gridpost.core.queues import CountFailure, Hold, Put, Queued, QueueStore, Record, Remove
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.memory.queues import MemoryQueueStore
from gridpost.stores.postgres.queues import PostgresQueueStore
from gridpost.stores.rabbitmq import RabbitQueueStore
from gridpost.stores.sqlite.queues import QueueSettings, SqliteQueueStore
from support.postgres import PostgresServer
from support.queues import NOW, SetClock, commit, put, queued, row
from support.rabbitmq import Rabbit

ALL = 1_000_000
LARGE = b"L" * 5_000


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(params=["memory", "sqlite", "rabbitmq", "postgres"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: SetClock
) -> AsyncIterator[QueueStore]:
    settings = QueueSettings(file_threshold=4_096, min_free=0)
    if request.param == "memory":
        opened: QueueStore = MemoryQueueStore("B1", clock)
    elif request.param == "sqlite":
        opened = SqliteQueueStore.open(tmp_path / "broker", "B1", clock, settings)
    elif request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        local = SqliteQueueStore.open(tmp_path / "edge", "B1", clock, settings)
        database = server.default_database().settings(schema=f"queues_{secrets.token_hex(4)}")
        opened = edge = PostgresQueueStore(local, database, clock)
        await edge.serve(lambda _: None, lambda _: None)
    else:
        rabbitmq: Rabbit = request.getfixturevalue("rabbitmq")
        local = SqliteQueueStore.open(tmp_path / "edge", "B1", clock, settings)
        client = rabbitmq.client(virtual_host=rabbitmq.virtual_host())
        opened = shared = RabbitQueueStore(local, client, clock)
        await shared.serve(lambda _: None, lambda _: None)
    needed = request.node.get_closest_marker("capability")
    try:
        if needed is not None and not getattr(opened.capabilities, needed.args[0]):
            pytest.skip(f"this store does not have it: {needed.args[0]}")
        yield opened
    finally:
        await opened.close()


async def ours(store: QueueStore, one: Put) -> Queued:
    """A message as this broker has it: where brokers share a store, one has what it has read."""
    if not store.capabilities.shared:
        return one.message
    name = one.message.message_id
    return next(m for m in await store.read(one.queue, 0, ALL, ALL) if m.message_id == name)


async def texts(store: QueueStore, queue: str = "E2") -> list[bytes]:
    found = []
    for message in await store.read(queue, 0, ALL, ALL):
        content = message.content
        if content is None:
            content = await store.load(queue, message.number)
        assert content is not None
        found.append(bytes(content))
    return found


async def depth(store: QueueStore, queue: str = "E2") -> int:
    return {state.code: state.depth for state in await store.queues()}.get(queue, -1)


async def test_messages_come_out_in_the_order_in_which_they_went_in(store: QueueStore) -> None:
    for at in range(300):
        await commit(store, put(message=queued(b"%d" % at)))
    assert await texts(store) == [b"%d" % at for at in range(300)]


async def test_bodies_of_any_octets_come_out_as_they_went_in(store: QueueStore) -> None:
    contents = [b"\0", bytes(range(256)), b"\xff\0\xc3", b"0" * 16, "ä\0ö".encode(), b"\0\0\0"]
    for content in contents:
        await commit(store, put(message=queued(content)))
    assert await texts(store) == contents


async def test_a_large_message_keeps_its_place_between_small_ones(store: QueueStore) -> None:
    contents = [b"a", LARGE, b"b", b"c", LARGE, b"d"]
    await asyncio.gather(*(commit(store, put(message=queued(c))) for c in contents))
    assert await texts(store) == contents


async def test_a_large_message_of_one_queue_does_not_hold_up_another(store: QueueStore) -> None:
    await asyncio.gather(
        commit(store, put("E2", queued(LARGE))), commit(store, put("E3", queued(b"b")))
    )
    assert await texts(store, "E3") == [b"b"]


async def test_reading_goes_on_behind_a_number_and_stops_at_a_limit(store: QueueStore) -> None:
    for at in range(10):
        await commit(store, put(message=queued(b"%d" % at)))
    first = await store.read("E2", 0, 4, ALL)
    rest = await store.read("E2", first[-1].number, ALL, ALL)
    assert [m.content for m in first] == [b"0", b"1", b"2", b"3"]
    assert [m.content for m in rest] == [b"4", b"5", b"6", b"7", b"8", b"9"]


async def test_reading_stops_at_a_number_of_octets_but_gives_one_message(
    store: QueueStore,
) -> None:
    for _ in range(5):
        await commit(store, put(message=queued(b"x" * 1_000)))
    assert len(await store.read("E2", 0, ALL, 2_500)) == 2
    assert len(await store.read("E2", 0, ALL, 10)) == 1


@pytest.mark.capability("stops_duplicates")
async def test_an_id_that_comes_again_is_stored_once(store: QueueStore) -> None:
    first, again = put(message=queued(b"one")), put()
    again.message.message_id = first.message.message_id
    await commit(store, first)
    await commit(store, again)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert await texts(store) == [b"one"]


@pytest.mark.capability("stops_duplicates")
async def test_an_id_that_comes_twice_at_once_is_stored_once(store: QueueStore) -> None:
    twins = [put(message=queued(b"x", "0a4c1b6e-52cc-4c7a-9a38-0d7b6a1e2f30")) for _ in range(50)]
    others = [put() for _ in range(50)]
    mixed = [p for pair in zip(twins, others, strict=True) for p in pair]
    await asyncio.gather(*(commit(store, one) for one in mixed))
    assert [twin.duplicate for twin in twins] == [False] + [True] * 49
    assert not any(other.duplicate for other in others)
    assert await depth(store) == 51


@pytest.mark.capability("stops_duplicates")
async def test_an_id_is_remembered_after_its_message_was_consumed(store: QueueStore) -> None:
    first = put()
    await commit(store, first)
    await commit(store, Remove("E2", first.message, row()))
    again = put(message=queued(message_id=first.message.message_id.upper()))
    await commit(store, again)
    assert again.duplicate
    assert await depth(store) == 0


@pytest.mark.capability("stops_duplicates")
async def test_an_id_is_remembered_though_its_queue_was_removed(store: QueueStore) -> None:
    first = put()
    await commit(store, first)
    await commit(store, Remove("E2", first.message, row()))
    assert await store.remove("E2")
    again = put(message=queued(message_id=first.message.message_id))
    await commit(store, again)
    assert again.duplicate


async def test_the_same_id_may_be_in_two_queues(store: QueueStore) -> None:
    first = put("E2")
    second = put("E3", queued(message_id=first.message.message_id))
    await commit(store, first)
    await commit(store, second)
    assert not second.duplicate


@pytest.mark.capability("stops_duplicates")
async def test_an_id_is_forgotten_when_its_time_has_passed(
    store: QueueStore, clock: SetClock
) -> None:
    for _ in range(20):
        await commit(store, put())
    clock.at = NOW + timedelta(hours=2)
    assert sum([await store.forget(clock.at) for _ in range(256)]) == 20


async def test_an_id_whose_time_has_passed_counts_as_new(
    store: QueueStore, clock: SetClock
) -> None:
    first = put()
    await commit(store, first)
    clock.at = NOW + timedelta(hours=2)
    await store.drop_expired(clock.at, ALL)
    again = put(message=queued(message_id=first.message.message_id, expires=timedelta(hours=9)))
    await commit(store, again)
    assert not again.duplicate


@pytest.mark.capability("drops_expired")
async def test_expired_messages_go_and_are_written_down(store: QueueStore) -> None:
    short, long = put(message=queued(LARGE, expires=timedelta(minutes=1))), put()
    await commit(store, short)
    await commit(store, long)
    dropped = await store.drop_expired(NOW + timedelta(minutes=1), ALL)
    assert [(d.queue, d.sizes) for d in dropped] == [("E2", {short.message.number: len(LARGE)})]
    assert await texts(store) == [b"abc"]
    rows = await store.journal(lambda journal: journal.read(0, ALL))
    assert [r.row.outcome for r in rows] == ["accepted", "accepted", "expired"]  # type: ignore[attr-defined]


@pytest.mark.capability("drops_expired")
async def test_an_expired_message_on_hold_is_counted_apart(store: QueueStore) -> None:
    one = put(message=queued(expires=timedelta(minutes=1)))
    await commit(store, one)
    await commit(store, Hold("E2", one.message, "unreadable", row()))
    (dropped,) = await store.drop_expired(NOW + timedelta(minutes=1), ALL)
    assert (dropped.queue, dropped.numbers, dropped.held) == ("E2", frozenset(), 1)
    assert await store.remove("E2")


async def test_a_failed_delivery_is_counted(store: QueueStore) -> None:
    one = put()
    await commit(store, one)
    message = await ours(store, one)
    message.deliveries = 3
    await commit(store, CountFailure("E2", message, row()))
    assert [m.deliveries for m in await store.read("E2", 0, ALL, ALL)] == [3]


async def test_a_message_on_hold_is_not_read_until_it_is_released(store: QueueStore) -> None:
    one, two = put(message=queued(b"one")), put(message=queued(b"two"))
    await commit(store, one)
    await commit(store, two)
    await commit(store, Hold("E2", await ours(store, one), "unreadable", row()))
    assert await texts(store) == [b"two"]
    assert [state.held for state in await store.queues()] == [1]
    assert not await store.remove("E2")
    released = await store.release("E2")
    assert released.messages == 1
    if store.capabilities.measures_queues:
        assert released.octets == 3
    assert sorted(await texts(store)) == [b"one", b"two"]


@pytest.mark.capability("transactions")
async def test_what_is_submitted_together_happens_together(store: QueueStore) -> None:
    first = put(message=queued(b"old"))
    await commit(store, first)
    await commit(
        store,
        put("E2", queued(b"new")),
        put("E3", queued(LARGE)),
        Remove("E2", first.message, row()),
    )
    assert await texts(store, "E2") == [b"new"]
    assert await texts(store, "E3") == [LARGE]


async def test_every_operation_is_in_the_journal_without_a_gap(store: QueueStore) -> None:
    one = put()
    again = put(message=queued(message_id=one.message.message_id))
    await commit(store, one)
    await commit(store, again)
    await commit(store, Remove("E2", await ours(store, one), row(outcome="delivered")))
    await commit(store, Record(row(outcome="noted")))
    rows = await store.journal(lambda journal: journal.read(0, ALL))
    assert [r.sequence for r in rows] == [1, 2, 3, 4]
    outcomes = [r.row.outcome for r in rows]  # type: ignore[attr-defined]
    second = "duplicate" if store.capabilities.stops_duplicates else "accepted"
    assert outcomes == ["accepted", second, "delivered", "noted"]


async def test_the_journal_is_pruned_from_its_beginning(store: QueueStore) -> None:
    for _ in range(3):
        await commit(store, put())
    later = NOW + timedelta(days=2)
    assert await store.journal(lambda j: j.prune(later, timedelta(days=1), limit=2)) == 2
    await commit(store, Record(row()))
    rows = await store.journal(lambda journal: journal.read(0, ALL))
    assert [r.sequence for r in rows] == [3, 4]


async def test_a_queue_is_removed_only_when_it_is_empty(store: QueueStore) -> None:
    await store.create("E9")
    await store.create("E9")
    one = put()
    await commit(store, one)
    assert not await store.remove("E2")
    assert not await store.remove("unheard-of")
    assert await store.remove("E9")
    assert [state.code for state in await store.queues()] == ["E2"]


@pytest.mark.capability("measures_queues")
async def test_a_queue_says_how_much_is_in_it_and_since_when(store: QueueStore) -> None:
    one, two = put(message=queued(b"12345")), put(message=queued(LARGE))
    await commit(store, one)
    await commit(store, two)
    (state,) = await store.queues()
    assert (state.depth, state.octets, state.oldest_at) == (2, 5 + len(LARGE), NOW)
    assert state.last_number == two.message.number


async def test_a_queue_says_how_many_messages_are_in_it(store: QueueStore) -> None:
    one, two = put(), put(message=queued(LARGE))
    await commit(store, one)
    await commit(store, two)
    assert await depth(store) == 2
    await ours(store, one)
    assert await depth(store) == 2
    await commit(store, Remove("E2", await ours(store, one), row()))
    assert await depth(store) == 1


async def test_a_probe_reaches_the_disk(store: QueueStore) -> None:
    assert await store.probe() >= timedelta(0)


async def test_removing_twice_changes_nothing(store: QueueStore) -> None:
    one = put()
    await commit(store, one)
    message = await ours(store, one)
    await commit(store, Remove("E2", message, row()))
    await commit(store, Remove("E2", message, row()))
    assert await depth(store) == 0


async def test_below_the_mark_new_messages_are_refused_and_others_go_on(tmp_path: Path) -> None:
    settings = QueueSettings(min_free=1 << 60)
    store = SqliteQueueStore.open(tmp_path / "b", "B1", SetClock(), settings)
    with pytest.raises(Refusal) as refused:
        await commit(store, put())
    assert refused.value.rule is Rule.STORE_FULL
    await commit(store, Record(row()))
    store.set_marks(min_free=0, max_used=0)
    async with asyncio.timeout(60):
        # Until the next look at the disk.
        while store.space.refusing:
            await asyncio.sleep(0.05)
            with suppress(Refusal):
                await commit(store, put())
    await commit(store, put())
    await store.close()


async def test_room_is_counted_again_although_nothing_is_committed(tmp_path: Path) -> None:
    settings = QueueSettings(min_free=0, max_used=1)
    store = SqliteQueueStore.open(tmp_path / "b", "B1", SetClock(), settings)
    # As after the last commit of a drained broker: what was counted then is no longer true.
    store._watch._row_octets = 1 << 40
    store._watch.max_used = 1 << 30
    with pytest.raises(Refusal) as refused:
        await commit(store, put())
    assert refused.value.rule is Rule.STORE_FULL
    async with asyncio.timeout(60):
        while store.space.refusing:
            await asyncio.sleep(0.05)
            # Refused again and again, and no other work comes.
            with suppress(Refusal):
                await commit(store, put())
    await store.close()


async def test_what_consumers_had_counts_as_delivered_in_vain_after_a_crash_only(
    tmp_path: Path, clock: SetClock
) -> None:
    settings = QueueSettings(min_free=0)
    store = SqliteQueueStore.open(tmp_path / "broker", "B1", clock, settings)
    puts = [put() for _ in range(4)]
    for one in puts:
        await commit(store, one)
    store.handed_out("E2", puts[1].message.number)
    store.handed_out("E2", puts[2].message.number)
    await commit(store, Remove("E2", puts[0].message, row()))
    # Submissions take effect in their order: this one is behind both marks.
    await commit(store, Record(row(outcome="noted")))
    await commit(store, Record(row(outcome="noted")))
    shutil.copytree(tmp_path / "broker", tmp_path / "crashed")
    await store.close()
    for folder, counts in (("crashed", [1, 1, 0]), ("broker", [0, 0, 0])):
        for _ in range(2):
            # Opened a second time after an orderly end: nothing is counted again.
            store = SqliteQueueStore.open(tmp_path / folder, "B1", clock, settings)
            assert [m.deliveries for m in await store.read("E2", 0, ALL, ALL)] == counts
            await store.close()
