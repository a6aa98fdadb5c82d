"""The journal in PostgreSQL: each process has a stream without gaps, numbered in the order of commits."""

from __future__ import annotations

import asyncio
import random

import pytest

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres.journal import PostgresJournal, streams
from gridpost.stores.postgres.store import PostgresStore
from gridpost.stores.postgres.transaction import Transaction
from stores.postgres.notes import open_notes
from support.boxed import DAY, note
from support.builders import NOW
from support.postgres import PostgresDatabase


async def sequences(store: PostgresStore[Transaction]) -> list[int]:
    rows = await store.read(lambda t: t.journal.read(0, 10_000))
    return [row.sequence for row in rows]


async def test_concurrent_processes_slow_transactions_and_rollbacks_leave_no_gap(
    postgres: PostgresDatabase,
) -> None:
    stores = [open_notes(postgres.settings()) for _ in range(3)]
    chance = random.Random(7)
    seen: list[list[int]] = [[] for _ in stores]

    async def writer(index: int, turn: int) -> None:
        def work(transaction: Transaction) -> None:
            for part in range(chance.randrange(1, 4)):
                transaction.journal.append(note(f"{index}/{turn}/{part}"))
            if turn % 5 == 0:
                transaction.connection.execute("SELECT pg_sleep(0.02)")
            if turn % 4 == 0:
                raise Refusal(Rule.USAGE, "no")

        try:
            await stores[index].run(work)
        except Refusal:
            assert turn % 4 == 0

    async def reader(index: int) -> None:
        """Numbers become visible in order: whoever reads up to n never finds something below later."""
        while True:
            seen[index].extend(
                row.sequence
                for row in await stores[index].read(
                    lambda t: t.journal.read(seen[index][-1] if seen[index] else 0, 100)
                )
            )
            await asyncio.sleep(0)

    readers = [asyncio.create_task(reader(index)) for index in range(3)]
    await asyncio.gather(*(writer(index, turn) for index in range(3) for turn in range(40)))
    for index, store in enumerate(stores):
        numbers = await sequences(store)
        assert numbers == list(range(1, len(numbers) + 1))
        while len(seen[index]) < len(numbers):
            await asyncio.sleep(0.01)
        assert seen[index] == numbers
    for task in readers:
        task.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    assert len({store.identity.instance for store in stores}) == 3
    for store in stores:
        await store.close()


async def test_two_writers_of_one_stream_wait_for_each_other(postgres: PostgresDatabase) -> None:
    """It happens when a process lost its connection and another took its stream over."""
    store = open_notes(postgres.settings())
    await store.run(lambda t: t.journal.append(note("first")))
    with postgres.connect() as other:
        other.execute("SET search_path TO gridpost")
        (stream,) = streams(other)
        other.execute("BEGIN")
        assert PostgresJournal(other, stream).append(note("second")) == 2
        run = asyncio.ensure_future(store.run(lambda t: t.journal.append(note("third"))))
        await asyncio.sleep(0.2)
        assert not run.done()
        other.execute("COMMIT")
    assert await run == 3
    await store.close()


async def test_a_stream_is_taken_over_by_the_next_process(postgres: PostgresDatabase) -> None:
    first = open_notes(postgres.settings())
    await first.run(lambda t: t.journal.append(note("one")))
    second = open_notes(postgres.settings())
    assert second.identity != first.identity
    await first.close()
    third = open_notes(postgres.settings())
    assert third.identity == first.identity
    assert await third.run(lambda t: t.journal.append(note("two"))) == 2
    await second.close()
    await third.close()


async def test_the_mark_of_exported_rows_and_pruning(postgres: PostgresDatabase) -> None:
    store, other = open_notes(postgres.settings()), open_notes(postgres.settings())
    for days in (9, 5, 1):
        await store.run(lambda t, d=days: t.journal.append(note("row", NOW - d * DAY)))
    await store.run(lambda t: t.journal.mark_exported(2))
    await store.run(lambda t: t.journal.mark_exported(1))
    assert await store.read(lambda t: t.journal.exported()) == 2
    with pytest.raises(ValueError, match="ends at 3"):
        await store.run(lambda t: t.journal.mark_exported(4))
    # A stream of another process, which may be gone, is pruned along.
    await other.run(lambda t: t.journal.append(note("row", NOW - 8 * DAY)))
    assert await store.run(lambda t: t.journal.prune(NOW, 6 * DAY)) == 2
    assert await sequences(store) == [2, 3]
    assert await sequences(other) == []
    assert await store.run(lambda t: t.journal.prune(NOW, 6 * DAY, keep_exported=2 * DAY)) == 1
    assert await other.run(lambda t: t.journal.append(note("next"))) == 2
    await store.close()
    await other.close()
