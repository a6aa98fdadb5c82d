"""Contract: each kind of data goes at its own time, and never before the final state (503 cl. 5.9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from gridpost.core.delivery import Event, Side
from gridpost.core.identifiers import MessageType
from gridpost.core.message import InternalType
from gridpost.core.message_box import BoxEntry, Purged, Retention
from gridpost.core.node import PurgeStrategy
from gridpost.core.ports import Store, UnitOfWork
from stores.place import Contract, Place, restarted
from support.boxed import DAY, EXPIRY, HOUR, ROUTE, box_entry, happen, internal, put
from support.builders import NOW

TICK = timedelta(microseconds=1)
# Five different durations, so that nothing goes at the time of another.
KEEP = Retention(
    sent_metadata=4 * DAY,
    sent_content=1 * DAY,
    received_metadata=5 * DAY,
    received_content=2 * DAY,
    received_ids=7 * DAY,
)
NOTHING = Purged()
TRACING = InternalType.TRACING_MESSAGE
FINAL = NOW + HOUR / 2


def _sent(*events: Event) -> Callable[[UnitOfWork], BoxEntry]:
    return lambda unit: _with(unit, box_entry(), *events)


def _traced(*events: Event) -> Callable[[UnitOfWork], BoxEntry]:
    return lambda unit: _with(unit, box_entry(internal_type=TRACING), *events)


def _received(*events: Event) -> Callable[[UnitOfWork], BoxEntry]:
    return lambda unit: _with(unit, box_entry(Side.RECEIVED), *events)


def _with(unit: UnitOfWork, entry: BoxEntry, *events: Event) -> BoxEntry:
    put(unit, entry)
    for event in events:
        happen(unit, entry, event, EXPIRY if event is Event.EXPIRE else FINAL)
    return entry


def _trace_answered(unit: UnitOfWork) -> BoxEntry:
    entry = box_entry(Side.RECEIVED, internal_type=TRACING, now=FINAL)
    put(unit, entry)
    return entry


# 503 Table 2 with the time from which retention counts.
FINAL_STATES = {
    "received by the recipient's application": (
        _sent(Event.DELIVERY_ACKNOWLEDGED, Event.RECEIVE_ACKNOWLEDGED),
        FINAL,
    ),
    "failed": (_sent(Event.FAILURE_ACKNOWLEDGED), FINAL),
    "expired at the sender": (_sent(Event.EXPIRE), EXPIRY),
    "delivered, never received, expired": (_sent(Event.DELIVERY_ACKNOWLEDGED), EXPIRY),
    "traced, expired": (_traced(Event.TRACING_ACKNOWLEDGED), EXPIRY),
    "confirmed": (_received(Event.CONFIRM), FINAL),
    "refused": (_received(Event.REFUSE), FINAL),
    "trace answered": (_trace_answered, FINAL),
    "expired at the recipient": (_received(Event.EXPIRE), EXPIRY),
}
NOT_FINAL = {
    "accepted": _sent(),
    "delivering": _sent(Event.TRANSFERRED),
    "receive acknowledgement held": _sent(Event.RECEIVE_ACKNOWLEDGED),
    "tracing": _traced(),
    "waiting": _received(),
}


class RetentionContract(Contract):
    @pytest.mark.parametrize("state", FINAL_STATES)
    async def test_retention_counts_from_the_final_state(
        self, place: Place, store: Store, state: str
    ) -> None:
        make, final = FINAL_STATES[state]
        entry = await store.run(make)
        side = entry.delivery.side
        content_ends = final + KEEP.content(side)
        metadata_ends = final + KEEP.metadata(side)
        assert await _purge(store, content_ends - TICK) == NOTHING
        assert await _purge(store, content_ends) == Purged(contents=1)
        assert await _kept(store, entry) == (True, False)
        store = await restarted(place, store)
        assert await _purge(store, metadata_ends - TICK) == NOTHING
        assert await _purge(store, metadata_ends) == Purged(entries=1)
        assert await _kept(store, entry) == (False, False)
        assert await store.read(lambda unit: unit.box.trace(side, entry.message_id)) == []
        await store.close()

    @pytest.mark.req("m11-3.6-d", component="endpoint")
    @pytest.mark.req("m11-3.6-e", component="endpoint")
    @pytest.mark.parametrize("side", Side)
    async def test_a_message_type_has_its_own_strategy(self, store: Store, side: Side) -> None:
        """Everything goes in its time; or only the content; or nothing."""
        strategies = {"PART": PurgeStrategy.CONTENT, "KEPT": PurgeStrategy.NEVER}
        keep = replace(KEEP, by_type=strategies | {"ALL": PurgeStrategy.WHOLE})
        final = (
            [Event.CONFIRM]
            if side is Side.RECEIVED
            else [Event.DELIVERY_ACKNOWLEDGED, Event.RECEIVE_ACKNOWLEDGED]
        )
        entries, waiting = {}, []
        for type_ in ("ALL", "PART", "KEPT", "OTHER"):
            entry = box_entry(side, message_type=MessageType(type_))
            entries[type_] = await store.run(lambda unit, e=entry: _with(unit, e, *final))  # type: ignore[misc]
            open_ = box_entry(side, message_type=MessageType(type_))
            waiting.append(await store.run(lambda unit, e=open_: _with(unit, e)))  # type: ignore[misc]
        later = FINAL + 30 * DAY
        purged = await _purge(store, later, keep)
        assert (purged.contents, purged.entries) == (3, 2)
        kept = {type_: await _kept(store, entry) for type_, entry in entries.items()}
        assert kept == {
            "ALL": (False, False), "PART": (True, False), "KEPT": (True, True),
            "OTHER": (False, False),
        }  # fmt: skip
        for entry in waiting:
            assert await _kept(store, entry) == (True, True)
        # Another strategy takes what the first one left.
        assert (await _purge(store, later, KEEP)).entries == 2

    async def test_what_is_archived_goes_whatever_retention_says(
        self, place: Place, store: Store
    ) -> None:
        """Only what is final, and what no transfer needs; a received ID is still known."""
        made = [
            await store.run(_received(Event.CONFIRM)),
            await store.run(_sent(Event.FAILURE_ACKNOWLEDGED)),
            await store.run(_sent(Event.EXPIRE)),
        ]
        open_ = [await store.run(make) for make in NOT_FINAL.values()]
        needed = await store.run(_sent(Event.FAILURE_ACKNOWLEDGED))
        message = internal(needed)
        await store.run(lambda unit: unit.box.enqueue(message, ROUTE, EXPIRY, 0))

        async def finished(at: datetime, limit: int = 100) -> set[str]:
            found = await store.read(lambda unit: unit.box.finished(at, limit))
            return {entry.message_id for entry in found}

        assert await finished(FINAL - TICK) == set()
        assert await finished(FINAL) == {made[0].message_id, made[1].message_id}
        assert await finished(EXPIRY) == {entry.message_id for entry in made}
        assert len(await finished(EXPIRY, 2)) == 2
        ids = {
            side: [e.message_id for e in (*made, *open_, needed) if e.delivery.side is side]
            for side in Side
        }
        for side, gone in ((Side.SENT, 2), (Side.RECEIVED, 1)):
            found = ids[side]
            done = await store.run(lambda unit, s=side, f=found: unit.box.discard(s, f))  # type: ignore[misc]
            assert done == gone
        for entry in made:
            assert await _kept(store, entry) == (False, False)
        for entry in (*open_, needed):
            assert await _kept(store, entry) == (True, True)
        assert await finished(EXPIRY) == set()
        again = made[0]
        assert not await store.run(lambda unit: unit.box.put(again, b"again"))
        store = await restarted(place, store)
        assert not await store.run(lambda unit: unit.box.put(again, b"again"))
        await store.close()

    @pytest.mark.parametrize("state", NOT_FINAL)
    async def test_nothing_goes_before_the_final_state(self, store: Store, state: str) -> None:
        entry = await store.run(NOT_FINAL[state])
        assert await _purge(store, NOW + timedelta(days=3650)) == NOTHING
        assert await _kept(store, entry) == (True, True)

    async def test_a_delivered_message_stays_until_it_expires(self, store: Store) -> None:
        keep = Retention(*[timedelta(0)] * 5)
        entry = await store.run(_sent(Event.DELIVERY_ACKNOWLEDGED))
        assert await _purge(store, EXPIRY - TICK, keep) == NOTHING
        assert await _kept(store, entry) == (True, True)
        assert await _purge(store, EXPIRY, keep) == Purged(contents=1, entries=1)

    async def test_received_ids_are_remembered_longer_than_metadata(
        self, place: Place, store: Store
    ) -> None:
        entry = await store.run(_received(Event.CONFIRM))
        assert await _purge(store, FINAL + 5 * DAY) == Purged(contents=1, entries=1)
        store = await restarted(place, store)
        assert not await store.run(lambda unit: put(unit, entry))
        assert await _purge(store, FINAL + 7 * DAY - TICK) == NOTHING
        assert not await store.run(lambda unit: put(unit, entry))
        assert await _kept(store, entry) == (False, False)
        assert await _purge(store, FINAL + 7 * DAY) == Purged(identifiers=1)
        assert await store.run(lambda unit: put(unit, entry))
        await store.close()

    async def test_own_ids_are_not_remembered(self, store: Store) -> None:
        entry = await store.run(_sent(Event.ABANDON))
        assert await _purge(store, FINAL + 4 * DAY) == Purged(contents=1, entries=1)
        assert await store.run(lambda unit: put(unit, entry))

    @pytest.mark.parametrize("side", Side)
    async def test_a_content_may_outlive_its_metadata(
        self, place: Place, store: Store, side: Side
    ) -> None:
        keep = Retention(DAY, 3 * DAY, DAY, 3 * DAY, 2 * DAY)
        make = _sent(Event.ABANDON) if side is Side.SENT else _received(Event.CONFIRM)
        entry = await store.run(make)
        assert await _purge(store, FINAL + DAY, keep) == Purged(entries=1)
        store = await restarted(place, store)
        assert await _kept(store, entry) == (False, True)
        # As long as anything is left of it, the message is still known.
        assert await _purge(store, FINAL + 2 * DAY, keep) == NOTHING
        assert not await store.run(lambda unit: put(unit, entry))
        ids = 1 if side is Side.RECEIVED else 0
        assert await _purge(store, FINAL + 3 * DAY, keep) == Purged(contents=1, identifiers=ids)
        assert await _kept(store, entry) == (False, False)
        assert await store.run(lambda unit: put(unit, entry))
        await store.close()

    async def test_what_is_still_to_be_transferred_stays(self, store: Store) -> None:
        keep = Retention(*[timedelta(0)] * 5)
        entry = await store.run(_sent())
        number = await store.run(
            lambda unit: unit.box.enqueue(internal(entry), ROUTE, NOW + 9 * DAY)
        )
        await store.run(lambda unit: happen(unit, entry, Event.ABANDON, FINAL))
        assert await _purge(store, NOW + DAY, keep) == NOTHING
        (transfer,) = await store.read(lambda unit: unit.box.outgoing(NOW + DAY, 1))
        assert transfer.message == internal(entry)
        await store.run(lambda unit: unit.box.settle(number))
        assert await _purge(store, NOW + DAY, keep) == Purged(contents=1, entries=1)

    async def test_a_conversation_ends_with_its_message(self, store: Store) -> None:
        entry = box_entry(application="trader", conversation_id="c-1")
        await store.run(lambda unit: _with(unit, entry, Event.ABANDON))
        await _purge(store, FINAL + 4 * DAY - TICK)
        found = await store.read(lambda unit: unit.box.find_conversation("trader", "c-1"))
        assert found is not None
        await _purge(store, FINAL + 4 * DAY)
        assert await store.read(lambda unit: unit.box.find_conversation("trader", "c-1")) is None
        other = box_entry(application="trader", conversation_id="c-1")
        assert await store.run(lambda unit: put(unit, other))

    async def test_a_round_removes_no_more_than_asked_for(self, store: Store) -> None:
        for _ in range(3):
            await store.run(_sent(Event.ABANDON))
            await store.run(_received(Event.CONFIRM))
        rounds = []
        at = NOW + 30 * DAY
        while (purged := await _purge(store, at, limit=4)) != NOTHING:
            rounds.append(purged)
        # Identifiers follow in the round in which nothing else of their message is left.
        assert rounds == [Purged(4, 4, 1), Purged(2, 2, 2)]

    async def test_every_kind_can_be_kept_for_no_time_at_all(self, store: Store) -> None:
        keep = Retention(*[timedelta(0)] * 5)
        entry = await store.run(_received(Event.CONFIRM))
        assert await _purge(store, FINAL, keep) == Purged(1, 1, 1)
        assert await _kept(store, entry) == (False, False)


async def _purge(store: Store, now: datetime, keep: Retention = KEEP, limit: int = 100) -> Purged:
    return await store.run(lambda unit: unit.box.purge(keep, now, limit))


async def _kept(store: Store, entry: BoxEntry) -> tuple[bool, bool]:
    """Are metadata and content still there?"""
    key = entry.delivery.side, entry.message_id

    def work(unit: UnitOfWork) -> tuple[bool, bool]:
        return unit.box.find(*key) is not None, unit.box.content(*key) is not None

    return await store.read(work)
