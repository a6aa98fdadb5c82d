"""Contract: journal rows are numbered without gaps, commit with their fact, and stay long enough."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from gridpost.core.delivery import Event, Side, State
from gridpost.core.journal import Recorded, RefusalRow, TrackingRow, UnknownRow
from gridpost.core.ports import Store, UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from stores.place import Contract, Place, restarted
from support.boxed import DAY, HOUR, box_entry, note, put
from support.builders import NOW


class JournalContract(Contract):
    async def test_rows_are_numbered_from_one_and_read_in_order(
        self, place: Place, store: Store
    ) -> None:
        tracking = TrackingRow(NOW, Side.SENT, "m", Event.ACCEPT, State.ACCEPTED, True, "d", "a")
        assert await store.run(lambda unit: unit.journal.append(note("first"))) == 1
        assert await store.run(lambda unit: unit.journal.append(tracking)) == 2
        store = await restarted(place, store)
        assert await store.run(lambda unit: unit.journal.append(note("third"))) == 3
        rows = await _rows(store)
        assert rows == [
            Recorded(1, note("first")),
            Recorded(2, tracking),
            Recorded(3, note("third")),
        ]
        assert await store.read(lambda unit: unit.journal.read(1, 1)) == [rows[1]]
        assert await store.read(lambda unit: unit.journal.read(3, 10)) == []
        await store.close()

    async def test_actions_and_refusals_are_found_among_all_rows_newest_first(
        self, store: Store
    ) -> None:
        tracking = TrackingRow(NOW, Side.SENT, "m", Event.ACCEPT, State.ACCEPTED, True)
        refusal = RefusalRow(NOW, "id", "RULE", "CODE", "text")

        def work(unit: UnitOfWork) -> None:
            for number in range(3):
                unit.journal.append(note(f"action {number}"))
                unit.journal.append(tracking)
                unit.journal.append(refusal)

        await store.run(work)
        kind = note("").KIND
        found = await store.read(lambda unit: unit.journal.latest(kind, 2))
        assert [r.row for r in found] == [note("action 2"), note("action 1")]
        last = found[-1].sequence
        older = await store.read(lambda unit: unit.journal.latest(kind, 2, before=last))
        assert [r.row for r in older] == [note("action 0")]
        refused = await store.read(lambda unit: unit.journal.latest(RefusalRow.KIND, 10))
        assert [r.row for r in refused] == [refusal] * 3
        with pytest.raises(KeyError):
            await store.read(lambda unit: unit.journal.latest(TrackingRow.KIND, 10))

    async def test_what_is_undone_leaves_no_gap(self, store: Store) -> None:
        def failing(unit: UnitOfWork) -> None:
            assert unit.journal.append(note("lost")) == 2
            unit.journal.append(note("lost too"))
            raise Refusal(Rule.USAGE, "changed my mind")

        await store.run(lambda unit: unit.journal.append(note("first")))
        with pytest.raises(Refusal):
            await store.run(failing)
        assert await store.run(lambda unit: unit.journal.append(note("second"))) == 2
        assert _texts(await _rows(store)) == ["first", "second"]

    async def test_many_writers_of_whom_some_fail_leave_no_gap(self, store: Store) -> None:
        async def writer(name: int) -> list[int]:
            numbers = []
            for turn in range(20):
                fails = (name + turn) % 3 == 0

                def work(unit: UnitOfWork, turn: int = turn, fails: bool = fails) -> int:
                    number = unit.journal.append(note(f"{name}/{turn}"))
                    put(unit, box_entry())
                    if fails:
                        raise Refusal(Rule.USAGE, "no")
                    return number

                try:
                    numbers.append(await store.run(work))
                except Refusal:
                    assert fails
            return numbers

        given = await asyncio.gather(*(writer(name) for name in range(10)))
        rows = await _rows(store)
        # Callers hear the numbers that the rows have, each in the order of its own works.
        assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
        assert sorted(number for numbers in given for number in numbers) == [
            row.sequence for row in rows
        ]
        assert all(numbers == sorted(numbers) for numbers in given)

    async def test_the_mark_of_exported_rows_only_goes_forward(
        self, place: Place, store: Store
    ) -> None:
        assert await store.read(lambda unit: unit.journal.exported()) == 0
        for text in "abc":
            await store.run(lambda unit, t=text: unit.journal.append(note(t)))
        await store.run(lambda unit: unit.journal.mark_exported(2))
        await store.run(lambda unit: unit.journal.mark_exported(1))
        store = await restarted(place, store)
        assert await store.read(lambda unit: unit.journal.exported()) == 2
        with pytest.raises(ValueError, match="ends at 3"):
            await store.run(lambda unit: unit.journal.mark_exported(4))
        assert await store.read(lambda unit: unit.journal.exported()) == 2
        await store.close()

    async def test_a_row_stays_until_its_retention_ends(self, store: Store) -> None:
        for hours in range(3):
            at = NOW + hours * HOUR
            await store.run(lambda unit, a=at: unit.journal.append(note("row", a)))
        just_before = NOW + DAY - timedelta(microseconds=1)
        assert await _prune(store, just_before) == 0
        assert await _prune(store, NOW + DAY) == 1
        assert await _prune(store, NOW + DAY + 5 * HOUR) == 2

    async def test_exported_rows_may_go_earlier_and_only_they(self, store: Store) -> None:
        for hours in range(3):
            at = NOW + hours * HOUR
            await store.run(lambda unit, a=at: unit.journal.append(note("row", a)))
        await store.run(lambda unit: unit.journal.mark_exported(2))
        at = NOW + 2 * HOUR
        assert await _prune(store, at) == 0
        assert await _prune(store, at, keep_exported=3 * HOUR) == 0
        assert await _prune(store, at, keep_exported=2 * HOUR) == 1
        assert await _prune(store, at, keep_exported=timedelta(0)) == 1
        assert [row.sequence for row in await _rows(store)] == [3]
        # Exporting never makes a row stay longer.
        await store.run(lambda unit: unit.journal.mark_exported(3))
        assert await _prune(store, NOW + 2 * HOUR + DAY, keep_exported=9 * DAY) == 1

    async def test_what_is_left_after_pruning_has_no_gaps(self, place: Place, store: Store) -> None:
        # The clock was wrong at the second row: it keeps the third, which would be old enough.
        for at in (NOW, NOW + 9 * DAY, NOW):
            await store.run(lambda unit, a=at: unit.journal.append(note("row", a)))
        assert await _prune(store, NOW + DAY) == 1
        assert [row.sequence for row in await _rows(store)] == [2, 3]
        assert await _prune(store, NOW + 20 * DAY) == 2
        store = await restarted(place, store)
        assert await store.run(lambda unit: unit.journal.append(note("next"))) == 4
        await store.close()

    async def test_pruning_goes_in_rounds(self, store: Store) -> None:
        for _ in range(5):
            await store.run(lambda unit: unit.journal.append(note("row")))
        assert [await _prune(store, NOW + DAY, limit=2) for _ in range(4)] == [2, 2, 1, 0]

    async def test_nobody_writes_a_row_that_nobody_knows(self, store: Store) -> None:
        row = UnknownRow(NOW, "moon", 1, "{}")
        with pytest.raises(ValueError, match="not a kind"):
            await store.run(lambda unit: unit.journal.append(row))

    async def test_what_people_page_through_is_found_among_other_rows(self, store: Store) -> None:
        def fill(unit: UnitOfWork) -> None:
            for number in range(6):
                unit.journal.append(note(f"action {number}"))
                unit.journal.append(
                    TrackingRow(NOW, Side.SENT, "m", Event.ACCEPT, State.ACCEPTED, True)
                )
                unit.journal.append(RefusalRow(NOW, f"id {number}", "R", "C", "refused"))

        await store.run(fill)
        listed = await store.read(lambda unit: unit.journal.listed(4, 3))
        assert [(r.sequence, r.row.KIND) for r in listed] == [
            (6, "refusal"),
            (7, "administration"),
            (9, "refusal"),
        ]
        assert await store.read(lambda unit: unit.journal.listed(18, 3)) == []

    async def test_a_journal_belongs_to_one_instance_of_a_component(
        self, place: Place, store: Store
    ) -> None:
        identity = store.identity
        assert identity.component == "E1"
        assert len(identity.instance) == 36
        store = await restarted(place, store)
        assert store.identity == identity
        await store.close()
        with pytest.raises(Refusal) as refused:
            place.open("E2")
        assert refused.value.rule is Rule.STORE_OF_ANOTHER
        reopened = place.open("E1")
        await reopened.close()


async def _rows(store: Store) -> Sequence[Recorded]:
    return await store.read(lambda unit: unit.journal.read(0, 1_000))


async def _prune(store: Store, now: object, **options: object) -> int:
    return await store.run(lambda unit: unit.journal.prune(now, DAY, **options))


def _texts(rows: Sequence[Recorded]) -> list[str]:
    return [row.row.action for row in rows]
