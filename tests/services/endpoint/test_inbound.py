"""What arrives: accepted after the commit, rejected with a reason, given back when the fault is ours."""

from __future__ import annotations

from typing import Any

import pytest

from gridpost.core.delivery import Side, State
from gridpost.core.journal import RefusalRow
from gridpost.core.message_path import Route
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint import inbound as module
from gridpost.services.endpoint.arrival import Arrival
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.inbound import Inbound
from support.incoming import Delivery, messages
from support.post import BY_B1, World
from support.waiting import eventually


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


async def test_the_largest_document_that_may_be_sent_may_be_received() -> None:
    """Whatever is configured: what travels with a document does not count against it."""
    world = World(settings=EndpointSettings(max_content=66 * 1024 * 1024))
    document = bytes(66 * 1024 * 1024)
    message_id = await world["E1"].send("E2", document)
    await world.carry()
    assert await world["E1"].state(Side.SENT, message_id) is State.DELIVERED
