"""What only the PostgreSQL queue store does: several edges with one memory, and what a dead one had."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from gridpost.assembly import journal_export
from gridpost.core.journal import AdministrationRow, RefusalRow
from gridpost.core.queues import CountFailure, Queued, Record, Remove
from gridpost.core.refusal import Code, Refusal, Rule
from gridpost.core.segment import SegmentName
from gridpost.stores.postgres.queues import PostgresQueueSettings, PostgresQueueStore
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.segments.export import Export
from gridpost.stores.sqlite.queues import QueueSettings, SqliteQueueStore
from support.postgres import PostgresServer, postgres_server_process
from support.queues import NOW, SetClock, commit, put, queued, row
from support.waiting import eventually

ALL = 1_000_000
SETTINGS = PostgresQueueSettings(
    removal=timedelta(seconds=2),
    look=timedelta(milliseconds=200),
    retry=timedelta(milliseconds=200),
)


@dataclass
class Heard:
    """What a store told its broker."""

    lost: list[Refusal] = field(default_factory=list)
    locked_out: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server_process() as running:
        yield running


@pytest.fixture
def database(server: PostgresServer) -> PostgresSettings:
    return server.default_database().settings(schema=f"edges_{secrets.token_hex(4)}")


def opened(
    folder: Path, database: PostgresSettings, settings: PostgresQueueSettings = SETTINGS
) -> PostgresQueueStore:
    local = SqliteQueueStore.open(folder, "B1", SetClock(), QueueSettings(min_free=0))
    return PostgresQueueStore(local, database, SetClock(), settings)


@asynccontextmanager
async def edge(
    folder: Path,
    database: PostgresSettings,
    heard: Heard | None = None,
    settings: PostgresQueueSettings = SETTINGS,
) -> AsyncIterator[PostgresQueueStore]:
    heard = heard or Heard()
    store = opened(folder, database, settings)
    try:
        await store.serve(heard.lost.append, heard.locked_out.append)
        yield store
    finally:
        await store.close()


def contents(messages: list[Queued]) -> list[bytes]:
    return [bytes(message.content or b"") for message in messages]


async def test_what_one_edge_takes_the_other_gets_in_order_and_within_its_credit(
    database: PostgresSettings, tmp_path: Path
) -> None:
    got: list[Queued] = []
    async with edge(tmp_path / "a", database) as a, edge(tmp_path / "b", database) as b:
        await b.create("E2")
        b.subscribe("E2", 3, got.append)
        await asyncio.gather(*(commit(a, put(message=queued(b"%d" % at))) for at in range(5)))
        await eventually(lambda: len(got) == 3)
        await commit(b, Remove("E2", got[0], row()))
        await eventually(lambda: len(got) == 4)
        assert contents(got) == [b"0", b"1", b"2", b"3"]
        assert await b.waiting("E2") == 1
        assert [state.depth for state in await a.queues()] == [4]


async def test_the_same_id_at_two_edges_at_once_is_stored_once(
    database: PostgresSettings, tmp_path: Path
) -> None:
    async with edge(tmp_path / "a", database) as a, edge(tmp_path / "b", database) as b:
        ids = [f"0a4c1b6e-52cc-4c7a-9a38-0d7b6a1e{n:04x}" for n in range(50)]
        first = [put(message=queued(message_id=name)) for name in ids]
        second = [put(message=queued(message_id=name)) for name in reversed(ids)]
        await asyncio.gather(
            *(commit(a, one) for one in first), *(commit(b, one) for one in second)
        )
        new = [one.message.message_id for one in (*first, *second) if not one.duplicate]
        assert sorted(new) == sorted(ids)
        assert [state.depth for state in await a.queues()] == [50]


async def test_edges_share_a_queue_and_nothing_is_handed_to_both(
    database: PostgresSettings, tmp_path: Path
) -> None:
    async with edge(tmp_path / "a", database) as a, edge(tmp_path / "b", database) as b:
        names: dict[str, list[str]] = {"a": [], "b": []}

        def taking(store: PostgresQueueStore, name: str) -> None:
            def take(message: Queued) -> None:
                names[name].append(message.message_id)
                store.submit((Remove("E2", message, row()),), lambda _: None)

            store.subscribe("E2", 5, take)

        taking(a, "a")
        taking(b, "b")
        puts = [put() for _ in range(200)]
        await asyncio.gather(*(commit(a, one) for one in puts))
        await eventually(lambda: len(names["a"]) + len(names["b"]) >= 200, 60)
        assert sorted(names["a"] + names["b"]) == sorted(p.message.message_id for p in puts)
        assert all(names.values())


async def test_what_is_let_go_of_comes_back_to_its_place(
    database: PostgresSettings, tmp_path: Path
) -> None:
    got: list[Queued] = []
    again: list[Queued] = []
    async with edge(tmp_path / "a", database) as a, edge(tmp_path / "b", database) as b:
        for at in range(4):
            await commit(a, put(message=queued(b"%d" % at)))
        a.subscribe("E2", 10, got.append)
        await eventually(lambda: len(got) == 4)
        got[1].deliveries += 1
        await commit(a, CountFailure("E2", got[1], row()))
        a.submit((Remove("E2", got[0], row()),), lambda _: None)
        b.subscribe("E2", 10, again.append)
        a.unsubscribe("E2")
        await eventually(lambda: len(again) == 3)
        assert [(m.content, m.deliveries) for m in again] == [(b"1", 1), (b"2", 0), (b"3", 0)]


async def test_what_was_claimed_for_a_subscription_that_ended_is_not_handed_to_the_next(
    database: PostgresSettings, tmp_path: Path
) -> None:
    async with edge(tmp_path / "a", database) as a, edge(tmp_path / "b", database) as b:
        for at in range(3):
            await commit(a, put(message=queued(b"%d" % at)))
        first: list[Queued] = []
        second: list[Queued] = []
        # All three before the claim of the first can have been answered.
        a.subscribe("E2", 3, first.append)
        a.unsubscribe("E2")
        a.subscribe("E2", 1, second.append)
        await eventually(lambda: bool(second))
        assert first == []
        assert contents(second) == [b"0"]
        # The others are free.
        assert [m.content for m in await b.read("E2", 0, ALL, ALL)] == [b"1", b"2"]


async def test_large_messages_are_taken_one_by_one(
    database: PostgresSettings, tmp_path: Path
) -> None:
    settings = PostgresQueueSettings(window_octets=10_000)
    got: list[Queued] = []
    async with edge(tmp_path / "a", database, settings=settings) as a:
        for at in range(4):
            await commit(a, put(message=queued(b"%d" % at * 6_000)))
        a.subscribe("E2", 10, got.append)
        await eventually(lambda: len(got) == 2)
        assert await a.waiting("E2") == 2
        for message in got[:2]:
            await commit(a, Remove("E2", message, row()))
        await eventually(lambda: len(got) == 4)


async def test_what_a_dead_edge_had_goes_to_the_others_and_it_can_write_no_more(
    database: PostgresSettings, tmp_path: Path, server: PostgresServer
) -> None:
    heard = Heard()
    got: list[Queued] = []
    again: list[Queued] = []
    async with edge(tmp_path / "a", database, heard) as a, edge(tmp_path / "b", database) as b:
        for at in range(3):
            await commit(a, put(message=queued(b"%d" % at)))
        a.subscribe("E2", 10, got.append)
        await eventually(lambda: len(got) == 3)
        b.subscribe("E2", 10, again.append)
        with server.default_database().connect() as admin:
            # Only the connection that holds the lock: the edge itself believes that it lives.
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid) "
                "WHERE locktype = 'advisory' AND query LIKE 'INSERT INTO edge%' "
                f"AND objid = (SELECT (hashtextextended('{database.schema} edge', min(number)) "
                f"& 4294967295)::bigint FROM {database.schema}.edge)"
            )
        await eventually(lambda: len(again) == 3)
        assert [(m.content, m.deliveries) for m in again] == [(b"0", 1), (b"1", 1), (b"2", 1)]
        assert [refusal.rule for refusal in heard.lost] == [Rule.STORE_UNREACHABLE]
        # As another edge it goes on.
        await eventually(lambda: a.trouble is None)
        await commit(a, put(message=queued(b"3")))
        await eventually(lambda: len(again) == 4)


async def test_a_queue_goes_when_no_edge_needs_it(
    database: PostgresSettings, tmp_path: Path
) -> None:
    heard = Heard()
    async with edge(tmp_path / "a", database) as a, edge(tmp_path / "b", database, heard) as b:
        await a.create("E2")
        await b.create("E2")
        assert not await a.remove_idle("E2")
        with pytest.raises(Refusal) as refused:
            await a.remove("E2")
        assert refused.value.rule is Rule.QUEUE_IN_USE
        assert set(heard.locked_out) == {"E2"}
        await b.leave("E2")
        assert await a.remove_idle("E2")
        await commit(b, put())
        assert [state.code for state in await a.queues()] == ["E2"]


async def test_refusals_are_written_by_the_edge_itself(
    database: PostgresSettings, tmp_path: Path
) -> None:
    refused = RefusalRow(NOW, "r1", "SCHEMA_INVALID", Code.INTERNAL_ERROR, "no", "", "E1", "")
    async with edge(tmp_path / "a", database) as a:
        await commit(a, Record(refused))
        assert await a.journal(lambda journal: journal.read(0, ALL)) == []
        rows = await a._local.journal(lambda journal: journal.read(0, ALL))
        assert [r.row for r in rows] == [refused]


async def test_the_size_of_all_messages_has_a_mark(
    database: PostgresSettings, tmp_path: Path
) -> None:
    settings = PostgresQueueSettings(max_used=1_000)
    async with edge(tmp_path / "a", database, settings=settings) as a:
        one = put(message=queued(b"x" * 1_000))
        await commit(a, one)
        with pytest.raises(Refusal) as refused:
            await commit(a, put())
        assert refused.value.rule is Rule.STORE_FULL
        await commit(a, Remove("E2", one.message, row()))
        await a.queues()
        await commit(a, put())


async def test_an_edge_waits_for_its_database_and_loses_nothing_when_it_goes(
    database: PostgresSettings, tmp_path: Path, server: PostgresServer
) -> None:
    heard = Heard()
    got: list[Queued] = []
    server.stop()
    try:
        store = opened(tmp_path / "a", database)
        await store.serve(heard.lost.append, heard.locked_out.append)
        assert store.trouble is not None
        assert store.trouble.rule is Rule.STORE_UNREACHABLE
    finally:
        server.start()
    try:
        await eventually(lambda: store.trouble is None, 60)
        await commit(store, put(message=queued(b"0")))
        store.subscribe("E2", 10, got.append)
        await eventually(lambda: len(got) == 1)
        await asyncio.to_thread(server.restart)
        await eventually(lambda: bool(heard.lost) and store.trouble is None, 60)
        told: list[Refusal | None] = []
        # What was handed out before is void; the store hands it out again.
        store.subscribe("E2", 10, got.append)
        await eventually(lambda: len(got) == 2)
        assert (got[1].number, got[1].deliveries) == (got[0].number, 1)
        store.submit((Remove("E2", got[1], row()),), told.append)
        await eventually(lambda: told == [None])
    finally:
        await store.close()


@pytest.mark.parametrize("setting", ["fsync=off", "synchronous_commit=off"])
async def test_a_database_that_does_not_flush_is_refused(
    database: PostgresSettings, tmp_path: Path, server: PostgresServer, setting: str
) -> None:
    server.restart("-c", setting)
    store = opened(tmp_path / "a", database)
    try:
        with pytest.raises(Refusal) as refused:
            await store.serve(lambda _: None, lambda _: None)
        assert refused.value.rule is Rule.STORE_UNSAFE
    finally:
        await store.close()
        server.restart()


async def test_the_transfers_of_all_edges_and_the_rows_of_each_are_exported(
    tmp_path: Path, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = f"edges_{secrets.token_hex(4)}"
    section = server.default_database().section(tmp_path) | {"schema": schema, "prefetch": 7}
    lines = [f"{name} = {json.dumps(value)}" for name, value in section.items()]
    for name in ("first", "second"):
        head = ['component = "broker"', f'home = "{name}"', 'store = "postgres"', "[postgres]"]
        (tmp_path / f"{name}.toml").write_text("\n".join(head + lines))
    monkeypatch.setattr(journal_export, "lower_priority", lambda: None)
    landing = tmp_path / "landing"

    async def export(name: str) -> list[Export]:
        job = journal_export.export_job(tmp_path / f"{name}.toml", landing, 5)
        return await asyncio.to_thread(job.once)

    database = server.default_database().settings(schema=schema)
    async with (
        edge(tmp_path / "first" / "store", database) as first,
        edge(tmp_path / "second" / "store", database) as second,
    ):
        writing = asyncio.gather(
            *(commit(store, put()) for _ in range(20) for store in (first, second))
        )
        # Of an open transaction nothing is taken, and no number is passed over.
        while not writing.done():
            await export("first")
        await writing
        for store in (first, second):
            await commit(store, Record(AdministrationRow(NOW, "somebody", "did", "it")))
        await export("first")
        await export("second")
        again = await export("first")
    assert all(one.segments == () and one.lost == () for one in again)
    assert len(again) == 3
    found = [SegmentName.parse(file.name) for file in landing.glob("*.parquet")]
    numbers: dict[str, list[int]] = {}
    for one in sorted(name for name in found if name is not None):
        assert one.component == "B1"
        numbers.setdefault(one.instance, []).extend(range(one.first, one.last + 1))
    # Two streams of the database, two journals in folders.
    assert len(numbers) == 4
    assert all(got == list(range(1, len(got) + 1)) for got in numbers.values())
    assert sum(map(len, numbers.values())) == 42
