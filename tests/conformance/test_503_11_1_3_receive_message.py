"""503 cl. 11.1.3 and 11.1.4: an application fetches documents; each comes again until it is confirmed."""

from __future__ import annotations

import pytest

from gridpost.core.channels import Binding, Bindings, Receiving
from gridpost.core.identifiers import MessageTypePattern
from gridpost.services.endpoint.context import EndpointSettings
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


@pytest.mark.req("503-T32-a")
@pytest.mark.parametrize("message_type", ["*", "A*", "A_1", ""])
async def test_a_request_names_one_message_type(world: SoapWorld, message_type: str) -> None:
    answer = await world.recipient.receive(message_type)
    assert answer.error_code == "INVALID_PARAMETERS"
    assert answer.error_fields["messageType"] == message_type


@pytest.mark.req("503-T32-a")
async def test_hyphens_are_allowed_unless_patterns_are_strict(world: SoapWorld) -> None:
    assert (await world.recipient.receive("BP1-A")).status == 200
    strict = SoapWorld(settings=EndpointSettings(strict_patterns=True))
    assert (await strict.recipient.receive("BP1-A")).error_code == "INVALID_PARAMETERS"


@pytest.mark.req("503-T32-a")
@pytest.mark.req("503-T32-b")
async def test_the_first_message_of_exactly_the_type_is_returned(world: SoapWorld) -> None:
    first, second, _ = await filled(world, "A", "B", "A")
    assert (await world.recipient.receive("A")).text("receivedMessage/messageID") == first
    assert (await world.recipient.receive("B")).text("receivedMessage/messageID") == second
    nothing = await world.recipient.receive("C")
    assert nothing.body.find("receivedMessage") is None


@pytest.mark.req("503-T32-c")
@pytest.mark.req("503-T34-a")
@pytest.mark.req("503-11.1.7-e")
@pytest.mark.req("503-11.1.7-f")
@pytest.mark.parametrize("yes", ["true", "1"])
@pytest.mark.parametrize("no", ["false", "0"])
async def test_the_document_comes_when_it_is_asked_for(world: SoapWorld, yes: str, no: str) -> None:
    await filled(world, "A01")
    full = await world.recipient.receive(download=yes)
    assert full.content == b"0 A01"
    bare = await world.recipient.receive(download=no)
    (message,) = bare.body.findall("receivedMessage")
    assert [str(child.tag) for child in message] == [
        "messageID",
        "receiverCode",
        "senderCode",
        "messageType",
        "content",
    ]
    assert message.find("content").text is None  # type: ignore[union-attr]
    for name in ("messageID", "receiverCode", "senderCode", "messageType"):
        assert bare.text(f"receivedMessage/{name}") == full.text(f"receivedMessage/{name}")


@pytest.mark.req("503-T33-a")
@pytest.mark.req("503-T33-b")
async def test_what_remains_is_counted_without_the_document_that_comes_along(
    world: SoapWorld,
) -> None:
    sent = await filled(world, "A01", "B", "A01", "B", "A01")
    assert (await world.recipient.receive(download="false")).text("remainingMessagesCount") == "3"
    assert (await world.recipient.receive()).text("remainingMessagesCount") == "2"
    for message_id in (sent[0], sent[2], sent[4]):
        await world.recipient.confirm(message_id)
    assert (await world.recipient.receive()).text("remainingMessagesCount") == "0"


@pytest.mark.req("503-11.1.3-a")
@pytest.mark.req("503-11.1.3-b")
async def test_an_unconfirmed_message_comes_again_under_its_own_id(world: SoapWorld) -> None:
    first, _ = await filled(world, "A01", "A01")
    answers = [await world.recipient.receive() for _ in range(3)]
    assert {a.text("receivedMessage/messageID") for a in answers} == {first}
    assert {a.content for a in answers} == {b"0 A01"}


async def test_a_user_gets_counts_and_confirms_only_what_is_bound_to_it() -> None:
    world = SoapWorld(
        bindings=Bindings(
            [
                Binding(MessageTypePattern("A01"), Receiving.PULL, ("other",)),
                Binding(MessageTypePattern("B*"), Receiving.FOLDER),
            ]
        )
    )
    first, second = await filled(world, "A01", "B")
    for message_id, type_ in ((first, "A01"), (second, "B")):
        assert (await world.recipient.receive(type_)).error_code == "AUTHENTICATION_ERROR"
        assert (await world.recipient.confirm(message_id)).error_code == "AUTHENTICATION_ERROR"
    body = request("ReceiveMessage", field("messageType", "A01"), field("downloadMessage", "true"))
    answer = await world.recipient.call(body, user="other")
    assert answer.text("receivedMessage/messageID") == first
