"""503 cl. 11.1.1: the five services of an endpoint, and what each says when it cannot do its work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointSettings
from support.soap import VERSIONS, SoapWorld, envelope, field, request, send_request

STRANGE = str(uuid4())
BROKEN = {
    "SendMessage": (send_request(receiver="NOBODY"), "receiverCode", "NOBODY"),
    "ReceiveMessage": (
        request("ReceiveMessage", field("messageType", "A_1"), field("downloadMessage", "true")),
        "messageType",
        "A_1",
    ),
    "ConfirmReceiveMessage": (
        request("ConfirmReceiveMessage", field("messageID", STRANGE)),
        "messageID",
        STRANGE,
    ),
    "CheckMessageStatus": (
        request("CheckMessageStatus", field("messageID", STRANGE)),
        "messageID",
        STRANGE,
    ),
    "ConnectivityTest": (
        request("ConnectivityTest", field("receiverCode", "NOBODY"), field("messageType", "A01")),
        "receiverCode",
        "NOBODY",
    ),
}


@pytest.fixture
def world() -> SoapWorld:
    return SoapWorld(settings=EndpointSettings(max_content=1000))


@pytest.mark.req("503-11.1.1-a")
async def test_each_of_the_five_services_answers_and_no_other(world: SoapWorld) -> None:
    sent = await world.sender.sent()
    await world.carry()
    assert (await world.recipient.receive()).name == "ReceiveMessageResponse"
    assert (await world.recipient.confirm(sent)).name == "ConfirmReceiveMessageResponse"
    assert (await world.sender.check(sent)).name == "CheckMessageStatusResponse"
    test = request("ConnectivityTest", field("receiverCode", "E2"), field("messageType", "A01"))
    assert (await world.sender.call(test)).name == "ConnectivityTestResponse"
    for unknown in (
        request("RejectMessage"),
        "<SendMessageRequest/>",
        '<SendMessage xmlns="urn:x"/>',
    ):
        answer = await world.sender.call(unknown)
        assert (answer.name, answer.fault_code) == ("Fault", "Client")
        assert "no operation" in answer.reason


@pytest.mark.req("503-11.1.1-b")
@pytest.mark.req("503-T26-a")
@pytest.mark.req("503-T31-a")
@pytest.mark.req("503-T35-a")
@pytest.mark.req("503-T38-a")
@pytest.mark.req("503-T44-a")
@pytest.mark.req("503-T47-a")
@pytest.mark.req("503-11.1.7-l")
@pytest.mark.req("503-11.1.7-m")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("operation", BROKEN)
async def test_an_error_is_told_in_the_form_of_its_service(
    world: SoapWorld, operation: str, version: str
) -> None:
    body, item, value = BROKEN[operation]
    answers = [await world.sender.call(body, version) for _ in range(2)]
    for answer in answers:
        assert answer.error.tag == f"{{http://mades.entsoe.eu/2/}}{operation}Error"
        assert answer.error_fields[item] == value
        assert answer.error_fields["errorMessage"]
    first, second = (answer.error_fields["errorID"] for answer in answers)
    assert first != second
    rows = {row.refusal_id for row in await world.sender.refusals()}
    assert {first, second} <= rows


@pytest.mark.req("503-T27-a")
@pytest.mark.parametrize(
    "body",
    [
        send_request(receiver=None),
        send_request(receiver="a b"),
        send_request(message_type=None),
        request("SendMessage"),
        request("ReceiveMessage", field("messageType", "A01")),
        request("ReceiveMessage", field("messageType", "A01"), field("downloadMessage", "maybe")),
        request("ConfirmReceiveMessage"),
        request("ConfirmReceiveMessage", field("messageID", "not a UUID")),
        request("CheckMessageStatus"),
        request("ConnectivityTest", field("receiverCode", "E2")),
        request("ConnectivityTest", field("receiverCode", "a b"), field("messageType", "A01")),
    ],
)
async def test_what_is_incomplete_or_badly_formed_is_invalid_parameters(
    world: SoapWorld, body: str
) -> None:
    answer = await world.sender.call(body)
    assert (answer.fault_code, answer.error_code) == ("Client", "INVALID_PARAMETERS")
    assert await world.sender.stored() == 0


@pytest.mark.req("503-T27-b")
@pytest.mark.parametrize(("user", "password"), [("app", "wrong"), ("nobody", "secret"), ("", "")])
async def test_who_cannot_be_authenticated_is_told_so(
    world: SoapWorld, user: str, password: str
) -> None:
    answer = await world.sender.call(send_request(), user=user, password=password)
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    assert answer.error_code == "AUTHENTICATION_ERROR"
    assert await world.sender.stored() == 0
    assert (await world.sender.refusals())[-1].security


@pytest.mark.req("503-T27-c")
@pytest.mark.parametrize(
    "body", [send_request(receiver="NOBODY"), send_request(b"x" * 1001)], ids=["who", "large"]
)
async def test_a_message_that_cannot_be_valid_is_a_validation_error(
    world: SoapWorld, body: str
) -> None:
    answer = await world.sender.call(body)
    assert answer.error_code == "VALIDATION_ERROR"
    assert await world.sender.stored() == 0
    assert (await world.sender.call(send_request(b"x" * 1000))).status == 200


@pytest.mark.req("503-T27-d")
@pytest.mark.parametrize("trouble", ["the disk is full", "a bug"])
async def test_our_own_trouble_is_an_internal_error_and_nothing_is_half_stored(
    world: SoapWorld, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    async def fail(*_: object) -> None:
        raise Refusal(Rule.STORE_FULL, "no room") if "disk" in trouble else RuntimeError("a bug")

    endpoint = world.sender.endpoint
    with monkeypatch.context() as patched:
        if "disk" in trouble:
            patched.setattr(endpoint.store, "run", fail)
        else:
            patched.setattr(endpoint.submission, "send", fail)
        answer = await world.sender.call(send_request())
        later = await world.sender.call(send_request(), "1.2")
    assert (answer.status, answer.fault_code, answer.error_code) == (
        500,
        "Server",
        "INTERNAL_ERROR",
    )
    assert (later.status, later.fault_code) == (500, "Receiver")
    assert await world.sender.stored() == 0
    assert (await world.sender.call(send_request())).status == 200


@pytest.mark.req("503-T27-e")
async def test_a_client_with_too_much_in_progress_is_told_concurrent_error() -> None:
    world = SoapWorld(requests_per_user=1)
    go_on, begun = asyncio.Event(), asyncio.Event()
    text = envelope("1.1", send_request()).encode()

    async def slowly() -> AsyncIterator[bytes]:
        yield text[:100]
        begun.set()
        await go_on.wait()
        yield text[100:]

    async with asyncio.TaskGroup() as group:
        first = group.create_task(world.sender.post(slowly()))
        await begun.wait()
        second = await world.sender.call(send_request())
        assert second.error_code == "CONCURRENT_ERROR"
        assert (await world.sender.call(send_request(), user="other")).status == 200
        go_on.set()
    assert first.result().status_code == 200
    assert (await world.sender.call(send_request())).status == 200
