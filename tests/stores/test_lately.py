"""Transfers that were enqueued lately: not read again, and never found but as the database has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gridpost.core.message import Entry, InternalMessage, Processor, ValueType
from gridpost.core.message_box import Outgoing
from gridpost.core.ports import UnitOfWork
from gridpost.stores.sqlite import SqliteStore
from gridpost.stores.sqlite.lately import LatelyEnqueued
from support.boxed import EXPIRY, ROUTE, acknowledgement, box_entry, internal, put
from support.builders import NOW

ENTRY = box_entry()
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(tmp_path, "E1")
    yield store
    await store.close()


def _enqueue(unit: UnitOfWork, content: bytes = b"clear") -> int:
    put(unit, ENTRY, content)
    return unit.box.enqueue(internal(ENTRY, content), ROUTE, EXPIRY, 3)


async def _due(store: SqliteStore) -> list[Outgoing]:
    return list(await store.read(lambda unit: unit.box.outgoing(NOW, 10)))


async def test_what_was_enqueued_lately_is_given_as_it_was_handed_in(store: SqliteStore) -> None:
    message = internal(ENTRY, b"clear")

    def work(unit: UnitOfWork) -> int:
        put(unit, ENTRY, b"clear")
        return unit.box.enqueue(message, ROUTE, EXPIRY, 3)

    number = await store.run(work)
    (found,) = await _due(store)
    assert found == Outgoing(number, message, ROUTE, EXPIRY, 3)
    assert found.message is message


async def test_what_was_not_committed_is_not_found(store: SqliteStore) -> None:
    def fails(unit: UnitOfWork) -> None:
        _enqueue(unit)
        raise ValueError("after the change")

    with pytest.raises(ValueError, match="after the change"):
        await store.run(fails)
    assert await _due(store) == []

    other = acknowledgement(ENTRY.metadata)
    # SQLite gives the number again that was rolled back.
    number = await store.run(lambda unit: unit.box.enqueue(other, ROUTE, EXPIRY))
    assert await _due(store) == [Outgoing(number, other, ROUTE, EXPIRY)]


async def test_a_postponed_transfer_is_given_with_its_attempts(store: SqliteStore) -> None:
    number = await store.run(_enqueue)
    await store.run(lambda unit: unit.box.postpone(number, NOW + MINUTE))
    assert await _due(store) == []
    (found,) = await store.read(lambda unit: unit.box.outgoing(NOW + MINUTE, 10))
    assert (found.attempts, found.due_at) == (1, NOW + MINUTE)
    await store.run(lambda unit: unit.box.hasten(ROUTE))
    (found,) = await _due(store)
    assert (found.attempts, found.due_at) == (1, None)


async def test_a_transfer_is_given_with_the_signature_that_came_later(store: SqliteStore) -> None:
    await store.run(_enqueue)
    signature = Processor("signature", (Entry("value", ValueType.STRING, "<s/>"),))
    signed = replace(ENTRY.metadata, processors=(signature,))
    await store.run(lambda unit: unit.box.sign(signed))
    (found,) = await _due(store)
    assert found.message == InternalMessage(signed, b"clear")


async def test_a_settled_or_stopped_transfer_is_not_given_again(store: SqliteStore) -> None:
    number = await store.run(_enqueue)
    await store.run(lambda unit: unit.box.settle(number))
    assert await _due(store) == []
    await store.run(lambda unit: unit.box.enqueue(internal(ENTRY, b"clear"), ROUTE, EXPIRY))
    await store.run(lambda unit: unit.box.stop_transfer(ENTRY.message_id))
    assert await _due(store) == []


def test_few_and_small_ones_are_remembered() -> None:
    lately = LatelyEnqueued()
    for number in range(2_000):
        lately.add(Outgoing(number, internal(ENTRY, b"small"), ROUTE, EXPIRY))
    lately.add(Outgoing(2_000, internal(ENTRY, bytes(100_000)), ROUTE, EXPIRY))
    lately.committed()
    found = [number for number in range(2_001) if lately.find(number) is not None]
    assert found == list(range(1_488, 2_000))
