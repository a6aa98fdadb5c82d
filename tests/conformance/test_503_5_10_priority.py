"""503 cl. 5.10: a message-type of higher priority goes first."""

from __future__ import annotations

import pytest

from gridpost.core.identifiers import MessageTypePattern
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.dispatch import DispatchLimits
from support.dispatching import Courier, dispatching
from support.post import World
from support.waiting import eventually


@pytest.mark.req("503-5.10-a")
@pytest.mark.req("503-5.10-b", component="endpoint")
@pytest.mark.req("m11-3.13-a", component="endpoint")
@pytest.mark.req("m11-3.13-b", component="endpoint")
async def test_a_message_type_of_higher_priority_goes_first() -> None:
    urgent = EndpointSettings(priorities={MessageTypePattern("URGENT*"): 9})
    world, courier = World(settings=urgent), Courier()
    slow = [await world["E1"].send("E2") for _ in range(3)]
    fast = await world["E1"].send("E2", message_type="URGENT-A")
    async with dispatching(world["E1"], courier, limits=DispatchLimits(under_way=1)):
        await eventually(lambda: len(courier.ids) == 4)
    assert courier.ids == [fast, *slow]
