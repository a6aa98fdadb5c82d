"""What arrives: accepted after the commit, rejected with a reason, given back when the fault is ours."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gridpost.core.delivery import Side, State
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.journal import RefusalRow
from gridpost.core.message_path import Route
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint import inbound as module
from gridpost.services.endpoint.arrival import Arrival
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.inbound import Inbound
from support.post import BY_B1, World
from support.waiting import eventually


class Delivery:
    def __init__(self, message: bytes) -> None:
        self.message = message
        self.context: Any = None
        self.transaction = None
        self.presettled = False
        self.outcome = ""
        self.refusal: Refusal | None = None

    def accept(self) -> None:
        self.outcome = "accepted"

    def reject(self, refusal: Refusal) -> None:
        self.outcome, self.refusal = "rejected", refusal

    def release(self) -> None:
        self.outcome = "released"

    def modify(self, *, failed: bool, undeliverable_here: bool = False) -> None:
        self.outcome = "modified"


async def messages(world: World, count: int, message_type: str = "BP1-A") -> list[bytes]:
    """What E1 would transfer to E2."""
    caught: list[bytes] = []
    world.post.bend = lambda carried: caught.append(carried.data)  # type: ignore[func-returns-value]
    for number in range(count):
        await world["E1"].send("E2", b"%d" % number, message_type)
    await world["E1"].transfer.round()
    return caught


@pytest.mark.req("503-5.8.1-a", component="endpoint")
async def test_a_message_is_accepted_only_when_it_is_stored() -> None:
    world = World()
    (data,) = await messages(world, 1)
    one = world["E2"]
    stored: list[int] = []
    delivery = Delivery(data)
    original = one.store.run

    async def run(work: Any) -> Any:
        assert delivery.outcome == ""
        result = await original(work)
        stored.append(1)
        return result

    one.store.run = run  # type: ignore[method-assign]
    Inbound(one.context, Arrival(one.context)).take(delivery, BY_B1)
    await eventually(lambda: delivery.outcome == "accepted")
    assert stored


@pytest.mark.req("503-5.8.1-e", component="endpoint")
@pytest.mark.req("503-5.8.3-c")
async def test_a_repeated_message_is_accepted_and_offered_once() -> None:
    world = World()
    (data,) = await messages(world, 1)
    one = world["E2"]
    inbound = Inbound(one.context, Arrival(one.context))
    deliveries = [Delivery(data) for _ in range(3)]
    for delivery in deliveries:
        inbound.take(delivery, BY_B1)
    await eventually(lambda: all(d.outcome == "accepted" for d in deliveries))
    assert (await one.handover.receive("BP1-A")).remaining == 0


async def test_what_cannot_even_be_answered_is_rejected_and_journalled() -> None:
    world = World()
    one = world["E2"]
    delivery = Delivery(b"\x00\x53\x77\xa1\x02hi")
    Inbound(one.context, Arrival(one.context)).take(delivery, BY_B1)
    await eventually(lambda: delivery.outcome == "rejected")
    assert delivery.refusal is not None
    rows = [row for row in await one.journal() if isinstance(row, RefusalRow)]
    assert [row.refusal_id for row in rows] == [delivery.refusal.id]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Refusal(Rule.STORE_FULL, "the disk is full"), "released"),
        (KeyError("a bug"), "modified"),
    ],
)
async def test_a_fault_of_ours_leaves_the_message_with_its_sender(
    monkeypatch: pytest.MonkeyPatch, error: Exception, outcome: str
) -> None:
    monkeypatch.setattr(module, "_GIVE_BACK_SECONDS", 0.01)
    world = World()
    (data,) = await messages(world, 1)

    class Broken:
        async def arrive(self, data: bytes, came_by: Route) -> None:
            raise error

    delivery = Delivery(data)
    Inbound(world["E2"].context, Broken()).take(delivery, BY_B1)  # type: ignore[arg-type]
    await eventually(lambda: delivery.outcome == outcome)


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


async def test_the_largest_document_that_may_be_sent_may_be_received() -> None:
    """Whatever is configured: what travels with a document does not count against it."""
    world = World(settings=EndpointSettings(max_content=66 * 1024 * 1024))
    document = bytes(66 * 1024 * 1024)
    message_id = await world["E1"].send("E2", document)
    await world.carry()
    assert await world["E1"].state(Side.SENT, message_id) is State.DELIVERED
