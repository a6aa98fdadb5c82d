"""Contract: transfers go by priority and in order, wait for their next attempt, and end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from gridpost.core.delivery import Event, Side
from gridpost.core.instant import Instant
from gridpost.core.message import Entry, InternalMessage, Processor, ValueType
from gridpost.core.message_box import Outgoing
from gridpost.core.message_path import DIRECT
from gridpost.core.ports import Store, UnitOfWork
from stores.place import Contract, Place, restarted
from support.boxed import (
    DAY,
    EXPIRY,
    HOUR,
    ROUTE,
    acknowledgement,
    box_entry,
    happen,
    internal,
    put,
)
from support.builders import NOW

SIGNED = (Processor("signature", (Entry("value", ValueType.STRING, "<s/>"),)),)


class OutgoingContract(Contract):
    async def test_a_message_of_the_box_goes_out_as_it_was_composed(
        self, place: Place, store: Store
    ) -> None:
        entry = box_entry(processors=SIGNED, generated=Instant.parse("2026-03-01T13:00:00+01:00"))

        def work(unit: UnitOfWork) -> int:
            put(unit, entry, b"clear")
            return unit.box.enqueue(internal(entry, b"clear"), ROUTE, EXPIRY, priority=3)

        number = await store.run(work)
        store = await restarted(place, store)
        (transfer,) = await store.read(lambda unit: unit.box.outgoing(NOW, 10))
        assert transfer == Outgoing(number, internal(entry, b"clear"), ROUTE, EXPIRY, 3)
        assert transfer.message.metadata.generated.text == "2026-03-01T13:00:00+01:00"
        await store.close()

    async def test_what_is_signed_later_is_signed_in_the_box_and_in_its_transfer(
        self, place: Place, store: Store
    ) -> None:
        entry = box_entry(sender_description="ACME")

        def work(unit: UnitOfWork) -> None:
            put(unit, entry, b"clear")
            unit.box.enqueue(internal(entry, b"clear"), ROUTE, EXPIRY)

        await store.run(work)
        signed = replace(entry.metadata, processors=SIGNED)
        await store.run(lambda unit: unit.box.sign(signed))
        # Whoever writes next sees it, too, whatever it remembers.
        seen = await store.run(lambda unit: unit.box.find(Side.SENT, entry.message_id))
        assert seen is not None
        assert seen.metadata == signed
        store = await restarted(place, store)
        kept = await store.read(lambda unit: unit.box.find(Side.SENT, entry.message_id))
        assert kept is not None
        assert kept.metadata == signed
        (transfer,) = await store.read(lambda unit: unit.box.outgoing(NOW, 10))
        assert transfer.message == InternalMessage(signed, b"clear")
        await store.close()

    async def test_metadata_of_a_transfer_may_differ_from_that_of_the_entry(
        self, store: Store
    ) -> None:
        entry = box_entry(generated=Instant.parse("2026-03-01T13:00:00+01:00"))
        # The same time in another text: equal as values, but another thing to sign.
        composed = replace(
            entry.metadata, generated=Instant.of(entry.metadata.generated.at), processors=SIGNED
        )
        await store.run(lambda unit: put(unit, entry))
        await store.run(
            lambda unit: unit.box.enqueue(InternalMessage(composed, b"document"), ROUTE, EXPIRY)
        )
        (transfer,) = await store.read(lambda unit: unit.box.outgoing(NOW, 10))
        assert transfer.message.metadata == composed
        assert transfer.message.metadata.generated.text == composed.generated.text
        assert transfer.message.content == b"document"

    async def test_an_acknowledgement_brings_its_own_content(
        self, place: Place, store: Store
    ) -> None:
        for size in (0, 88, 300_000):
            message = acknowledgement(box_entry().metadata, b"a" * size)
            number = await store.run(lambda unit, m=message: unit.box.enqueue(m, DIRECT, EXPIRY))
            store = await restarted(place, store)
            (transfer,) = await store.read(lambda unit: unit.box.outgoing(NOW, 10))
            assert transfer == Outgoing(number, message, DIRECT, EXPIRY)
            await store.run(lambda unit, n=number: unit.box.settle(n))
            assert await store.read(lambda unit: unit.box.outgoing(NOW, 10)) == []
        await store.close()

    async def test_higher_priorities_go_first_then_what_came_first(self, store: Store) -> None:
        numbers = [await _enqueue(store, priority=priority) for priority in (0, 5, -1, 5, 0)]
        expected = [numbers[i] for i in (1, 3, 0, 4, 2)]
        found = await store.read(lambda unit: unit.box.outgoing(NOW, 10))
        assert _numbers(found) == expected
        found = await store.read(lambda unit: unit.box.outgoing(NOW, 2))
        assert _numbers(found) == expected[:2]

    async def test_a_failed_attempt_waits_and_keeps_its_place(self, store: Store) -> None:
        first, second, third = [await _enqueue(store) for _ in range(3)]
        retry = NOW + timedelta(minutes=5)
        assert await store.read(lambda unit: unit.box.next_due(NOW)) is None
        await store.run(lambda unit: unit.box.postpone(first, retry))
        await store.run(lambda unit: unit.box.postpone(third, retry + HOUR / 2))
        assert _numbers(await store.read(lambda unit: unit.box.outgoing(NOW, 10))) == [second]
        assert await store.read(lambda unit: unit.box.next_due(NOW)) == retry
        found = await store.read(lambda unit: unit.box.outgoing(retry, 10))
        assert _numbers(found) == [first, second]
        assert (found[0].attempts, found[0].due_at) == (1, retry)
        assert await store.read(lambda unit: unit.box.next_due(retry)) == retry + HOUR / 2
        await store.run(lambda unit: unit.box.postpone(first, retry + HOUR / 4))
        found = await store.read(lambda unit: unit.box.outgoing(retry + HOUR / 4, 10))
        assert [(f.number, f.attempts) for f in found] == [(first, 2), (second, 0)]

    async def test_an_attempt_that_would_come_too_late_is_not_waited_for(
        self, store: Store
    ) -> None:
        number = await _enqueue(store)
        await store.run(lambda unit: unit.box.postpone(number, EXPIRY))
        assert await store.read(lambda unit: unit.box.next_due(NOW)) is None

    async def test_attempts_survive_a_restart(self, place: Place, store: Store) -> None:
        number = await _enqueue(store)
        await store.run(lambda unit: unit.box.postpone(number, NOW + HOUR / 2))
        store = await restarted(place, store)
        (transfer,) = await store.read(lambda unit: unit.box.outgoing(NOW + HOUR / 2, 10))
        assert (transfer.number, transfer.attempts) == (number, 1)
        await store.close()

    async def test_a_settled_transfer_never_comes_back(self, place: Place, store: Store) -> None:
        first, second = await _enqueue(store), await _enqueue(store)
        await store.run(lambda unit: unit.box.settle(second))
        await store.run(lambda unit: unit.box.settle(second))
        store = await restarted(place, store)
        assert _numbers(await store.read(lambda unit: unit.box.outgoing(NOW, 10))) == [first]
        # Its number is not given to another transfer, which a late answer would settle.
        assert await _enqueue(store) > second
        await store.run(lambda unit: unit.box.postpone(second, NOW + HOUR))
        assert len(await store.read(lambda unit: unit.box.outgoing(NOW, 10))) == 2
        await store.close()

    async def test_stopping_takes_every_transfer_of_a_message(self, store: Store) -> None:
        entry, other = box_entry(), box_entry()

        def work(unit: UnitOfWork) -> int:
            put(unit, entry)
            put(unit, other)
            unit.box.enqueue(internal(entry), ROUTE, EXPIRY)
            unit.box.enqueue(internal(entry), DIRECT, EXPIRY)
            return unit.box.enqueue(internal(other), ROUTE, EXPIRY)

        kept = await store.run(work)
        await store.run(lambda unit: unit.box.stop_transfer(entry.message_id))
        assert _numbers(await store.read(lambda unit: unit.box.outgoing(NOW, 10))) == [kept]

    async def test_an_expired_message_is_not_transferred(self, store: Store) -> None:
        await _enqueue(store)
        later = await _enqueue(store, expires=EXPIRY + DAY)
        just_before = EXPIRY - timedelta(microseconds=1)
        assert len(await store.read(lambda unit: unit.box.outgoing(just_before, 10))) == 2
        assert _numbers(await store.read(lambda unit: unit.box.outgoing(EXPIRY, 10))) == [later]
        assert await store.run(lambda unit: unit.box.drop_expired_transfers(just_before)) == 0
        assert await store.run(lambda unit: unit.box.drop_expired_transfers(EXPIRY)) == 1
        assert _numbers(await store.read(lambda unit: unit.box.outgoing(NOW, 10))) == [later]

    async def test_a_closed_route_is_left_out(self, store: Store) -> None:
        def work(unit: UnitOfWork) -> tuple[int, int]:
            entry = box_entry()
            put(unit, entry)
            by_broker = unit.box.enqueue(internal(entry), ROUTE, EXPIRY)
            return by_broker, unit.box.enqueue(internal(entry), DIRECT, EXPIRY)

        by_broker, direct = await store.run(work)
        found = await store.read(lambda unit: unit.box.outgoing(NOW, 10, closed=[ROUTE]))
        assert _numbers(found) == [direct]
        found = await store.read(lambda unit: unit.box.outgoing(NOW, 10, closed=[DIRECT]))
        assert _numbers(found) == [by_broker]
        found = await store.read(lambda unit: unit.box.outgoing(NOW, 10, closed=[ROUTE, DIRECT]))
        assert found == []

    async def test_a_route_that_opens_makes_its_postponed_transfers_due(self, store: Store) -> None:
        first, second = await _enqueue(store), await _enqueue(store)
        later = NOW + HOUR / 2
        await store.run(lambda unit: unit.box.postpone(first, later))
        assert await store.run(lambda unit: unit.box.hasten(DIRECT)) == 0
        assert _numbers(await store.read(lambda unit: unit.box.outgoing(NOW, 10))) == [second]
        assert await store.run(lambda unit: unit.box.hasten(ROUTE)) == 1
        found = await store.read(lambda unit: unit.box.outgoing(NOW, 10))
        assert [(f.number, f.attempts) for f in found] == [(first, 1), (second, 0)]
        assert await store.read(lambda unit: unit.box.next_due(NOW)) is None

    async def test_transfers_under_way_are_left_out(self, store: Store) -> None:
        numbers = [await _enqueue(store) for _ in range(4)]
        found = await store.read(
            lambda unit: unit.box.outgoing(NOW, 2, under_way={numbers[0], numbers[2]})
        )
        assert _numbers(found) == [numbers[1], numbers[3]]

    async def test_an_answer_does_not_grow_beyond_memory(self, store: Store) -> None:
        numbers = [await _enqueue(store, content=b"x" * 1_000) for _ in range(4)]
        for max_bytes, expected in ((1, 1), (1_999, 1), (2_000, 2), (10_000, 4)):
            found = await store.read(
                lambda unit, m=max_bytes: unit.box.outgoing(NOW, 10, max_bytes=m)
            )
            assert _numbers(found) == numbers[:expected]

    async def test_a_message_that_is_put_twice_is_transferred_once_with_its_first_content(
        self, store: Store
    ) -> None:
        entry = box_entry()
        await store.run(lambda unit: put(unit, entry, b"first"))
        await store.run(lambda unit: happen(unit, entry, Event.TRANSFER_FAILED))
        await store.run(lambda unit: unit.box.enqueue(internal(entry, b"first"), ROUTE, EXPIRY))
        assert not await store.run(lambda unit: put(unit, entry, b"other"))
        (transfer,) = await store.read(lambda unit: unit.box.outgoing(NOW, 10))
        assert transfer.message.content == b"first"


async def _enqueue(
    store: Store, *, priority: int = 0, expires: object = EXPIRY, content: bytes = b"document"
) -> int:
    entry = box_entry()

    def work(unit: UnitOfWork) -> int:
        put(unit, entry, content)
        return unit.box.enqueue(internal(entry, content), ROUTE, expires, priority)  # type: ignore[arg-type]

    return await store.run(work)


def _numbers(transfers: Sequence[Outgoing]) -> list[int]:
    return [transfer.number for transfer in transfers]
