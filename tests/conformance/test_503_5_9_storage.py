"""503 cl. 5.9 and Table 2: what an endpoint keeps of a message after its final state, and how long.

That storage is safe is proven where it is hardest: see tests/stores/test_crash.py and
tests/stores/test_durability.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gridpost.core.delivery import Event, Side, State, Status
from gridpost.core.message import InternalType
from gridpost.core.message_box import BoxEntry, Retention
from gridpost.core.ports import Store, UnitOfWork
from gridpost.stores.sqlite import SqliteStore
from support.boxed import DAY, EXPIRY, HOUR, box_entry, happen, put
from support.builders import NOW

TICK = timedelta(microseconds=1)
LATER = NOW + HOUR / 2


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = SqliteStore.open(tmp_path, "E1")
    yield store
    await store.close()


async def _message(store: Store, entry: BoxEntry, *events: tuple[Event, datetime]) -> BoxEntry:
    def work(unit: UnitOfWork) -> None:
        put(unit, entry)
        for event, at in events:
            happen(unit, entry, event, at)

    await store.run(work)
    return entry


async def _kept(store: Store, retention: Retention, now: datetime, entry: BoxEntry) -> set[str]:
    """What is left of a message after the housekeeping of `now`."""
    key = entry.delivery.side, entry.message_id

    def work(unit: UnitOfWork) -> set[str]:
        unit.box.purge(retention, now, 1_000)
        kept = {
            "metadata": unit.box.find(*key) is not None,
            "content": unit.box.content(*key) is not None,
        }
        return {name for name, there in kept.items() if there}

    return await store.run(work)


BOTH = {"metadata", "content"}
AT_ONCE = Retention(*[timedelta(0)] * 5)


@pytest.mark.req("503-5.9-g")
@pytest.mark.parametrize("days", [(1, 2, 3, 4), (4, 3, 2, 1), (0, 5, 0, 5), (5, 0, 5, 0)])
async def test_an_administrator_decides_what_is_kept_and_for_how_long(
    store: Store, days: tuple[int, ...]
) -> None:
    sent_metadata, sent_content, received_metadata, received_content = (d * DAY for d in days)
    retention = Retention(
        sent_metadata=sent_metadata,
        sent_content=sent_content,
        received_metadata=received_metadata,
        received_content=received_content,
        received_ids=9 * DAY,
    )
    sent = await _message(store, box_entry(), (Event.FAILURE_ACKNOWLEDGED, LATER))
    received = await _message(store, box_entry(Side.RECEIVED), (Event.CONFIRM, LATER))
    open_ones = [await _message(store, box_entry(side, expires=NOW + 999 * DAY)) for side in Side]
    limits = [
        (sent, "metadata", sent_metadata),
        (sent, "content", sent_content),
        (received, "metadata", received_metadata),
        (received, "content", received_content),
    ]
    for ends in sorted({kept_for for *_, kept_for in limits}):
        for at in (LATER + ends - TICK, LATER + ends):
            for entry, what, kept_for in limits:
                kept = what in await _kept(store, retention, at, entry)
                assert kept == (at < LATER + kept_for), (what, at)
    for entry in open_ones:
        assert await _kept(store, retention, NOW + 998 * DAY, entry) == BOTH


@pytest.mark.req("503-5.9-f")
async def test_a_received_id_is_remembered_after_its_message_was_handed_over(
    tmp_path: Path, store: Store
) -> None:
    retention = Retention(received_metadata=DAY, received_content=DAY, received_ids=30 * DAY)
    entry = await _message(
        store, box_entry(Side.RECEIVED, message_type="A"), (Event.CONFIRM, LATER)
    )
    for now, left in ((LATER, BOTH), (LATER + DAY, set()), (LATER + 30 * DAY - TICK, set())):
        assert await _kept(store, retention, now, entry) == left
        await store.close()
        store = SqliteStore.open(tmp_path, "E1")
        # The duplicate is recognised, and no application is offered it.
        assert not await store.run(lambda unit: put(unit, entry))
        assert await store.read(lambda unit: unit.box.waiting("A", NOW, 10)) == []
    await store.close()


@pytest.mark.req("503-T2-a")
@pytest.mark.parametrize(
    ("status", "events"),
    [
        (Status.RECEIVED, [Event.DELIVERY_ACKNOWLEDGED, Event.RECEIVE_ACKNOWLEDGED]),
        (Status.FAILED, [Event.FAILURE_ACKNOWLEDGED]),
    ],
)
async def test_a_sent_message_is_final_when_it_is_received_or_failed(
    store: Store, status: Status, events: list[Event]
) -> None:
    retention = Retention(sent_metadata=DAY, sent_content=DAY)
    entry = await _message(store, box_entry(), *((event, LATER) for event in events))
    found = await store.read(lambda unit: unit.box.find(Side.SENT, entry.message_id))
    assert found is not None
    assert found.delivery.status is status
    assert await _kept(store, retention, LATER + DAY - TICK, entry) == BOTH
    assert await _kept(store, retention, LATER + DAY, entry) == set()


@pytest.mark.req("503-T2-a")
@pytest.mark.parametrize(
    "events", [[], [Event.TRANSFERRED], [Event.TRANSFERRED, Event.DELIVERY_ACKNOWLEDGED]]
)
async def test_an_accepted_or_delivered_message_is_not_final(
    store: Store, events: list[Event]
) -> None:
    entry = await _message(store, box_entry(), *((event, LATER) for event in events))
    assert await _kept(store, AT_ONCE, EXPIRY - TICK, entry) == BOTH


@pytest.mark.req("503-T2-b")
@pytest.mark.parametrize(
    ("state", "kind", "events", "final"),
    [
        (State.CONFIRMED, InternalType.STANDARD_MESSAGE, [(Event.CONFIRM, LATER)], LATER),
        (State.REFUSED, InternalType.STANDARD_MESSAGE, [(Event.REFUSE, LATER)], LATER),
        (State.TRACE_ANSWERED, InternalType.TRACING_MESSAGE, [], NOW),
        (State.EXPIRED, InternalType.STANDARD_MESSAGE, [(Event.EXPIRE, EXPIRY)], EXPIRY),
    ],
)
async def test_a_received_message_is_final_when_it_was_answered_or_expired(
    store: Store,
    state: State,
    kind: InternalType,
    events: list[tuple[Event, datetime]],
    final: datetime,
) -> None:
    retention = Retention(received_metadata=DAY, received_content=DAY, received_ids=DAY)
    entry = await _message(store, box_entry(Side.RECEIVED, internal_type=kind), *events)
    found = await store.read(lambda unit: unit.box.find(Side.RECEIVED, entry.message_id))
    assert found is not None
    assert found.delivery.state is state
    assert await _kept(store, retention, final + DAY - TICK, entry) == BOTH
    assert await _kept(store, retention, final + DAY, entry) == set()


@pytest.mark.req("503-T2-b")
async def test_a_message_that_no_application_confirmed_is_not_final(store: Store) -> None:
    entry = await _message(store, box_entry(Side.RECEIVED))
    assert await _kept(store, AT_ONCE, EXPIRY - TICK, entry) == BOTH
