"""503 cl. 11.1.2: an application hands a document in, and may do so again without sending it twice."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from uuid import UUID

import pytest

from gridpost.client import requests as client_requests
from gridpost.services.endpoint.context import EndpointSettings
from support.soap import NS, VERSIONS, SoapWorld, field, request, send_request

NIL = 'xsi:nil="true"'


@pytest.fixture
def world() -> SoapWorld:
    return SoapWorld()


@pytest.mark.req("503-T28-a")
@pytest.mark.req("503-11.1.7-c")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_request_holds_a_message_and_perhaps_a_conversation(
    world: SoapWorld, version: str
) -> None:
    without = await world.sender.call(
        request("SendMessage", field("conversationID", "c-1")), version
    )
    assert without.error_code == "INVALID_PARAMETERS"
    answer = await world.sender.call(send_request(), version)
    assert answer.name == "SendMessageResponse"
    assert [str(child.tag) for child in answer.body] == ["messageID"]
    UUID(answer.text("messageID"))


@pytest.mark.req("503-11.1.7-c")
async def test_a_nil_conversation_is_none(world: SoapWorld) -> None:
    body = send_request(conversation="").replace("<conversationID>", f"<conversationID {NIL}>")
    ids = {(await world.sender.call(body)).text("messageID") for _ in range(2)}
    assert len(ids) == 2


@pytest.mark.req("503-11.1.2-a")
async def test_a_repeated_conversation_is_answered_alike_and_sent_once(world: SoapWorld) -> None:
    body = send_request(conversation="App7 4711")
    first = (await world.sender.call(body)).text("messageID")
    together = await asyncio.gather(*(world.sender.call(body) for _ in range(5)))
    assert {answer.text("messageID") for answer in together} == {first}
    await world.carry()
    assert (await world.sender.call(body)).text("messageID") == first
    assert (await world.recipient.receive(download="false")).text("remainingMessagesCount") == "1"
    assert await world.sender.stored() == 1


@pytest.mark.req("503-11.1.2-a")
async def test_conversations_that_begin_together_are_one(world: SoapWorld) -> None:
    body = send_request(conversation="new")
    together = await asyncio.gather(*(world.sender.call(body) for _ in range(5)))
    assert len({answer.text("messageID") for answer in together}) == 1
    assert await world.sender.stored() == 1


async def test_another_document_in_the_same_conversation_is_refused(world: SoapWorld) -> None:
    await world.sender.sent(b"one", conversation="c-1")
    for body in (
        send_request(b"two", conversation="c-1"),
        send_request(b"one", conversation="c-1", message_type="A02"),
        send_request(b"one", conversation="c-1", ba_id="7"),
    ):
        assert (await world.sender.call(body)).error_code == "VALIDATION_ERROR"
    assert await world.sender.stored() == 1
    # The scope is one application.
    other = await world.sender.call(send_request(b"two", conversation="c-1"), user="other")
    assert other.status == 200


@pytest.mark.req("503-T29-a")
@pytest.mark.parametrize("code", ["", "a b", "a_b", "a/b", " E2"])
async def test_a_receiver_code_follows_its_pattern(world: SoapWorld, code: str) -> None:
    answer = await world.sender.call(send_request(receiver=code))
    assert answer.error_code == "INVALID_PARAMETERS"
    assert answer.error_fields["receiverCode"] == code


@pytest.mark.req("503-T29-a")
async def test_letters_digits_hyphen_and_at_make_a_receiver_code() -> None:
    world = SoapWorld(codes=("E1", "E2", "10X-A@B"))
    await world.sender.sent(receiver="10X-A@B")


@pytest.mark.req("503-T29-b")
@pytest.mark.req("503-T29-c")
async def test_types_and_application_ids_may_hold_hyphens_unless_patterns_are_strict() -> None:
    strict = SoapWorld(settings=EndpointSettings(strict_patterns=True))
    for more in ({"message_type": "BP1-A"}, {"ba_id": "A-1"}, {"application": "A-1"}):
        await SoapWorld().sender.sent(**more)
        assert (await strict.sender.call(send_request(**more))).error_code == "INVALID_PARAMETERS"


@pytest.mark.req("503-T29-b")
@pytest.mark.req("503-T29-c")
@pytest.mark.parametrize(
    "more",
    [
        {"message_type": "BP1_A"},
        {"message_type": "BP*"},
        {"message_type": ""},
        {"ba_id": "A_1"},
        {"application": "A 1"},
    ],
)
async def test_other_characters_are_invalid_parameters(
    world: SoapWorld, more: dict[str, str]
) -> None:
    assert (await world.sender.call(send_request(**more))).error_code == "INVALID_PARAMETERS"


@pytest.mark.req("503-T29-d")
@pytest.mark.req("503-T34-a")
@pytest.mark.req("503-T40-a")
async def test_what_the_sender_says_of_a_document_reaches_the_recipient(world: SoapWorld) -> None:
    sent = await world.sender.sent(b"one", application="App7", ba_id="4711")
    plain = await world.sender.sent(b"two")
    empty = await world.sender.sent(b"three", application="", ba_id="")
    await world.carry()
    names = ("messageID", "receiverCode", "senderCode", "messageType")
    for message_id, application, ba_id in (
        (sent, "App7", "4711"),
        (plain, None, None),
        (empty, None, None),
    ):
        answer = await world.recipient.receive()
        status = await world.sender.check(message_id)
        for found, prefix in ((answer, "receivedMessage/"), (status, "messageStatus/")):
            told = [found.text(prefix + name) for name in names]
            assert told == [message_id, "E2", "E1", "A01"]
            assert found.text(prefix + "senderApplication") == application
            assert found.text(prefix + "baMessageID") == ba_id
        await world.recipient.confirm(message_id)


@pytest.mark.req("503-T29-e")
@pytest.mark.parametrize(
    "document",
    [os.urandom(100_001), b"PK\x03\x04\x00", b"\xef\xbb\xbf<?xml version='1.0'?><a/>", b"\0"],
    ids=["random", "zip", "bom", "zero"],
)
async def test_a_document_is_bytes(world: SoapWorld, document: bytes) -> None:
    await world.sender.sent(document)
    await world.carry()
    assert (await world.recipient.receive()).content == document


@pytest.mark.req("503-T29-e")
@pytest.mark.req("503-11.1.7-d")
async def test_content_is_required_and_not_empty(world: SoapWorld) -> None:
    missing = send_request().replace(field("content", b64encode(b"document").decode()), "")
    for body in (
        missing,
        send_request(b""),
        send_request().replace("ZG9j", "\n \n").replace("dW1lbnQ=", ""),
    ):
        assert (await world.sender.call(body)).error_code == "INVALID_PARAMETERS"
    assert await world.sender.stored() == 0


@pytest.mark.req("503-11.1.7-d")
async def test_elements_stand_in_the_order_of_the_schema(world: SoapWorld) -> None:
    content = field("content", b64encode(b"document").decode())
    codes = field("receiverCode", "E2"), field("messageType", "A01")
    names = field("senderApplication", "App7"), field("baMessageID", "4711")
    good = request("SendMessage", "<message>", *codes, content, *names, "</message>")
    assert (await world.sender.call(good)).status == 200
    # The order in which Table 29 lists them.
    table = request("SendMessage", "<message>", *codes, *reversed(names), content, "</message>")
    assert (await world.sender.call(table)).error_code == "INVALID_PARAMETERS"
    assert await world.sender.stored() == 1


@pytest.mark.req("503-11.1.7-b")
async def test_local_elements_stand_in_no_namespace(world: SoapWorld) -> None:
    qualified = send_request().replace(
        "<m:SendMessageRequest", f'<m:SendMessageRequest xmlns="{NS}"'
    )
    assert (await world.sender.call(qualified)).error_code == "INVALID_PARAMETERS"
    answer = await world.sender.call(send_request())
    assert [str(child.tag) for child in answer.body] == ["messageID"]


@pytest.mark.req("503-11.1.2-b")
@pytest.mark.parametrize(
    ("application", "ba_id", "key", "said"),
    [
        ("App7", "4711", None, "App74711"),
        ("App7", "", None, None),
        ("", "4711", None, None),
        ("App7", "4711", "", None),
        ("App7", "4711", "any §tring", "any §tring"),
    ],
)
def test_our_own_client_builds_the_recommended_conversation(
    application: str, ba_id: str, key: str | None, said: str | None
) -> None:
    call = client_requests.send("E2", "A01", b"x", ba_id, application, "", key)
    assert call.headers.get("idempotency-key") == said


@pytest.mark.req("503-11.1.2-b")
async def test_any_string_is_a_conversation(world: SoapWorld) -> None:
    for conversation in ("App7 4711", "§ & <€> 漢", "x" * 1000):
        first = await world.sender.sent(conversation=conversation)
        assert await world.sender.sent(conversation=conversation) == first
    too_long = await world.sender.call(send_request(conversation="x" * 1025))
    assert too_long.error_code == "INVALID_PARAMETERS"
