"""Contract: a work happens entirely or not at all, and its caller hears what became of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from gridpost.core.delivery import Event, Side, State
from gridpost.core.message_box import Search
from gridpost.core.ports import Store, UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from stores.place import Contract, Place, restarted
from support.boxed import EXPIRY, ROUTE, acknowledgement, box_entry, happen, internal, note, put
from support.builders import NOW

LARGE = b"L" * 300_000


class TransactionContract(Contract):
    async def test_a_work_that_raises_leaves_nothing(self, place: Place, store: Store) -> None:
        kept, lost = box_entry(), box_entry()

        def begin(unit: UnitOfWork) -> int:
            put(unit, kept)
            return unit.box.enqueue(internal(kept), ROUTE, EXPIRY)

        number = await store.run(begin)

        def failing(unit: UnitOfWork) -> None:
            put(unit, lost, LARGE)
            unit.box.enqueue(acknowledgement(kept.metadata, LARGE), ROUTE, EXPIRY)
            unit.box.settle(number)
            happen(unit, kept, Event.ABANDON)
            unit.journal.append(note("lost"))
            raise KeyError("a bug")

        with pytest.raises(KeyError, match="a bug"):
            await store.run(failing)
        for _ in range(2):
            found = await store.read(lambda unit: unit.box.search(Search(), 10).entries)
            assert [entry.message_id for entry in found] == [kept.message_id]
            assert found[0].delivery.state is State.ACCEPTED
            transfers = await store.read(lambda unit: unit.box.outgoing(NOW, 10))
            assert [transfer.number for transfer in transfers] == [number]
            assert len(await store.read(lambda u: u.box.trace(Side.SENT, kept.message_id))) == 1
            assert await store.read(lambda unit: unit.journal.read(0, 10)) == []
            store = await restarted(place, store)
        # And it can be done again.
        assert await store.run(lambda unit: put(unit, lost, LARGE))
        await store.close()

    async def test_the_failure_of_one_work_is_its_own(self, store: Store) -> None:
        entries = [box_entry() for _ in range(30)]

        async def one(index: int) -> bool:
            def work(unit: UnitOfWork) -> bool:
                put(unit, entries[index])
                if index % 3 == 0:
                    raise Refusal(Rule.USAGE, str(index))
                return True

            return await store.run(work)

        outcomes = await asyncio.gather(*(one(i) for i in range(30)), return_exceptions=True)
        for index, outcome in enumerate(outcomes):
            message_id = entries[index].message_id
            found = await store.read(lambda unit, m=message_id: unit.box.find(Side.SENT, m))
            if index % 3 == 0:
                assert isinstance(outcome, Refusal)
                assert outcome.message == str(index)
                assert found is None
            else:
                assert outcome is True
                assert found is not None

    async def test_a_work_sees_what_it_did_itself(self, store: Store) -> None:
        entry = box_entry(Side.RECEIVED, message_type="A")

        def work(unit: UnitOfWork) -> tuple[object, ...]:
            put(unit, entry, LARGE)
            unit.journal.append(note("x"))
            return (
                unit.box.content(Side.RECEIVED, entry.message_id),
                unit.box.count_waiting("A", NOW),
                len(unit.journal.read(0, 10)),
            )

        assert await store.run(work) == (LARGE, 1, 1)

    async def test_readers_see_everything_that_was_committed_before(self, store: Store) -> None:
        for count in range(1, 30):
            await store.run(lambda unit: unit.journal.append(note("x")))
            seen = await store.read(lambda unit: len(unit.journal.read(0, 100)))
            assert seen == count

    async def test_work_that_reads_changes_nothing(self, store: Store) -> None:
        for content in (b"small", LARGE):
            with pytest.raises(RuntimeError, match="must not change"):
                await store.read(lambda unit, c=content: unit.box.put(box_entry(), c))
        with pytest.raises(RuntimeError, match="must not change"):
            await store.read(lambda unit: unit.journal.append(note("x")))
        assert await store.read(lambda unit: unit.box.search(Search(), 10).entries) == ()
        assert await store.read(lambda unit: unit.journal.read(0, 10)) == []

    async def test_work_that_reads_may_fail(self, store: Store) -> None:
        def failing(unit: UnitOfWork) -> None:
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await store.read(failing)
        assert await store.read(lambda unit: unit.journal.exported()) == 0

    async def test_a_staged_content_that_is_not_put_is_thrown_away(self, store: Store) -> None:
        entry = box_entry()
        async with store.staged(LARGE):
            pass
        with suppress(KeyError):
            async with store.staged(LARGE) as document:
                await store.run(lambda unit: unit.box.put(entry, document))
                raise KeyError("after the commit")
        content = await store.read(lambda unit: unit.box.content(Side.SENT, entry.message_id))
        assert content == LARGE

    async def test_a_staged_content_can_be_put_after_a_failed_attempt(self, store: Store) -> None:
        entry = box_entry()
        async with store.staged(LARGE) as document:

            def failing(unit: UnitOfWork) -> None:
                unit.box.put(entry, document)
                raise KeyError("not yet")

            with pytest.raises(KeyError):
                await store.run(failing)
            assert await store.run(lambda unit: unit.box.put(entry, document))
        content = await store.read(lambda unit: unit.box.content(Side.SENT, entry.message_id))
        assert content == LARGE

    async def test_closing_finishes_what_waits(self, place: Place, store: Store) -> None:
        entries = [box_entry() for _ in range(50)]
        runs = [
            asyncio.ensure_future(store.run(lambda unit, e=entry: put(unit, e)))
            for entry in entries
        ]
        await asyncio.sleep(0)
        await store.close()
        assert await asyncio.gather(*runs) == [True] * 50
        store = place.open()
        found = await store.read(lambda unit: unit.box.search(Search(), 100).entries)
        assert len(found) == 50
        await store.close()

    async def test_a_closed_store_takes_no_work(self, store: Store) -> None:
        await store.close()
        await store.close()
        with pytest.raises(RuntimeError):
            await store.run(lambda unit: None)
        with pytest.raises(RuntimeError):
            await store.read(lambda unit: None)

    async def test_a_store_is_opened_once_at_a_time(self, place: Place, store: Store) -> None:
        with pytest.raises(Refusal) as refused:
            place.open()
        assert refused.value.rule is Rule.STORE_IN_USE
        assert await store.run(lambda unit: put(unit, box_entry()))

    async def test_a_cancelled_call_happened_entirely_or_not_at_all(self, store: Store) -> None:
        entries = [box_entry() for _ in range(40)]
        tasks = [
            asyncio.ensure_future(_put_with_row(store, number, entry))
            for number, entry in enumerate(entries)
        ]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(outcome is True for outcome in outcomes[1::2])
        await store.run(lambda unit: None)
        rows = await store.read(lambda unit: unit.journal.read(0, 100))
        told = {row.row.action for row in rows}
        for number, entry in enumerate(entries):
            found = await store.read(lambda unit, e=entry: unit.box.find(Side.SENT, e.message_id))
            assert (found is not None) == (str(number) in told)


async def _put_with_row(store: Store, number: int, entry: object) -> bool:
    def work(unit: UnitOfWork) -> bool:
        unit.journal.append(note(str(number)))
        return put(unit, entry)

    return await store.run(work)
