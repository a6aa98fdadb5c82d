"""A full disk refuses new work, keeps everything it has, and works again when there is space."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gridpost.core.delivery import Event, Side
from gridpost.core.message_box import BoxEntry, Retention, Search
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Fault, Refusal, Rule
from gridpost.stores.sqlite import SqliteStore
from support.boxed import DAY, box_entry, happen, note, put
from support.builders import NOW

NOTHING_KEPT = Retention(*[DAY * 0] * 5)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(tmp_path, "E1")
    yield store
    await store.close()


async def _limit(store: SqliteStore, further_pages: int) -> None:
    """Let the database grow by so many pages and no more: SQLite then says that it is full."""

    def work(unit: UnitOfWork) -> None:
        connection = unit.box._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + further_pages}")

    await store.run(work)


async def _fill(store: SqliteStore) -> list[BoxEntry]:
    """Messages until one is refused; those that were accepted."""
    accepted: list[BoxEntry] = []
    while True:
        entry = box_entry()
        try:
            await store.run(lambda unit, e=entry: put(unit, e, b"x" * 3_000))
        except Refusal as refusal:
            told = refusal
            break
        accepted.append(entry)
    assert (told.rule, told.fault, told.retryable) == (Rule.STORE_FULL, Fault.OPERATOR, True)
    return accepted


async def _found(store: SqliteStore) -> set[str]:
    found = await store.read(lambda unit: unit.box.search(Search(), 10_000).entries)
    return {entry.message_id for entry in found}


async def test_a_full_store_keeps_what_it_has_and_resumes(store: SqliteStore) -> None:
    await _limit(store, 40)
    accepted = await _fill(store)
    assert accepted
    for _ in range(3):
        assert len(await _fill(store)) <= 5
    assert {entry.message_id for entry in accepted} <= await _found(store)
    for entry in accepted:
        content = await store.read(lambda unit, e=entry: unit.box.content(Side.SENT, e.message_id))
        assert content == b"x" * 3_000
    await _limit(store, 10_000)
    more = [box_entry() for _ in range(20)]
    for entry in more:
        assert await store.run(lambda unit, e=entry: put(unit, e, b"x" * 3_000))
    assert {entry.message_id for entry in more} <= await _found(store)


async def test_work_that_needs_no_space_goes_on_in_a_full_store(store: SqliteStore) -> None:
    await _limit(store, 40)
    accepted = await _fill(store)
    # Rows of ended messages and their contents make room without the operator.
    for entry in accepted:
        await store.run(lambda unit, e=entry: happen(unit, e, Event.ABANDON))
    purged = await store.run(lambda unit: unit.box.purge(NOTHING_KEPT, NOW, 1_000))
    assert purged.entries >= len(accepted)
    assert await store.run(lambda unit: put(unit, box_entry(), b"x" * 3_000))


async def test_everybody_in_a_group_is_told_what_became_of_its_work(store: SqliteStore) -> None:
    await _limit(store, 30)
    entries = [box_entry() for _ in range(60)]

    def work(entry: BoxEntry, size: int) -> object:
        def once(unit: UnitOfWork) -> int:
            number = unit.journal.append(note(entry.message_id))
            put(unit, entry, b"x" * size)
            return number

        return once

    outcomes = await asyncio.gather(
        *(
            store.run(work(entry, 100_000 if index % 5 == 4 else 1_000))
            for index, entry in enumerate(entries)
        ),
        return_exceptions=True,
    )
    found = await _found(store)
    refused = 0
    for entry, outcome in zip(entries, outcomes, strict=True):
        if isinstance(outcome, Refusal):
            refused += 1
            assert outcome.rule is Rule.STORE_FULL
            assert entry.message_id not in found
        else:
            assert entry.message_id in found
    assert refused > 0
    rows = await store.read(lambda unit: unit.journal.read(0, 1_000))
    assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
    assert {row.row.action for row in rows} == found
    await _limit(store, 10_000)
    for entry in entries:
        if entry.message_id not in found:
            assert await store.run(work(entry, 1_000))
