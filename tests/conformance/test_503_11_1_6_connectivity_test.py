"""503 cl. 11.1.6: an application tests the way to another endpoint."""

from __future__ import annotations

from datetime import timedelta

import pytest

from support.soap import VERSIONS, SoapWorld, field, request


async def try_the_way(world: SoapWorld, version: str = "1.1") -> str:
    body = request("ConnectivityTest", field("receiverCode", "E2"), field("messageType", "A01"))
    answer = await world.sender.call(body, version)
    assert answer.name == "ConnectivityTestResponse"
    assert [str(child.tag) for child in answer.body] == ["messageID"]
    return answer.text("messageID") or ""


@pytest.mark.req("503-11.1.6-a")
@pytest.mark.req("503-5.12-a")
@pytest.mark.req("503-11.1.6-b")
@pytest.mark.req("503-T45-a")
@pytest.mark.req("503-T46-a")
@pytest.mark.req("503-11.1.7-k")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_reachable_endpoint_makes_the_test_delivered(version: str) -> None:
    world = SoapWorld()
    traced = await try_the_way(world, version)
    await world.carry()
    answer = await world.sender.check(traced)
    assert answer.text("messageStatus/messageID") == traced
    assert answer.text("messageStatus/state") == "DELIVERED"
    # No application ever receives it.
    assert (await world.recipient.receive()).text("remainingMessagesCount") == "0"
    assert (await world.recipient.confirm(traced)).error_code == "VALIDATION_ERROR"
    await world.carry()
    assert (await world.sender.check(traced)).text("messageStatus/state") == "DELIVERED"


@pytest.mark.req("503-11.1.6-b")
async def test_an_endpoint_that_is_away_leaves_it_accepted_until_it_expires() -> None:
    world = SoapWorld()
    world.post.bend = lambda carried: None
    traced = await try_the_way(world)
    await world.carry()
    assert (await world.sender.check(traced)).text("messageStatus/state") == "ACCEPTED"
    world.clock.advance(timedelta(days=2))
    await world.expire()
    assert (await world.sender.check(traced)).text("messageStatus/state") == "FAILED"
