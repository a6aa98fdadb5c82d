"""Contract: what operators decided, links and archived papers commit, last and go with their message."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gridpost.core.delivery import Event, Occurrence, Side, decide
from gridpost.core.holds import Hold, HoldKind, Links
from gridpost.core.message_box import Retention
from gridpost.core.ports import Store, UnitOfWork
from stores.place import Contract, Place, restarted
from support.boxed import DAY, box_entry, happen, put
from support.builders import NOW

GONE_AT_ONCE = Retention(*(timedelta(0),) * 5)


def hold(kind: HoldKind = HoldKind.PARTNER, value: str = "E2", by: str = "olga") -> Hold:
    return Hold(kind, value, by, NOW, "why")


class ControlsContract(Contract):
    async def test_a_hold_lasts_over_a_restart_until_it_is_released(
        self, place: Place, store: Store
    ) -> None:
        other = hold(HoldKind.MAINTENANCE, "")
        assert await store.run(lambda unit: unit.controls.hold(hold()))
        assert await store.run(lambda unit: unit.controls.hold(other))
        assert not await store.run(lambda unit: unit.controls.hold(hold(by="nobody")))
        store = await restarted(place, store)
        assert set(await store.read(lambda unit: unit.controls.holds())) == {hold(), other}
        assert await store.run(lambda unit: unit.controls.release(HoldKind.PARTNER, "E2"))
        assert not await store.run(lambda unit: unit.controls.release(HoldKind.PARTNER, "E2"))
        assert list(await store.read(lambda unit: unit.controls.holds())) == [other]
        await store.close()

    async def test_a_link_is_known_from_both_sides_and_goes_with_the_new_message(
        self, store: Store
    ) -> None:
        old, new = box_entry(), box_entry()

        def write(unit: UnitOfWork) -> None:
            put(unit, old)
            put(unit, new)
            unit.controls.link(old.message_id, new.message_id)

        await store.run(write)
        ids = [old.message_id, new.message_id, "nothing"]
        assert await store.read(lambda unit: dict(unit.controls.links(ids))) == {
            old.message_id: Links((new.message_id,), ""),
            new.message_id: Links((), old.message_id),
        }

        def purge(unit: UnitOfWork) -> None:
            unit.box.stop_transfer(new.message_id)
            happen(unit, new, Event.CANCEL)
            unit.box.purge(GONE_AT_ONCE, NOW + DAY, 100)

        await store.run(purge)
        assert await store.read(lambda unit: dict(unit.controls.links(ids))) == {}
        with pytest.raises(ValueError, match="in the box"):
            await store.run(lambda unit: unit.controls.link("a", "b"))
        await store.close()

    async def test_papers_are_kept_once_for_many_messages_and_go_with_the_last(
        self, place: Place, store: Store
    ) -> None:
        entries = [box_entry(Side.RECEIVED) for _ in range(3)]

        def write(unit: UnitOfWork) -> None:
            for entry in entries:
                put(unit, entry)
                papers = {"certificate": b"same", "entry": entry.message_id.encode()}
                unit.controls.keep_papers(Side.RECEIVED, entry.message_id, papers)
            # What was archived at first is the evidence.
            unit.controls.keep_papers(
                Side.RECEIVED, entries[0].message_id, {"certificate": b"other", "more": b"more"}
            )

        await store.run(write)
        store = await restarted(place, store)
        first = entries[0].message_id
        assert await store.read(lambda u: dict(u.controls.papers(Side.RECEIVED, first))) == {
            "certificate": b"same",
            "entry": first.encode(),
            "more": b"more",
        }
        assert await store.read(lambda u: dict(u.controls.papers(Side.SENT, first))) == {}
        assert await store.run(lambda u: u.controls.tidy_papers(10)) == 0

        def purge(unit: UnitOfWork) -> None:
            for entry in entries:
                happen(unit, entry, Event.CONFIRM)
            unit.box.purge(GONE_AT_ONCE, NOW + DAY, 100)

        await store.run(purge)
        assert await store.read(lambda u: dict(u.controls.papers(Side.RECEIVED, first))) == {}
        assert await store.run(lambda u: u.controls.tidy_papers(100)) >= 3
        assert await store.run(lambda u: u.controls.tidy_papers(100)) == 0
        await store.close()

    async def test_a_transfer_of_this_process_is_nowhere_else(self, store: Store) -> None:
        entry = box_entry()
        await store.run(lambda unit: put(unit, entry))
        assert not await store.read(lambda unit: unit.controls.elsewhere(entry.message_id))
        assert not await store.read(lambda unit: unit.controls.elsewhere("unknown"))
        await store.close()

    async def test_documents_that_are_held_back_are_listed_and_not_offered(
        self, store: Store
    ) -> None:
        entries = [box_entry(Side.RECEIVED) for _ in range(2)]

        def write(unit: UnitOfWork) -> None:
            for entry in entries:
                unit.box.put(entry, b"document")
                held = decide(entry.delivery, Occurrence(Event.HOLD_BACK, "a virus"), NOW)
                unit.box.move(Side.RECEIVED, held)

        await store.run(write)
        ids = [entry.message_id for entry in entries]
        assert await store.read(lambda u: list(u.controls.held_back(10))) == ids
        assert await store.read(lambda u: list(u.controls.held_back(1))) == ids[:1]
        type_ = entries[0].metadata.message_type
        assert await store.read(lambda u: list(u.box.waiting(type_, NOW, 10))) == []
        # 503 cl. 5.7: held back or not, its time ends.
        expired = await store.read(lambda u: list(u.box.expired(NOW + DAY, 10)))
        assert {e.message_id for e in expired} == set(ids)
        await store.run(lambda u: happen(u, entries[0], Event.RELEASE))
        assert await store.read(lambda u: list(u.controls.held_back(10))) == ids[1:]
        assert len(await store.read(lambda u: list(u.box.waiting(type_, NOW, 10)))) == 1
        await store.close()
