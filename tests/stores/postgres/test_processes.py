"""Several processes share a message box: each is a store of its own here, and dies with its session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest

from gridpost.core.delivery import Event, Side
from gridpost.core.message_box import Outgoing, Staged
from gridpost.core.notices import Notice
from gridpost.core.ports import Store
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres import box, outgoing
from gridpost.stores.postgres.endpoint import PostgresEndpointStore, fenced_by
from gridpost.stores.postgres.news import Listener, Topic
from gridpost.stores.postgres.transaction import Fence
from support.boxed import EXPIRY, ROUTE, box_entry, happen, internal, put
from support.builders import NOW
from support.postgres import PostgresDatabase

Open = Callable[[], PostgresEndpointStore]


@pytest.fixture
async def opened(postgres: PostgresDatabase) -> AsyncIterator[Open]:
    stores: list[PostgresEndpointStore] = []

    def open_() -> PostgresEndpointStore:
        stores.append(PostgresEndpointStore.open(postgres.settings(), "E1"))
        return stores[-1]

    yield open_
    for store in stores:
        await store.close()


async def _die(postgres: PostgresDatabase, store: PostgresEndpointStore) -> None:
    """What the server does when a process is killed: its session, and with it its lock, is gone."""
    with postgres.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
            "AND (classid::bigint << 32 | objid::bigint) = "
            "hashtextextended('gridpost process', %s)",
            (store.process,),
        )
        while connection.execute(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' "
            "AND (classid::bigint << 32 | objid::bigint) = "
            "hashtextextended('gridpost process', %s)",
            (store.process,),
        ).fetchone():
            await asyncio.sleep(0.01)


async def _send(store: Store, message_type: str = "A") -> tuple[str, int]:
    entry = box_entry(message_type=message_type)

    def work(unit: object) -> int:
        put(unit, entry)
        return unit.box.enqueue(internal(entry), ROUTE, EXPIRY)  # type: ignore[attr-defined]

    return entry.message_id, await store.run(work)


async def _transfers(store: Store) -> list[int]:
    found: list[Outgoing] = list(await store.read(lambda unit: unit.box.outgoing(NOW, 100)))
    return [transfer.number for transfer in found]


async def test_a_transfer_has_one_owner_until_that_is_gone(
    postgres: PostgresDatabase, opened: Open
) -> None:
    first, second = opened(), opened()
    _, one = await _send(first)
    _, two = await _send(second)
    assert await _transfers(first) == [one]
    assert await _transfers(second) == [two]
    assert await second.take_over() == []
    await _die(postgres, first)
    assert len(await second.take_over()) == 1
    assert await _transfers(second) == [one, two]
    # The first was not dead after all: it goes on under another number, with what is new.
    _, three = await _send(first)
    assert await _transfers(first) == [three]
    assert await _transfers(second) == [one, two]


async def test_an_ordered_pair_has_one_owner(postgres: PostgresDatabase, opened: Open) -> None:
    first, second = opened(), opened()
    before = [(await _send(second, "FIFO"))[1]]
    for store in (first, second):
        store.keeps_order = lambda message_type: message_type == "FIFO"
    numbers = [(await _send(store, "FIFO"))[1] for store in (first, second, second, first, second)]
    # Also what was queued before the type kept its order.
    assert await _transfers(first) == before + numbers
    assert await _transfers(second) == []
    await _die(postgres, first)
    await second.take_over()
    assert await _transfers(second) == before + numbers
    _, last = await _send(first, "FIFO")
    assert (await _transfers(second))[-1] == last


async def test_a_message_comes_once_however_many_processes_get_it(opened: Open) -> None:
    first, second = opened(), opened()
    entries = [box_entry(Side.RECEIVED) for _ in range(20)]
    answers = await asyncio.gather(
        *(s.run(lambda unit, e=e: put(unit, e)) for e in entries for s in (first, second))
    )
    assert sorted(answers) == [False] * 20 + [True] * 20


async def test_a_conversation_is_one_message_in_all_processes(opened: Open) -> None:
    first, second = opened(), opened()

    async def submit(store: Store) -> str:
        entry = box_entry(application="app", conversation_id="c")

        def work(unit: object) -> str:
            found = unit.box.find_conversation("app", "c")  # type: ignore[attr-defined]
            if found is None:
                put(unit, entry)
                return entry.message_id
            return found.message_id

        return await store.run(work)

    assert len(set(await asyncio.gather(*(submit(s) for s in (first, second) * 5)))) == 1


async def test_a_document_is_held_for_one_process(postgres: PostgresDatabase, opened: Open) -> None:
    first, second = opened(), opened()
    entries = [box_entry(Side.RECEIVED, message_type="A") for _ in range(3)]
    for entry in entries:
        await first.run(lambda unit, e=entry: put(unit, e))

    async def hold(store: Store, limit: int) -> list[str]:
        held = await store.run(lambda unit: unit.box.hold("A", NOW, limit))
        return [entry.message_id for entry in held]

    ids = [entry.message_id for entry in entries]
    assert await hold(first, 2) == ids[:2]
    assert await hold(second, 9) == ids[2:]
    assert await hold(first, 9) == ids[:2]
    # Everybody sees them all the same: the pull interfaces do not hold.
    waiting = await second.read(lambda unit: unit.box.waiting("A", NOW, 9))
    assert [entry.message_id for entry in waiting] == ids
    await first.run(lambda unit: happen(unit, entries[0], Event.CONFIRM))
    await first.run(lambda unit: unit.box.let_go())
    assert await hold(second, 9) == ids[1:]
    await _die(postgres, second)
    await first.take_over()
    assert await hold(first, 9) == ids[1:]


async def test_a_notice_is_held_for_one_process(opened: Open) -> None:
    first, second = opened(), opened()
    for number in range(3):
        notice = Notice("c", f"m{number}", "", NOW)
        await first.run(lambda unit, n=notice: unit.notices.append(n))

    async def hold(store: Store, limit: int) -> list[str]:
        found = await store.run(lambda unit: unit.notices.hold("c", 0, limit))
        return [notice.message_id for notice in found]

    assert await hold(first, 1) == ["m0"]
    assert await hold(second, 9) == ["m1", "m2"]
    await second.run(lambda unit: unit.notices.let_go("c"))
    assert await hold(first, 9) == ["m0", "m1", "m2"]


async def test_numbers_of_arrivals_follow_the_order_of_commits(opened: Open) -> None:
    """A reader that has seen a number never misses a lower one."""
    stores = (opened(), opened())
    done = asyncio.Event()
    seen: list[int] = []

    async def read() -> None:
        while True:
            ended = done.is_set()
            after = seen[-1] if seen else 0
            found = await stores[0].read(lambda unit, a=after: unit.box.waiting("A", NOW, 1000, a))
            seen.extend(entry.number for entry in found)
            if ended:
                return

    reading = asyncio.create_task(read())

    async def arrive(store: Store) -> None:
        for _ in range(25):
            entry = box_entry(Side.RECEIVED, message_type="A")
            await store.run(lambda unit, e=entry: put(unit, e))

    await asyncio.gather(*(arrive(store) for store in stores for _ in range(2)))
    done.set()
    await reading
    assert len(seen) == 100
    assert seen == sorted(seen)


async def test_what_a_dead_process_staged_is_swept(
    postgres: PostgresDatabase, opened: Open
) -> None:
    first, second = opened(), opened()
    async with first.staged(b"L" * 300_000) as document:
        assert isinstance(document, Staged)
        await _die(postgres, first)
        await second.take_over()
        with pytest.raises(Refusal) as refused:
            await first.run(lambda unit: unit.box.put(box_entry(), document))
        assert refused.value.rule is Rule.BUSY
    with postgres.connect() as connection:
        assert connection.execute("SELECT count(*) FROM gridpost.content").fetchone() == (0,)


async def test_a_duty_writes_nothing_without_its_lease(
    postgres: PostgresDatabase, opened: Open
) -> None:
    store = opened()
    with postgres.connect() as connection:
        connection.execute("INSERT INTO gridpost.lease VALUES ('expiry', 2, 'somebody', now())")
    with fenced_by(Fence("expiry", 1)), pytest.raises(Refusal) as refused:
        await store.run(lambda unit: put(unit, box_entry()))
    assert refused.value.rule is Rule.LEASE_LOST
    with fenced_by(Fence("expiry", 2)):
        assert await store.run(lambda unit: put(unit, box_entry()))


async def test_other_processes_hear_what_was_committed(
    postgres: PostgresDatabase, opened: Open
) -> None:
    first, second = opened(), opened()
    heard: asyncio.Queue[tuple[Topic, str]] = asyncio.Queue()

    async def hear(topic: Topic, about: str) -> None:
        heard.put_nowait((topic, about))

    listening = asyncio.create_task(
        Listener(postgres.settings(), lambda: second.process, hear).run()
    )
    try:
        async with asyncio.timeout(60):
            assert await heard.get() == (Topic.EVERYTHING, "")
            entry = box_entry(Side.RECEIVED, message_type="A")
            await second.run(lambda unit: put(unit, box_entry(Side.RECEIVED, message_type="B")))
            await first.run(lambda unit: put(unit, entry))
            assert await heard.get() == (Topic.OFFERED, "A")
            for store in (first, second):
                store.keeps_order = lambda message_type: True
            await _send(second)
            message_id, _ = await _send(first)
            told = {await heard.get(), await heard.get()}
            assert told == {
                (Topic.TRANSFER, str(second.process)),
                (Topic.STATUS, message_id),
            }
            third = opened()
            await _die(postgres, third)
            await first.take_over()
            # What the dead one held may be anybody's now.
            assert await heard.get() == (Topic.EVERYTHING, "")
            await first.close()
            assert await heard.get() == (Topic.GONE, "")
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


_FILL = (
    """
    INSERT INTO message (
        side, state, expires_at, changed_at, message_id, receiver_code, message_type, generated_at,
        generated, sender_code, internal_type, extension, related_message_id, sender_application,
        ba_message_id, processors, mversion, route, fingerprint, size, application, conversation_id,
        status, open_until, final_at, peer, arrived_at, has_content
    )
    SELECT CASE n % 2 WHEN 0 THEN 'sent' ELSE 'received' END,
        CASE WHEN n % 2 = 0 THEN 'RECEIVED' WHEN n % 40 = 1 THEN 'WAITING' ELSE 'CONFIRMED' END,
        9999, n, n::text, 'R' || n % 50, 'T' || n % 20, n, '', 'S' || n % 50,
        'STANDARD_MESSAGE', '', '', '', n::text, '', 1, '', '', 1, '', '',
        CASE WHEN n % 2 = 0 THEN CASE WHEN n % 500 = 0 THEN 'FAILED' ELSE 'RECEIVED' END END,
        CASE WHEN n % 40 = 1 THEN n END, CASE WHEN n % 40 <> 1 THEN n END, 'P' || n % 5000, n, 1
    FROM generate_series(1, 20000) n
    """,
    """
    INSERT INTO outgoing
        (owner, message_id, metadata, size, body, route, expires_at, priority, due_at)
    SELECT n % 2, n::text, '', 1, '', '', 9999, n % 3, CASE WHEN n % 3 = 0 THEN n END
    FROM generate_series(1, 20000) n
    """,
    "ANALYZE message",
    "ANALYZE outgoing",
)


async def test_questions_of_a_full_box_use_an_index(
    postgres: PostgresDatabase, opened: Open
) -> None:
    opened()
    due = {"me": 1, "now": 5, "limit": 100, "under_way": [1, 2], "closed": ["INDIRECT:B"]}
    questions: tuple[tuple[str, object, str], ...] = (
        (box._FIND, ("77", "sent"), "message_by_id"),
        (box._WAITING, ("T1", 10, 0, 1), "message_waiting"),
        (box._HOLD, ("T1", 10, 0, 1, 50, 1), "message_waiting"),
        (box._COUNT_WAITING, ("T1", 0), "message_waiting"),
        (box._WAITING_TYPES, (), "message_waiting"),
        (box._EXPIRED, (3, 100), "message_open"),
        (outgoing._DUE, due, "outgoing_ready"),
        (outgoing._DUE, due, "outgoing_postponed"),
        (outgoing._NEXT_DUE, (1, 19000), "outgoing_postponed"),
    )
    with psycopg.connect(
        postgres.dsn, autocommit=True, cursor_factory=psycopg.ClientCursor
    ) as connection:
        connection.execute("SET search_path TO gridpost")
        for statement in _FILL:
            connection.execute(statement)
        for question, values, index in questions:
            found = connection.execute(f"EXPLAIN {question}", values).fetchall()  # type: ignore[arg-type]
            plan = "\n".join(str(row[0]) for row in found)
            assert index in plan, plan
            assert "Seq Scan" not in plan, plan


async def test_a_box_of_the_first_version_gets_what_a_search_by_text_needs(
    postgres: PostgresDatabase, opened: Open
) -> None:
    await opened().close()
    with postgres.connect() as connection:
        connection.execute("DROP INDEX gridpost.outgoing_repeated")
        connection.execute(
            "UPDATE gridpost.schema_version SET version = 1 WHERE kind = 'message-box'"
        )
        opened()
        found = connection.execute("SELECT to_regclass('gridpost.outgoing_repeated')").fetchone()
    assert found is not None
    assert found[0] is not None


async def test_a_process_knows_that_another_one_makes_a_transfer(opened: Open) -> None:
    """So that nobody cancels a message that another process may be sending at this moment."""
    first, second = opened(), opened()
    message_id, _ = await _send(first)
    assert not await first.read(lambda unit: unit.controls.elsewhere(message_id))
    assert await second.read(lambda unit: unit.controls.elsewhere(message_id))
