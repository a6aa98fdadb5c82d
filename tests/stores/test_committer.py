"""The committer: work that waits shares one commit, in order, and each caller hears its own outcome."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gridpost.core.delivery import Event, Occurrence, decide
from gridpost.core.message_box import BoxEntry, Search
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.sqlite import Settings, SqliteStore
from support.boxed import box_entry, note, put


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(tmp_path, "E1", Settings(max_group=10, max_group_bytes=50_000))
    yield store
    await store.close()


@asynccontextmanager
async def held(store: SqliteStore) -> AsyncIterator[list[int]]:
    """Keeps the committer busy until the block ends; the sizes of the groups it commits then."""
    gate = threading.Event()
    sizes: list[int] = []
    resolve = store._committer._resolve

    def counting(group: list[object]) -> None:
        sizes.append(len(group))
        resolve(group)

    store._committer._resolve = counting
    holding = asyncio.ensure_future(store.run(lambda unit: gate.wait()))
    await asyncio.sleep(0)
    try:
        yield sizes
    finally:
        gate.set()
    await asyncio.wait([holding])
    holding.exception()


async def _submit(store: SqliteStore, works: list[object]) -> list[asyncio.Future[object]]:
    """All in the queue, in this order."""
    runs = [asyncio.ensure_future(store.run(work)) for work in works]
    await asyncio.sleep(0)
    return runs


async def test_work_that_waits_shares_a_commit(store: SqliteStore) -> None:
    async with held(store) as sizes:
        runs = await _submit(store, [lambda unit: unit.journal.append(note("x"))] * 25)
    assert await asyncio.gather(*runs) == list(range(1, 26))
    # The work that held the others up is the first of its group.
    assert sizes == [10, 10, 6]


async def test_a_work_that_comes_alone_is_committed_alone(store: SqliteStore) -> None:
    async with held(store) as sizes:
        pass
    for _ in range(3):
        await store.run(lambda unit: unit.journal.append(note("x")))
    assert sizes == [1, 1, 1, 1]


async def test_a_group_with_many_bytes_is_committed_early(store: SqliteStore) -> None:
    async with held(store) as sizes:
        runs = await _submit(
            store, [lambda unit: put(unit, box_entry(), b"x" * 20_000) for _ in range(6)]
        )
    assert await asyncio.gather(*runs) == [True] * 6
    assert sizes == [4, 3]


async def test_a_loop_is_woken_once_for_a_group(store: SqliteStore) -> None:
    loop = asyncio.get_running_loop()
    woken = 0
    wake = loop.call_soon_threadsafe

    def counting(*arguments: object) -> object:
        nonlocal woken
        woken += 1
        return wake(*arguments)

    async with held(store):
        runs = await _submit(store, [lambda unit: None] * 9)
        loop.call_soon_threadsafe = counting  # type: ignore[method-assign]
    await asyncio.gather(*runs)
    loop.call_soon_threadsafe = wake  # type: ignore[method-assign]
    assert woken == 1


async def test_callers_in_several_loops_are_all_told(store: SqliteStore) -> None:
    def elsewhere() -> list[int]:
        async def work() -> list[int]:
            return await asyncio.gather(
                *(store.run(lambda unit: unit.journal.append(note("x"))) for _ in range(20))
            )

        return asyncio.run(work())

    answers = await asyncio.gather(*(asyncio.to_thread(elsewhere) for _ in range(3)))
    assert sorted(number for answer in answers for number in answer) == list(range(1, 61))


async def test_a_caller_whose_loop_is_gone_harms_nobody(store: SqliteStore) -> None:
    begun, gate = threading.Event(), threading.Event()

    def elsewhere() -> None:
        async def work() -> None:
            task = asyncio.ensure_future(
                store.run(
                    lambda unit: (begun.set(), gate.wait(), unit.journal.append(note("orphan")))
                )
            )
            await asyncio.to_thread(begun.wait, 60)
            task.cancel()

        asyncio.run(work())

    await asyncio.to_thread(elsewhere)
    gate.set()
    assert await store.run(lambda unit: unit.journal.append(note("next"))) == 2


async def test_work_whose_caller_has_gone_is_not_begun(store: SqliteStore) -> None:
    begun = []
    async with held(store):
        (run,) = await _submit(store, [lambda unit: begun.append("x")])
        run.cancel()
        await asyncio.sleep(0)
    await store.run(lambda unit: None)
    assert begun == []


async def test_what_a_future_cannot_carry_arrives_all_the_same(store: SqliteStore) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await store.run(lambda unit: next(iter([])))
    with pytest.raises(SystemExit):
        await store.run(lambda unit: exit(3))
    assert await store.run(lambda unit: unit.journal.append(note("x"))) == 1


async def test_a_commit_that_fails_is_told_to_everybody_in_it(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer = store._committer
    commit = committer._commit

    def failing() -> None:
        raise OSError(5, "Input/output error")

    entries = [box_entry() for _ in range(5)]
    async with held(store) as sizes:
        monkeypatch.setattr(committer, "_commit", failing)

        def own_failure(unit: UnitOfWork) -> None:
            raise KeyError("mine")

        works = [lambda unit, e=entry: put(unit, e, b"x" * 300_000) for entry in entries]
        runs = await _submit(store, [*works[:2], own_failure, *works[2:]])
    outcomes = await asyncio.gather(*runs, return_exceptions=True)
    assert isinstance(outcomes.pop(2), KeyError)
    assert {outcome.rule for outcome in outcomes} == {Rule.INTERNAL}
    assert len({outcome.id for outcome in outcomes}) == 5
    assert all(isinstance(outcome, Refusal) and outcome.retryable for outcome in outcomes)
    assert await store.read(lambda unit: unit.box.search(Search(), 10).entries) == ()
    monkeypatch.setattr(committer, "_commit", commit)
    for entry in entries:
        assert await store.run(lambda unit, e=entry: put(unit, e))
    assert sum(sizes) >= 6


async def test_a_large_document_holds_up_nobody(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = threading.Event()
    gate = threading.Event()
    write = store._bodies._write

    def slow(part: Path, content: bytes) -> None:
        writing.set()
        assert gate.wait(30)
        write(part, content)

    monkeypatch.setattr(store._bodies, "_write", slow)

    async def large() -> bool:
        async with store.staged(b"L" * 1_000_000) as document:
            return await store.run(lambda unit: unit.box.put(box_entry(), document))

    task = asyncio.ensure_future(large())
    await asyncio.to_thread(writing.wait, 30)
    for _ in range(5):
        await store.run(lambda unit: put(unit, box_entry()))
    assert not task.done()
    gate.set()
    assert await task


async def test_a_work_that_fails_takes_its_journal_rows_with_it_and_no_others(
    store: SqliteStore,
) -> None:
    def fails(unit: UnitOfWork) -> None:
        unit.journal.append(note("undone"))
        # Whoever reads sees what this and earlier works have appended.
        assert [found.row.action for found in unit.journal.read(0, 10)] == ["first", "undone"]
        unit.journal.append(note("undone too"))
        raise Refusal(Rule.INTERNAL, "no")

    async with held(store):
        first, failing, last = await _submit(
            store,
            [
                lambda unit: unit.journal.append(note("first")),
                fails,
                lambda unit: unit.journal.append(note("last")),
            ],
        )
    assert (await first, await last) == (1, 2)
    with pytest.raises(Refusal):
        await failing
    found = await store.read(lambda unit: unit.journal.read(0, 10))
    assert [(row.sequence, row.row.action) for row in found] == [(1, "first"), (2, "last")]


async def test_what_was_put_and_undone_is_not_remembered(store: SqliteStore) -> None:
    mistaken, right = box_entry(message_id="m1", application="a"), box_entry(message_id="m1")

    def fails(unit: UnitOfWork) -> None:
        unit.box.put(mistaken, b"x")
        raise Refusal(Rule.INTERNAL, "no")

    with pytest.raises(Refusal):
        await store.run(fails)
    await store.run(lambda unit: unit.box.put(right, b"x"))
    side, key = right.delivery.side, right.message_id
    assert await store.run(lambda unit: unit.box.find(side, key)) == right
    assert await store.read(lambda unit: unit.box.find(side, key)) == right


async def test_an_entry_is_found_as_it_was_moved(store: SqliteStore) -> None:
    entry = box_entry()
    side, key = entry.delivery.side, entry.message_id
    await store.run(lambda unit: unit.box.put(entry, b"x"))
    now = entry.delivery.changed_at

    def move(unit: UnitOfWork) -> BoxEntry | None:
        known = unit.box.find(side, key)
        assert known is not None
        unit.box.move(side, decide(known.delivery, Occurrence(Event.ACCEPT), now))
        return unit.box.find(side, key)

    moved = await store.run(move)
    assert moved is not None
    assert moved.delivery.state is not entry.delivery.state
    assert await store.run(lambda unit: unit.box.find(side, key)) == moved
    assert await store.read(lambda unit: unit.box.find(side, key)) == moved


async def test_works_beside_one_that_fails_are_done_once_though_they_run_twice(
    store: SqliteStore,
) -> None:
    large = bytes(2 * Settings().file_threshold)
    first, failed, last = (box_entry(message_id=name) for name in ("m1", "m2", "m3"))
    ran: list[str] = []

    def putting(entry: BoxEntry) -> object:
        def work(unit: UnitOfWork) -> bool:
            ran.append(entry.message_id)
            new = unit.box.put(entry, large)
            decision = decide(entry.delivery, Occurrence(Event.ACCEPT), entry.delivery.changed_at)
            unit.box.move(entry.delivery.side, decision)
            if entry is failed:
                raise Refusal(Rule.INTERNAL, "no")
            return new

        return work

    async with held(store):
        runs = await _submit(store, [putting(entry) for entry in (first, failed, last)])
    assert (await runs[0], await runs[2]) == (True, True)
    with pytest.raises(Refusal):
        await runs[1]
    assert ran == ["m1", "m2", "m1", "m2", "m3"]
    for entry, kept in ((first, large), (failed, None), (last, large)):
        side, key = entry.delivery.side, entry.message_id
        assert await store.read(lambda unit, s=side, k=key: unit.box.content(s, k)) == kept
        trace = await store.read(lambda unit, s=side, k=key: unit.box.trace(s, k))
        assert len(trace) == (0 if kept is None else 1)
    assert len(list(store._bodies.folder.iterdir())) == 2
