"""503 cl. 5.11: messages need not keep their order, unless it is configured."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from gridpost.core.delivery import Side
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.message_path import Route
from gridpost.services.endpoint.arrival import Arrival
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.inbound import Inbound
from support.dispatching import Courier, dispatching
from support.incoming import Delivery, messages
from support.post import BY_B1, World
from support.waiting import eventually

ORDERED = EndpointSettings(ordered=(MessageTypePattern("FIFO"),))


async def test_a_type_that_keeps_its_order_has_one_transfer_under_way_per_recipient() -> None:
    world, courier = World(settings=ORDERED, codes=("E1", "E2", "E3")), Courier()
    courier.open.clear()
    first = [await world["E1"].send("E2", message_type="FIFO") for _ in range(3)]
    other = await world["E1"].send("E3", message_type="FIFO")
    free = await world["E1"].send("E2", message_type="FREE")
    async with dispatching(world["E1"], courier):
        await eventually(lambda: len(courier.ids) == 3)
        await asyncio.sleep(0.02)
        assert set(courier.ids) == {first[0], other, free}
        courier.open.set()
        await eventually(lambda: len(courier.ids) == 5)
    assert [i for i in courier.ids if i in first] == first


async def test_nothing_overtakes_one_that_waits_for_its_next_attempt() -> None:
    world, courier = World(settings=ORDERED), Courier()
    first, second = [await world["E1"].send("E2", message_type="FIFO") for _ in range(2)]
    courier.refuse.add(first)
    async with dispatching(world["E1"], courier) as dispatcher:
        await eventually(lambda: courier.ids == [first])
        await asyncio.sleep(0.05)
        assert courier.ids == [first]
        courier.refuse.clear()
        world.clock.advance(timedelta(seconds=5))
        dispatcher.wake()
        await eventually(lambda: courier.ids == [first, first, second])


async def test_one_that_has_gone_does_not_hold_up_those_behind_it() -> None:
    world, courier = World(settings=ORDERED), Courier()
    sender = world["E1"]
    first, second = [await sender.send("E2", message_type="FIFO") for _ in range(2)]
    courier.refuse.add(first)
    async with dispatching(sender, courier) as dispatcher:
        await eventually(lambda: courier.ids == [first])
        await eventually(lambda: dispatcher.under_way == 0)
        await asyncio.sleep(0.02)
        await sender.store.run(lambda work: work.box.stop_transfer(first))
        world.clock.advance(timedelta(seconds=5))
        dispatcher.wake()
        await eventually(lambda: courier.ids == [first, second])


async def test_a_type_that_keeps_its_order_does_so_on_arrival() -> None:
    world = World(settings=EndpointSettings(ordered=(MessageTypePattern("FIFO"),)))
    datas = await messages(world, 8, "FIFO")
    one = world["E2"]
    arrival = Arrival(one.context)
    real = arrival.arrive
    turn = 0

    async def slower_first(data: bytes, came_by: Route) -> None:
        nonlocal turn
        turn += 1
        await asyncio.sleep(0.02 / turn)
        await real(data, came_by)

    arrival.arrive = slower_first  # type: ignore[method-assign]
    inbound = Inbound(one.context, arrival)
    for data in datas:
        inbound.take(Delivery(data), BY_B1)
    await eventually(lambda: inbound.under_way == 0)
    waiting = await one.store.read(lambda work: work.box.waiting("FIFO", world.clock.now(), 10))
    contents = [
        await one.store.read(lambda work, e=entry: work.box.content(Side.RECEIVED, e.message_id))
        for entry in waiting
    ]
    assert contents == [b"%d" % number for number in range(8)]
