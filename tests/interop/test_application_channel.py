"""The AMQP channel of endpoint processes, used by two independent clients: rhea and proton."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from gridpost.transports.free_port import free_port
from support.application import application, both, document, needs_rhea, rhea
from support.network import API_PASSWORD, Network, network, until_status

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
CHANNEL = """[amqp]
port = {port}
[[bindings]]
message_type = "Q*"
channel = "amqp"
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def net(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    async with network(tmp_path_factory.mktemp("network")) as found:
        await found.broker("B1")
        await found.start("B1")
        for code in ("E1", "E2"):
            port = found.ports[f"{code} amqp"] = free_port()
            await found.endpoint(code, "INDIRECT:B1", more=CHANNEL.format(port=port))
        await found.start("E1", "E2")
        await found.known("E1", "E2")
        await found.known("E2", "E1")
        yield found


class Application:
    """The user `app` of one endpoint, on one library."""

    def __init__(self, net: Network, library: str, code: str) -> None:
        self._port = net.ports[f"{code} amqp"]
        self._library = library

    async def __call__(self, **task: Any) -> dict[str, Any]:
        task = {"user": "app", "password": API_PASSWORD} | task
        return await application(self._library, self._port, **task)

    async def send(self, *messages: dict[str, Any]) -> list[list[str | None]]:
        done = await self(send="outbox", messages=list(messages))
        assert done["error"] is None, done
        outcomes: list[list[str | None]] = done["outcomes"]
        return outcomes

    async def take(self, queue: str, count: int, **more: Any) -> list[dict[str, Any]]:
        done = await self(consume=queue, count=count, **more)
        assert done["error"] is None, done
        messages: list[dict[str, Any]] = done["messages"]
        return messages


async def statuses(sender: Application, count: int) -> list[str]:
    return [m["body"] for m in await sender.take("event", count)]


@both
async def test_a_document_goes_in_and_comes_out_and_its_status_is_told(
    net: Network, library: str
) -> None:
    sender, recipient = Application(net, library, "E1"), Application(net, library, "E2")
    outcomes = await sender.send(
        document("<plan/>", baMessageID="plan-1", senderApplication="SCHED", correlation="order 66")
    )
    assert outcomes == [["accepted", None]]
    (reply,) = await sender.take("reply", 1)
    message_id = reply["properties"].pop("messageID")
    assert reply["properties"] == {}
    assert reply["correlation"] == "order 66"
    assert reply["durable"]
    (received,) = await recipient.take("inbox", 1)
    assert (received["kind"], received["body"]) == ("data", "<plan/>")
    generated = received["properties"].pop("generated")
    assert generated
    assert received["properties"] == {
        "messageID": message_id,
        "senderCode": "E1",
        "receiverCode": "E2",
        "messageType": "Q01",
        "baMessageID": "plan-1",
        "senderApplication": "SCHED",
    }
    events = await sender.take("event", 3)
    assert [event["body"] for event in events] == ["ACCEPTED", "DELIVERED", "RECEIVED"]
    for event in events:
        assert event["kind"] == "value"
        assert event["correlation"] == "order 66"
        assert event["properties"] == {"messageID": message_id, "baMessageID": "plan-1"}


@both
async def test_an_application_uses_the_names_of_queues_that_are_configured(
    net: Network, library: str
) -> None:
    code = f"E-{library.upper()}"
    port = net.ports[f"{code} amqp"] = free_port()
    names = {name: f"market/{library}/{name}" for name in ("outbox", "reply", "inbox", "event")}
    queues = "".join(f'{name} = "{queue}"\n' for name, queue in names.items())
    await net.endpoint(
        code, "INDIRECT:B1", more=f"{CHANNEL.format(port=port)}[amqp.queues]\n{queues}"
    )
    await net.start(code)
    await net.known(code, "E2")
    await net.known("E2", code)
    renamed, other = Application(net, library, code), Application(net, library, "E2")
    done = await renamed(send=names["outbox"], messages=[document("<out/>", correlation="c")])
    assert (done["error"], done["outcomes"]) == (None, [["accepted", None]])
    (reply,) = await renamed.take(names["reply"], 1)
    assert reply["correlation"] == "c"
    (received,) = await other.take("inbox", 1)
    assert received["properties"]["messageID"] == reply["properties"]["messageID"]
    events = await renamed.take(names["event"], 3)
    assert [event["body"] for event in events] == ["ACCEPTED", "DELIVERED", "RECEIVED"]
    await other.send(document("<in/>", receiverCode=code))
    (received,) = await renamed.take(names["inbox"], 1)
    assert received["body"] == "<in/>"
    await other.take("reply", 1)
    await other.take("event", 3)
    # The usual names mean nothing there.
    for usual in ("outbox", "reply", "inbox", "event"):
        way = {"send": usual, "messages": [document()]} if usual == "outbox" else {"consume": usual}
        refused = await renamed(**way, count=1)
        assert refused["error"][0] == "amqp:not-found"


@rhea
async def test_the_old_name_of_the_message_type_is_understood(net: Network, library: str) -> None:
    sender, recipient = Application(net, library, "E1"), Application(net, library, "E2")
    await sender.send(document(messageType=None, businessType="Q-OLD", correlation=7))
    (reply,) = await sender.take("reply", 1)
    assert reply["correlation"] == 7
    (received,) = await recipient.take("inbox", 1)
    assert received["properties"]["messageType"] == "Q-OLD"
    assert await statuses(sender, 3) == ["ACCEPTED", "DELIVERED", "RECEIVED"]


@rhea
async def test_a_trace_is_told_as_such(net: Network, library: str) -> None:
    sender = Application(net, library, "E1")
    await sender.send(document(isTracingMessage=True, correlation="t"))
    (reply,) = await sender.take("reply", 1)
    assert reply["properties"]["messageID"]
    assert await statuses(sender, 2) == ["ACCEPTED", "TRACING"]


@rhea
async def test_bad_input_is_answered_with_a_typed_error_and_nothing_is_stored(
    net: Network, library: str
) -> None:
    sender = Application(net, library, "E1")
    async with net.api("E1") as api:
        before = await api.search(limit="1")
        bad = {
            "no receiver": document(receiverCode=None),
            "no type": document(messageType=None),
            "unknown receiver": document(receiverCode="NOBODY"),
            "bad type": document(messageType="Q 1"),
            "two types": document(businessType="Q02"),
            "empty": document(""),
            "no data section": document(value="text"),
            "bad property": document(baMessageID=5),
            "bad id": document(baMessageID="a b"),
            "too long an id": document(conversationID="x" * 2000),
        }
        outcomes = await sender.send(
            *(message | {"correlation": name} for name, message in bad.items())
        )
        assert outcomes == [["accepted", None]] * len(bad)
        replies = {r["correlation"]: r["properties"] for r in await sender.take("reply", len(bad))}
        assert set(replies) == set(bad)
        for name, properties in replies.items():
            expected = "VALIDATION_ERROR" if name == "unknown receiver" else "INVALID_PARAMETERS"
            assert properties["errorCode"] == expected, name
            assert properties["errorMessage"], name
            assert len(properties["errorID"]) == 36, name
            assert "errorDetails" in properties, name
            assert "messageID" not in properties, name
        assert (await api.search(limit="1")) == before
    await sender.send(document(correlation="still here"))
    (reply,) = await sender.take("reply", 1)
    assert reply["properties"]["messageID"]
    await Application(net, library, "E2").take("inbox", 1)
    assert await statuses(sender, 3) == ["ACCEPTED", "DELIVERED", "RECEIVED"]


@rhea
@pytest.mark.parametrize("by", ["conversationID", "message-id"])
async def test_the_same_id_sends_once_and_another_document_under_it_is_refused(
    net: Network, library: str, by: str
) -> None:
    sender = Application(net, library, "E1")
    key = str(uuid4())
    named = {"conversationID": key} if by == "conversationID" else {"id": key}
    await sender.send(document("one", **named), document("one", **named))
    replies = await sender.take("reply", 2)
    (message_id,) = {reply["properties"]["messageID"] for reply in replies}
    await sender.send(document("two", **named))
    (reply,) = await sender.take("reply", 1)
    assert reply["properties"]["errorCode"] == "VALIDATION_ERROR"
    (received,) = await Application(net, library, "E2").take("inbox", 1)
    assert (received["properties"]["messageID"], received["body"]) == (message_id, "one")
    assert await statuses(sender, 3) == ["ACCEPTED", "DELIVERED", "RECEIVED"]


@both
@pytest.mark.parametrize("outcome", ["release", "reject", "modified", "crash"])
async def test_what_is_not_accepted_waits_for_the_next_consumer(
    net: Network, library: str, outcome: str
) -> None:
    sender, recipient = Application(net, library, "E1"), Application(net, library, "E2")
    await sender.send(document("again"))
    (reply,) = await sender.take("reply", 1)
    (first,) = await recipient.take("inbox", 1, outcome=outcome)
    async with net.api("E1") as api:
        assert (await api.status(reply["properties"]["messageID"])).status == "DELIVERED"
    (second,) = await recipient.take("inbox", 1)
    assert second["properties"]["messageID"] == first["properties"]["messageID"]
    assert await statuses(sender, 3) == ["ACCEPTED", "DELIVERED", "RECEIVED"]


@rhea
async def test_two_consumers_share_what_waits_and_get_nothing_twice(
    net: Network, library: str
) -> None:
    sender, recipient = Application(net, library, "E1"), Application(net, library, "E2")
    taking = [asyncio.create_task(recipient.take("inbox", 10)) for _ in range(2)]
    await sender.send(*(document(f"doc {n}") for n in range(20)))
    found = [m["body"] for messages in await asyncio.gather(*taking) for m in messages]
    assert sorted(found) == sorted(f"doc {n}" for n in range(20))
    assert len(await sender.take("reply", 20)) == 20
    assert sorted(await statuses(sender, 60)) == (
        ["ACCEPTED"] * 20 + ["DELIVERED"] * 20 + ["RECEIVED"] * 20
    )


@needs_rhea
async def test_exactly_once_settles_after_the_confirmation_is_stored(net: Network) -> None:
    """rhea as a receiver that settles second: it hears of the settlement after the commit."""
    sender, recipient = Application(net, "rhea", "E1"), Application(net, "rhea", "E2")
    await sender.send(document("second"))
    (received,) = await recipient.take("inbox", 1, second=True)
    async with net.api("E2") as api:
        status = await api.status(received["properties"]["messageID"], side="received")
        assert status.state == "CONFIRMED"
    await sender.take("reply", 1)
    assert await statuses(sender, 3) == ["ACCEPTED", "DELIVERED", "RECEIVED"]


@rhea
async def test_replies_and_events_survive_a_kill_of_the_endpoint(
    net: Network, library: str
) -> None:
    sender, recipient = Application(net, library, "E1"), Application(net, library, "E2")
    await sender.send(document("before", correlation="k"))
    async with net.api("E1") as api:
        (entry,) = await api.search(limit="1")
        await until_status(api, entry.message_id, "DELIVERED")
    await net.components["E1"].kill()
    await net.components["E1"].start()
    (reply,) = await sender.take("reply", 1)
    assert reply["properties"] == {"messageID": entry.message_id}
    assert reply["correlation"] == "k"
    await recipient.take("inbox", 1)
    assert await statuses(sender, 3) == ["ACCEPTED", "DELIVERED", "RECEIVED"]


@rhea
async def test_a_type_of_another_channel_is_not_handed_over_here(
    net: Network, library: str
) -> None:
    sender, recipient = Application(net, library, "E1"), Application(net, library, "E2")
    await sender.send(document("pulled", messageType="PULL"), document("here"))
    (received,) = await recipient.take("inbox", 1)
    assert received["body"] == "here"
    async with net.api("E2") as api:
        while (pulled := await api.receive("PULL")) is None:
            await asyncio.sleep(0.05)
        await api.confirm(pulled.message.message_id)
    assert len(await sender.take("reply", 2)) == 2
    assert len(await statuses(sender, 6)) == 6


@rhea
@pytest.mark.parametrize(
    ("task", "condition"),
    [
        ({"send": "nowhere", "messages": [document()]}, "amqp:not-found"),
        ({"send": "inbox", "messages": [document()]}, "amqp:unauthorized-access"),
        ({"consume": "outbox", "count": 1}, "amqp:unauthorized-access"),
        ({"consume": "nowhere", "count": 1}, "amqp:not-found"),
    ],
)
async def test_only_the_four_queues_exist_each_in_its_direction(
    net: Network, library: str, task: dict[str, Any], condition: str
) -> None:
    done = await Application(net, library, "E1")(**task)
    assert done["error"][0] == condition


@rhea
@pytest.mark.parametrize(("user", "password"), [("app", "wrong"), ("nobody", API_PASSWORD)])
async def test_a_wrong_password_opens_nothing(
    net: Network, library: str, user: str, password: str
) -> None:
    done = await Application(net, library, "E1")(
        consume="inbox", count=0, user=user, password=password
    )
    assert done["error"] is not None
