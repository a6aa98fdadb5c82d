"""503 cl. 11.1.4: ConfirmReceiveMessage."""

from __future__ import annotations

import pytest

from support.soap import SoapWorld, field, request


@pytest.fixture
async def world() -> SoapWorld:
    return SoapWorld()


async def filled(world: SoapWorld, *types: str) -> list[str]:
    sent = [
        await world.sender.sent(f"{number} {type_}".encode(), message_type=type_)
        for number, type_ in enumerate(types)
    ]
    await world.carry()
    return sent


@pytest.mark.req("503-11.1.4-a")
@pytest.mark.req("503-T36-a")
@pytest.mark.req("503-T37-a")
@pytest.mark.req("503-11.1.7-g")
async def test_a_confirmed_message_is_not_transferred_again(world: SoapWorld) -> None:
    first, second = await filled(world, "A01", "A01")
    answer = await world.recipient.confirm(first)
    assert answer.name == "ConfirmReceiveMessageResponse"
    assert [(str(child.tag), child.text) for child in answer.body] == [("messageID", first)]
    assert (await world.recipient.receive()).text("receivedMessage/messageID") == second
    await world.recipient.confirm(second)
    assert (await world.recipient.receive()).body.find("receivedMessage") is None
    await world.carry()
    for message_id in (first, second):
        status = await world.sender.check(message_id)
        assert status.text("messageStatus/state") == "RECEIVED"


async def test_a_lost_answer_does_no_harm_confirming_again_is_answered_alike(
    world: SoapWorld,
) -> None:
    (sent,) = await filled(world, "A01")
    for _ in range(2):
        assert (await world.recipient.confirm(sent)).text("messageID") == sent


@pytest.mark.req("503-11.1.4-b")
async def test_there_is_no_way_to_reject_a_message(world: SoapWorld) -> None:
    (sent,) = await filled(world, "A01")
    wsdl = await world.recipient.wsdl()
    names = {o.get("name") for o in wsdl.iter("{http://schemas.xmlsoap.org/wsdl/}operation")}
    assert "ConfirmReceiveMessage" in names
    assert len(names) == 5
    body = request("ConfirmReceiveMessage", field("messageID", sent), field("rejected", "true"))
    assert (await world.recipient.call(body)).error_code == "INVALID_PARAMETERS"
