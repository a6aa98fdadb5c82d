"""Contract: notices to applications commit with the fact, wait in order, and go when handed over."""

from __future__ import annotations

import pytest

from gridpost.core.delivery import Event, Occurrence, Side, decide
from gridpost.core.identifiers import MessageType
from gridpost.core.message_box import Retention
from gridpost.core.notices import Notice, Subscription
from gridpost.core.ports import Store, UnitOfWork
from stores.place import Contract, Place, restarted
from support.boxed import DAY, box_entry, happen, put
from support.builders import NOW

LINE = decide(box_entry().delivery, Occurrence(Event.ACCEPT), NOW).entry


def reply(channel: str = "replies", message_id: str = "m-1", reference: str = "r") -> Notice:
    return Notice(channel, message_id, reference, NOW)


class NoticesContract(Contract):
    async def test_a_notice_waits_until_it_is_removed_also_over_a_restart(
        self, place: Place, store: Store
    ) -> None:
        numbers = await store.run(
            lambda unit: [unit.notices.append(reply(reference=str(n))) for n in range(3)]
        )
        assert numbers == sorted(set(numbers))
        store = await restarted(place, store)
        found = await store.read(lambda unit: unit.notices.read("replies", 0, 10))
        assert [n.reference for n in found] == ["0", "1", "2"]
        assert [n.number for n in found] == numbers
        assert found[0] == reply(reference="0")
        later = await store.read(lambda unit: unit.notices.read("replies", numbers[0], 1))
        assert [n.number for n in later] == [numbers[1]]
        await store.run(lambda unit: unit.notices.remove(numbers[:2]))
        left = await store.read(lambda unit: unit.notices.read("replies", 0, 10))
        assert [n.number for n in left] == [numbers[2]]
        assert await store.read(lambda unit: unit.notices.read("others", 0, 10)) == []
        await store.close()

    async def test_a_number_is_never_given_twice(self, place: Place, store: Store) -> None:
        first = await store.run(lambda unit: unit.notices.append(reply()))
        await store.run(lambda unit: unit.notices.remove([first]))
        store = await restarted(place, store)
        assert await store.run(lambda unit: unit.notices.append(reply())) > first
        await store.close()

    @pytest.mark.parametrize(("every", "status", "told"), [
        (False, False, 0), (False, True, 1), (True, False, 1), (True, True, 1),
    ])  # fmt: skip
    async def test_a_subscription_says_what_is_told(
        self, store: Store, every: bool, status: bool, told: int
    ) -> None:
        entry = box_entry()

        def work(unit: UnitOfWork) -> None:
            put(unit, entry)
            unit.notices.subscribe(Subscription(entry.message_id, "log", "file", every))
            unit.notices.tell(entry.message_id, LINE, status=status)

        await store.run(work)
        found = await store.read(lambda unit: unit.notices.read("log", 0, 10))
        assert found == [Notice("log", entry.message_id, "file", LINE.at, LINE)] * told
        await store.close()

    async def test_a_message_without_a_subscription_tells_nobody(self, store: Store) -> None:
        entry = box_entry()

        def work(unit: UnitOfWork) -> None:
            put(unit, entry)
            unit.notices.tell(entry.message_id, LINE, status=True)
            unit.notices.tell("unknown", LINE, status=True)

        await store.run(work)
        with pytest.raises(ValueError, match="is in the box"):
            await store.run(lambda unit: unit.notices.subscribe(Subscription("unknown", "log")))
        await store.close()

    async def test_what_is_undone_is_not_told(self, store: Store) -> None:
        def work(unit: UnitOfWork) -> None:
            unit.notices.append(reply())
            raise RuntimeError

        with pytest.raises(RuntimeError):
            await store.run(work)
        assert await store.read(lambda unit: unit.notices.read("replies", 0, 10)) == []
        await store.close()

    async def test_a_notice_outlives_its_message_and_goes_by_age(self, store: Store) -> None:
        entry = box_entry()

        def work(unit: UnitOfWork) -> None:
            put(unit, entry)
            unit.notices.subscribe(Subscription(entry.message_id, "log", "file"))
            unit.notices.tell(entry.message_id, LINE, status=True)
            happen(unit, entry, Event.ABANDON)

        await store.run(work)
        for _ in range(2):
            await store.run(lambda unit: unit.box.purge(Retention(), NOW + 90 * DAY, 10))
        assert await store.read(lambda unit: unit.box.find(Side.SENT, entry.message_id)) is None
        await store.run(lambda unit: unit.notices.tell(entry.message_id, LINE, status=True))
        (left,) = await store.read(lambda unit: unit.notices.read("log", 0, 10))
        assert await store.run(lambda unit: unit.notices.prune("log", left.at, 10)) == 0
        assert await store.run(lambda unit: unit.notices.prune("others", left.at + DAY, 10)) == 0
        assert await store.run(lambda unit: unit.notices.prune("log", left.at + DAY, 10)) == 1
        await store.close()

    async def test_waiting_messages_are_found_by_type_and_after_a_number(
        self, store: Store
    ) -> None:
        entries = [
            box_entry(Side.RECEIVED, message_id=f"m-{n}", message_type=MessageType(t))
            for n, t in enumerate(("A", "B", "A", "C", "A"))
        ]
        await store.run(lambda unit: [put(unit, entry) for entry in entries] and None)
        assert await store.read(lambda unit: unit.box.waiting_types()) == ["A", "B", "C"]
        found = await store.read(lambda unit: unit.box.waiting("A", NOW, 10))
        assert len(found) == 3
        after = await store.read(lambda unit: unit.box.waiting("A", NOW, 10, found[0].number))
        assert after == found[1:]
        await store.run(lambda unit: happen(unit, entries[1], Event.CONFIRM))
        assert await store.read(lambda unit: unit.box.waiting_types()) == ["A", "C"]
        await store.close()
