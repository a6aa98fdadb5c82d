"""When transfers are made: woken by events, many at once, in order where that is configured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from gridpost.core.delivery import Event, Side, State
from gridpost.core.explanation import Actor
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.message import InternalType
from gridpost.core.ports import UnitOfWork
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.dispatch import DispatchLimits
from gridpost.services.endpoint.explaining import Explaining
from gridpost.wire.amqp.sections import split
from gridpost.wire.mades.amqp_message import read_fields
from support.dispatching import Courier, dispatching
from support.post import BY_B1, World
from support.waiting import eventually


async def test_a_message_leaves_as_soon_as_it_is_accepted() -> None:
    world, courier = World(), Courier()
    sender = world["E1"]
    async with dispatching(sender, courier):
        message_id = await sender.send("E2")
        await eventually(lambda: courier.ids == [message_id])
        async with asyncio.timeout(60):
            while await sender.state(Side.SENT, message_id) is not State.DELIVERING:
                await asyncio.sleep(0.005)


async def test_many_transfers_are_under_way_but_never_more_than_allowed() -> None:
    world, courier = World(), Courier()
    courier.open.clear()
    limits = DispatchLimits(under_way=5)
    async with dispatching(world["E1"], courier, limits=limits) as dispatcher:
        for _ in range(12):
            await world["E1"].send("E2")
        await eventually(lambda: dispatcher.under_way == 5)
        await asyncio.sleep(0.05)
        assert len(courier.given) == 5
        courier.open.set()
        await eventually(lambda: len(courier.given) == 12)
    assert courier.most == 5


@pytest.mark.parametrize("sizes", [(100, 2_450), (1_500, 1_500), (100, 100, 2_400)])
async def test_an_answer_that_ended_for_its_octets_is_followed_by_another_look(
    sizes: tuple[int, ...],
) -> None:
    """Nothing has ended yet that could wake the dispatcher."""
    world, courier = World(), Courier()
    courier.open.clear()
    for size in sizes:
        await world["E1"].send("E2", content=bytes(size))
    limits = DispatchLimits(bytes_under_way=2_500)
    async with dispatching(world["E1"], courier, limits=limits) as dispatcher:
        await eventually(lambda: dispatcher.under_way == len(sizes))
        courier.open.set()


async def test_one_look_at_the_queue_is_enough_for_what_is_due_and_when_more_will_be() -> None:
    world, courier = World(), Courier()
    sender = world["E1"]
    looks = 0
    read = sender.context.store.read

    async def counted(work: Callable[[UnitOfWork], object]) -> object:
        nonlocal looks
        looks += 1
        return await read(work)

    courier.open.clear()
    for _ in range(3):
        await sender.send("E2")
    sender.context.store.read = counted  # type: ignore[method-assign,assignment]
    async with dispatching(sender, courier) as dispatcher:
        await eventually(lambda: dispatcher.under_way == 3)
        await asyncio.sleep(0.05)
        assert looks == 1
        courier.open.set()


async def test_what_becomes_due_right_after_a_look_does_not_wait_for_something_else() -> None:
    world, courier = World(), Courier()
    sender = world["E1"]
    message_id = await sender.send("E2")
    now = world.clock.now()

    def postpone(work: UnitOfWork) -> None:
        (outgoing,) = work.box.outgoing(now, 10)
        work.box.postpone(outgoing.number, now + timedelta(seconds=10))

    await sender.context.store.run(postpone)
    read = sender.context.store.read

    async def later(work: Callable[[UnitOfWork], object]) -> object:
        found = await read(work)
        world.clock.advance(timedelta(seconds=20))
        return found

    sender.context.store.read = later  # type: ignore[method-assign,assignment]
    async with dispatching(sender, courier) as dispatcher:
        await eventually(lambda: courier.ids == [message_id])
        await eventually(lambda: dispatcher.under_way == 0)


@pytest.mark.req("503-5.8.1-c", component="endpoint")
async def test_what_was_settled_is_never_transferred_again() -> None:
    world, courier = World(), Courier()
    courier.open.clear()
    async with dispatching(world["E1"], courier) as dispatcher:
        message_id = await world["E1"].send("E2")
        await eventually(lambda: courier.ids == [message_id])
        waiting = await world["E1"].store.read(
            lambda work: work.box.outgoing(world.clock.now(), 10)
        )
        assert [o.message.metadata.message_id for o in waiting] == [message_id]
        courier.open.set()
        await eventually(lambda: dispatcher.under_way == 0)
        for _ in range(5):
            dispatcher.wake()
            await asyncio.sleep(0.01)
        assert courier.ids == [message_id]


async def test_a_failed_transfer_is_repeated_after_a_pause_and_traced() -> None:
    world, courier = World(), Courier()
    sender = world["E1"]
    message_id = await sender.send("E2")
    courier.refuse.add(message_id)
    async with dispatching(sender, courier) as dispatcher:
        await eventually(lambda: courier.ids == [message_id])
        await eventually(lambda: dispatcher.under_way == 0)
        courier.refuse.clear()
        await asyncio.sleep(0.02)
        world.clock.advance(timedelta(seconds=5))
        dispatcher.wake()
        await eventually(lambda: courier.ids == [message_id, message_id])
    events = [line.event for line in await sender.trace(message_id)]
    assert events[:3] == [Event.ACCEPT, Event.TRANSFER_FAILED, Event.TRANSFERRED]


async def test_a_transfer_that_breaks_by_a_bug_is_repeated_like_any_other() -> None:
    world, courier = World(), Courier()
    sender = world["E1"]
    message_id = await sender.send("E2")
    courier.broken.add(message_id)
    async with dispatching(sender, courier) as dispatcher:
        await eventually(lambda: courier.ids == [message_id])
        await eventually(lambda: dispatcher.under_way == 0)
        courier.broken.clear()
        async with asyncio.timeout(60):
            while Event.TRANSFER_FAILED not in [t.event for t in await sender.trace(message_id)]:
                await asyncio.sleep(0.01)
        world.clock.advance(timedelta(seconds=5))
        dispatcher.wake()
        await eventually(lambda: courier.ids == [message_id, message_id])
    _, failed, done, *_ = await sender.trace(message_id)
    assert done.event is Event.TRANSFERRED
    assert "ZeroDivisionError" in failed.detail


async def test_a_closed_route_is_left_alone_until_it_opens() -> None:
    world, courier = World(), Courier()
    closed = [BY_B1]
    async with dispatching(world["E1"], courier, closed=lambda: closed) as dispatcher:
        message_id = await world["E1"].send("E2")
        await asyncio.sleep(0.05)
        assert courier.given == []
        closed.clear()
        dispatcher.opened(BY_B1)
        await eventually(lambda: courier.ids == [message_id])


async def test_a_line_that_opens_makes_postponed_transfers_due() -> None:
    world, courier = World(), Courier()
    message_id = await world["E1"].send("E2")
    courier.refuse.add(message_id)
    async with dispatching(world["E1"], courier) as dispatcher:
        await eventually(lambda: courier.ids == [message_id])
        await eventually(lambda: dispatcher.under_way == 0)
        await asyncio.sleep(0.02)
        courier.refuse.clear()
        dispatcher.opened(BY_B1)
        await eventually(lambda: len(courier.ids) == 2)


ORDERED = EndpointSettings(ordered=(MessageTypePattern("FIFO"),))


async def test_explain_names_the_message_for_which_others_wait_and_who_must_act() -> None:
    world, courier = World(settings=ORDERED), Courier()
    sender = world["E1"]
    first, second, third = [await sender.send("E2", message_type="FIFO") for _ in range(3)]
    other = await sender.send("E2", message_type="FREE")
    courier.refuse |= {first, other}
    explaining = Explaining(sender.context, sender.enquiry, list)
    async with dispatching(sender, courier):
        await eventually(lambda: {first, other} <= set(courier.ids))

        async def told(message_id: str) -> tuple[str, str]:
            found = await explaining.explain(Side.SENT, message_id)
            return found.summary, found.actor

        async with asyncio.timeout(60):
            while "the post is closed" not in (await told(first))[0]:
                await asyncio.sleep(0.01)
        reason, actor = await told(first)
        assert actor == Actor.BROKER
        for message_id in (second, third):
            assert await told(message_id) == (f"keeps its order behind {first}: {reason}", actor)
        # One that keeps no order waits for nobody.
        assert first not in (await told(other))[0]


async def test_an_orderly_stop_waits_for_outcomes() -> None:
    world, courier = World(), Courier()
    sender = world["E1"]
    courier.open.clear()
    async with dispatching(sender, courier):
        message_id = await sender.send("E2")
        await eventually(lambda: courier.ids == [message_id])
        asyncio.get_running_loop().call_later(0.05, courier.open.set)
    assert await sender.state(Side.SENT, message_id) is State.DELIVERING


async def test_acknowledgements_are_dispatched_like_messages() -> None:
    world, courier = World(), Courier()
    message_id = await world["E1"].send("E2")
    async with dispatching(world["E2"], courier):
        await world["E1"].transfer.round()
        await eventually(lambda: len(courier.given) == 1)
        fields = read_fields(split(courier.given[0][1]))
        assert fields.internal_type is InternalType.DELIVERY_ACKNOWLEDGEMENT
        await world["E2"].handover.confirm(message_id)
        await eventually(lambda: len(courier.given) == 2)
