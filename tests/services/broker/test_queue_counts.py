"""What `gridpost broker queues` counts is what the store holds, whatever became of messages."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from gridpost.core.identifiers import ComponentCode
from gridpost.core.queues import Hold
from gridpost.core.synchronisation import Directory
from gridpost.services.broker.broker import Broker
from gridpost.services.broker.context import BrokerContext
from gridpost.services.broker.metrics import BrokerMetrics
from gridpost.services.broker.settings import BrokerSettings
from gridpost.stores.memory.queues import MemoryQueueStore
from support.queues import NOW, SetClock, commit, put, queued, row


def broker_of(store: MemoryQueueStore, clock: SetClock, **settings: Any) -> Broker:
    return Broker(
        BrokerContext(
            BrokerSettings(ComponentCode("B1"), **settings),
            clock,
            store,
            BrokerMetrics(CollectorRegistry()),
            lambda: Directory(),
            lambda: (),
        )
    )


async def counted(broker: Broker, store: MemoryQueueStore) -> tuple[int, int, int]:
    """Messages, octets and messages on hold; the store says the same."""
    (view,) = broker.view()
    (state,) = await store.queues()
    found = (view.depth, view.octets, view.held)
    assert found == (state.depth, state.octets, state.held)
    return found


async def test_messages_that_expire_behind_the_window_take_their_octets_along() -> None:
    clock = SetClock()
    store = MemoryQueueStore("B1", clock)
    await commit(store, put(message=queued(b"one", expires=timedelta(minutes=1))))
    await commit(store, put(message=queued(b"three", expires=timedelta(hours=3))))
    broker = broker_of(store, clock)
    await broker.open()
    assert await counted(broker, store) == (2, 8, 0)
    clock.at = NOW + timedelta(hours=1)
    assert await broker.queues.drop_expired() == 1
    assert await counted(broker, store) == (1, 5, 0)


async def test_messages_that_come_off_hold_bring_their_octets_along() -> None:
    clock = SetClock()
    store = MemoryQueueStore("B1", clock)
    one = put(message=queued(b"held"))
    await commit(store, one)
    await commit(store, Hold("E2", one.message, "unreadable", row()))
    broker = broker_of(store, clock)
    await broker.open()
    assert await counted(broker, store) == (0, 0, 1)
    assert await broker.queues.release("E2") == 1
    assert await counted(broker, store) == (1, 4, 0)
    await asyncio.sleep(0)
