"""The JSON API: what applications may ask, how they are known, and what they are told when refused."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest

from gridpost.client import AsyncEndpoint, BadDocument, Endpoint, Message, Received
from gridpost.core.channels import Binding, Bindings, Channel, Origin, Receiving
from gridpost.core.delivery import Status
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.journal import RefusalRow
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.dispatch import Dispatcher
from gridpost.services.endpoint.events import Events
from gridpost.services.endpoint.evidence import Evidence
from gridpost.services.endpoint.explaining import Explaining
from gridpost.services.endpoint.json_api import JsonApi
from gridpost.services.endpoint.operating import Operating
from gridpost.services.endpoint.submission import Document
from gridpost.services.endpoint.users import User, Users
from gridpost.services.operations.passwords import hash_password
from gridpost.transports.loopback import serve_loopback
from support.post import TestEndpoint, World, keys_of

ALL = (MessageTypePattern("*"),)
HASH = hash_password("secret")
CERTIFICATE = keys_of("E1")[1][0].der


@dataclass
class Api:
    world: World
    endpoint: TestEndpoint
    events: Events
    chain: tuple[bytes, ...] = ()
    bindings: Bindings = field(default_factory=Bindings)

    def __post_init__(self) -> None:
        one = self.endpoint
        self.users = Users(
            [
                User("app", HASH, send=ALL, receive=ALL),
                User("narrow", HASH, send=(MessageTypePattern("A*"),)),
                User("robot", certificate=hashlib.sha256(CERTIFICATE).hexdigest(), send=ALL),
                User("other", HASH, send=ALL, receive=ALL),
                User("soap-only", HASH, send=ALL, channels=frozenset({Channel.SOAP})),
            ],
            self.bindings,
        )
        self.api = JsonApi(
            one.context,
            self.users,
            one.submission,
            one.handover,
            one.enquiry,
            Explaining(one.context, one.enquiry, list),
            Evidence(one.context),
            self.events,
            lambda scope: self.chain,
            Operating(one.context, one.submission, Dispatcher(one.context, one.transfer)),
        )
        self.app = self.api.app()

    def client(self, user: str = "app", password: str = "secret") -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app),
            base_url="http://endpoint/api/v1",
            auth=(user, password) if user else None,
        )

    async def refusals(self) -> list[RefusalRow]:
        return [row for row in await self.endpoint.journal() if isinstance(row, RefusalRow)]


@pytest.fixture
def apis() -> tuple[Api, Api]:
    world = World(settings=EndpointSettings(max_content=1000))
    made = [Api(world, world[code], Events(world[code].context.signals)) for code in ("E1", "E2")]
    return made[0], made[1]


async def post(client: httpx.AsyncClient, content: bytes = b"document", **fields: str) -> Any:
    params = {"receiverCode": "E2", "messageType": "A01"} | fields
    return await client.post("/messages", params=params, content=content)


@pytest.mark.req("503-5.8.2-b")
@pytest.mark.req("503-5.8.4-a")
@pytest.mark.req("503-5.8.4-b")
@pytest.mark.req("503-5.8.4-c")
async def test_a_document_is_sent_received_until_confirmed_and_followed(
    apis: tuple[Api, Api],
) -> None:
    sender, recipient = apis
    async with sender.client() as out, recipient.client() as into:
        answer = await post(out)
        assert answer.status_code == 201
        message_id = answer.json()["messageID"]
        await sender.world.carry()
        for _ in range(2):
            found = (await into.get("/received", params={"messageType": "A01"})).json()
            assert found["message"]["messageID"] == message_id
            assert found["message"]["content"] == b64encode(b"document").decode()
            assert found["remaining"] == 0
        raw = await into.get(f"/received/{message_id}/content")
        assert raw.content == b"document"
        assert (await into.post(f"/received/{message_id}/confirm")).json() == {
            "messageID": message_id
        }
        found = (await into.get("/received", params={"messageType": "A01"})).json()
        assert found == {"message": None, "remaining": 0}
        await sender.world.carry()
        status = (await out.get(f"/messages/{message_id}")).json()
        assert status["status"] == Status.RECEIVED
        trace = (await out.get(f"/messages/{message_id}/trace")).json()["trace"]
        assert trace[-1]["state"] == "RECEIVED"
        explained = (await out.get(f"/messages/{message_id}/explanation")).json()
        assert explained["mustAct"] == "nobody"
        proof = await out.get(f"/messages/{message_id}/proof")
        assert proof.content.startswith(b"PK")
        seen = (await out.get("/messages", params={"status": "RECEIVED"})).json()["messages"]
        assert [m["messageID"] for m in seen] == [message_id]


async def test_a_document_may_come_as_json(apis: tuple[Api, Api]) -> None:
    async with apis[0].client() as client:
        body = {
            "receiverCode": "E2",
            "messageType": "A01",
            "content": b64encode(b"x").decode(),
        }
        assert (await client.post("/messages", json=body)).status_code == 201
        refused = await client.post("/messages", json=body | {"content": "no base64!"})
        assert (refused.status_code, refused.json()["refused"]["rule"]) == (400, "USAGE")


async def test_the_same_key_is_the_same_message(apis: tuple[Api, Api]) -> None:
    async with apis[0].client() as client:
        client.headers["idempotency-key"] = "k"
        first = (await post(client)).json()
        assert (await post(client)).json() == first
        other = await post(client, b"another")
        assert (other.status_code, other.json()["refused"]["rule"]) == (409, "CONVERSATION_REUSED")


@pytest.mark.parametrize(
    ("fields", "content", "status", "rule"),
    [
        ({}, b"", 400, "EMPTY_CONTENT"),
        ({}, b"x" * 1001, 413, "CONTENT_TOO_LARGE"),
        ({"receiverCode": "NOBODY"}, b"x", 422, "RECIPIENT_UNKNOWN"),
        ({"messageType": "not a type"}, b"x", 400, "BAD_MESSAGE_TYPE"),
    ],
)
async def test_bad_input_is_named_journalled_and_leaves_nothing(
    apis: tuple[Api, Api], fields: dict[str, str], content: bytes, status: int, rule: str
) -> None:
    api = apis[0]
    async with api.client() as client:
        answer = await post(client, content, **fields)
        told = answer.json()["refused"]
        assert (answer.status_code, told["rule"]) == (status, rule)
        assert (await client.get("/messages")).json()["messages"] == []
    assert [row.refusal_id for row in await api.refusals()] == [told["id"]]


async def test_a_user_has_its_own_message_types(apis: tuple[Api, Api]) -> None:
    async with apis[0].client("narrow") as narrow, apis[0].client() as app:
        assert (await post(narrow)).status_code == 201
        assert (await post(narrow, messageType="B01")).status_code == 403
        message_id = (await post(app, messageType="B01")).json()["messageID"]
        assert (await narrow.get(f"/messages/{message_id}")).status_code == 403
        assert len((await narrow.get("/messages")).json()["messages"]) == 1
        assert len((await app.get("/messages")).json()["messages"]) == 2
        refused = await narrow.get("/received", params={"messageType": "A01"})
        assert refused.status_code == 403


@pytest.mark.parametrize(("user", "password"), [("app", "wrong"), ("nobody", "secret"), ("", "")])
async def test_an_unknown_user_is_asked_to_authenticate(
    apis: tuple[Api, Api], user: str, password: str
) -> None:
    async with apis[0].client(user, password) as client:
        answer = await client.get("/messages")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic")
    assert all(row.security for row in await apis[0].refusals())


async def test_a_client_certificate_names_its_user(apis: tuple[Api, Api]) -> None:
    apis[0].chain = (CERTIFICATE,)
    async with apis[0].client("") as client:
        assert (await post(client)).status_code == 201
        message = (await client.get("/messages")).json()["messages"][0]
        assert message["state"] == "ACCEPTED"


async def test_pages_of_a_search_join_without_gaps(apis: tuple[Api, Api]) -> None:
    async with apis[0].client() as client:
        ids = [(await post(client)).json()["messageID"] for _ in range(5)]
        seen: list[str] = []
        before: dict[str, Any] = {}
        while True:
            page = (await client.get("/messages", params={"limit": 2, **before})).json()
            seen += [m["messageID"] for m in page["messages"]]
            if page["next"] is None:
                break
            before = {"before": page["next"]}
        assert seen == ids[::-1]


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_search_looks_at_so_many_messages_and_says_where_to_go_on(
    apis: tuple[Api, Api], monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    monkeypatch.setattr("gridpost.stores.memory.box.LOOKED_AT", 2)
    monkeypatch.setattr("gridpost.services.endpoint.enquiry._PAGES", 2)
    api = apis[0]
    old = [await api.endpoint.send("E2", b"x", "A02") for _ in range(2)]
    for _ in range(9):
        await api.endpoint.send("E2", b"x", "A01")
    wanted = {"messageType": "A02", "limit": "2"}
    async with api.client() as client:
        page = (await client.get("/messages", params=wanted)).json()
        assert page["messages"] == []
        assert page["next"] is not None
    async with serve_loopback(api.app, "127.0.0.1", 0) as port:
        url = f"http://127.0.0.1:{port}"

        def work() -> list[Message]:
            with Endpoint(url, user="app", password="secret") as endpoint:
                return endpoint.search(**wanted)

        if blocking:
            found = await asyncio.to_thread(work)
        else:
            async with AsyncEndpoint(url, user="app", password="secret") as endpoint:
                found = await endpoint.search(**wanted)
    assert [message.message_id for message in found] == old[::-1]


async def test_the_openapi_document_describes_every_route(apis: tuple[Api, Api]) -> None:
    async with apis[0].client("") as client:
        document = (await client.get("/openapi.json")).json()
    described = {
        (path, method.upper()) for path, methods in document["paths"].items() for method in methods
    }
    served = {
        (route.path.removeprefix("/api/v1"), method)
        for route in apis[0].app.routes
        for method in route.methods - {"HEAD"}
    }
    assert described == served - {("/openapi.json", "GET")}


async def test_a_listener_that_falls_behind_is_cut_off(apis: tuple[Api, Api]) -> None:
    api = apis[0]
    stream = api.events.subscribe(lambda side, type_: True)
    assert (await anext(stream)).startswith(":")
    entry = None
    async with api.client() as client:
        message_id = (await post(client)).json()["messageID"]
        assert message_id in await anext(stream)
    for _ in range(1100):
        await asyncio.sleep(0)
        entry = entry or (await api.endpoint.enquiry.search(_everything(), 1, None))[0][0]
        api.endpoint.context.signals.offered(entry)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


def _everything() -> Any:
    from gridpost.core.message_box import Search

    return Search()


async def test_every_stream_ends_when_the_endpoint_stops(apis: tuple[Api, Api]) -> None:
    stream = apis[0].events.subscribe(lambda side, type_: True)
    await anext(stream)
    apis[0].events.close()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


def everything() -> list[User]:
    return [User("app", HASH, send=ALL, receive=ALL), User("other", HASH, send=ALL, receive=ALL)]


@pytest.mark.parametrize(
    "after",
    [
        User("someone", HASH, send=ALL, receive=ALL),
        User("app", hash_password("another secret"), send=ALL, receive=ALL),
        User("app", HASH, send=ALL, receive=ALL, channels=frozenset({Channel.SOAP})),
    ],
    ids=["removed", "another password", "another channel"],
)
async def test_a_stream_ends_when_its_user_may_no_longer_come_in(
    apis: tuple[Api, Api], after: User
) -> None:
    api = apis[0]
    async with serve_loopback(api.app, "127.0.0.1", 0) as port:
        base = f"http://127.0.0.1:{port}/api/v1"
        async with (
            httpx.AsyncClient(base_url=base, auth=("app", "secret"), timeout=30) as client,
            httpx.AsyncClient(base_url=base, auth=("other", "secret"), timeout=30) as other,
            client.stream("GET", "/events") as ends,
            other.stream("GET", "/events") as stays,
        ):
            ended, told = ends.aiter_lines(), stays.aiter_lines()
            assert await anext(ended) == await anext(told) == ": gridpost"
            api.users.change([after, everything()[1]], Bindings())
            api.api.check()
            message_id = await api.endpoint.send("E2", message_type="A01")
            async with asyncio.timeout(30):
                assert not any([message_id in line async for line in ended])
                async for line in told:
                    if message_id in line:
                        break
                else:
                    raise AssertionError("the stream of another user has ended")


async def test_a_stream_tells_what_its_user_may_see_now(apis: tuple[Api, Api]) -> None:
    api = apis[0]
    api.users.change(everything(), Bindings())
    async with (
        serve_loopback(api.app, "127.0.0.1", 0) as port,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}/api/v1", auth=("app", "secret"), timeout=30
        ) as client,
        client.stream("GET", "/events") as answer,
    ):
        lines = answer.aiter_lines()
        assert await anext(lines) == ": gridpost"
        narrow = User("app", HASH, send=(MessageTypePattern("B*"),))
        api.users.change([narrow], Bindings())
        api.api.check()
        hidden = await api.endpoint.send("E2", message_type="A01")
        shown = await api.endpoint.send("E2", message_type="B01")
        seen = []
        async with asyncio.timeout(30):
            async for line in lines:
                seen.append(line)
                if shown in line:
                    break
        assert not any(hidden in line for line in seen)


async def test_a_user_is_given_only_types_bound_to_pull_and_to_that_user() -> None:
    world = World()
    bound = Bindings(
        [
            Binding(MessageTypePattern("A*"), Receiving.FOLDER),
            Binding(MessageTypePattern("A01"), Receiving.PULL, ("app",)),
        ]
    )
    api = Api(world, world["E2"], Events(world["E2"].context.signals), bindings=bound)
    mine = await world["E1"].send("E2", message_type="A01")
    filed = await world["E1"].send("E2", message_type="A02")
    await world.carry()

    async def asked(user: str, type_: str, message_id: str) -> list[int]:
        async with api.client(user) as client:
            receive = await client.get("/received", params={"messageType": type_})
            content = await client.get(f"/received/{message_id}/content")
            confirm = await client.post(f"/received/{message_id}/confirm")
            return [answer.status_code for answer in (receive, content, confirm)]

    assert await asked("other", "A01", mine) == [403, 403, 403]
    assert await asked("app", "A02", filed) == [403, 403, 403]
    assert await asked("app", "A01", mine) == [200, 200, 200]
    async with api.client("app") as app, api.client("other") as other:
        # What became of a document may be asked by everybody who is not shut out by name.
        for client, seen in ((app, {mine, filed}), (other, {filed})):
            found = (await client.get("/messages", params={"side": "received"})).json()
            assert {m["messageID"] for m in found["messages"]} == seen


async def test_bindings_change_while_the_endpoint_runs(apis: tuple[Api, Api]) -> None:
    _, api = apis
    async with api.client() as client:
        assert (await client.get("/received?messageType=A01")).status_code == 200
        everybody = [User("app", HASH, send=ALL, receive=ALL)]
        api.users.change(everybody, Bindings([Binding(ALL[0], Receiving.AMQP)]))
        assert (await client.get("/received?messageType=A01")).status_code == 403


async def test_a_user_comes_only_through_the_doors_that_are_open_to_it(
    apis: tuple[Api, Api],
) -> None:
    async with apis[0].client("soap-only") as client:
        answer = await post(client)
    assert answer.status_code == 403
    assert answer.json()["refused"]["code"] == "AUTHENTICATION_ERROR"


async def test_ids_of_the_same_user_on_another_channel_are_other_conversations(
    apis: tuple[Api, Api],
) -> None:
    api = apis[0]
    async with api.client() as client:
        key = {"idempotency-key": "c-1"}
        params = {"receiverCode": "E2", "messageType": "A01"}
        by_json = (await client.post("/messages", params=params, content=b"1", headers=key)).json()
    document = Document("E2", "A01", b"2", conversation_id="c-1")
    origin = str(Origin(Channel.AMQP, "app"))
    by_amqp = await api.endpoint.submission.send(origin, document)
    assert by_amqp != by_json["messageID"]
    assert await api.endpoint.submission.send(origin, document) == by_amqp
    with pytest.raises(Refusal) as refused:
        await api.endpoint.submission.send(origin, replace(document, content=b"3"))
    assert refused.value.rule is Rule.CONVERSATION_REUSED


@pytest.mark.req("503-11.1.4-c")
@pytest.mark.parametrize("blocking", [True, False])
async def test_our_client_confirms_a_poisonous_document_and_goes_on(
    apis: tuple[Api, Api], caplog: pytest.LogCaptureFixture, blocking: bool
) -> None:
    sender, recipient = apis
    sent = [await sender.endpoint.send("E2", text, "A01") for text in (b"1", b"poison", b"2")]
    await sender.world.carry()
    taken: list[bytes | None] = []

    def take(found: Received) -> None:
        if found.content == b"poison":
            raise BadDocument("not a schedule")
        taken.append(found.content)
        if found.content == b"2" and taken.count(b"2") == 1:
            raise RuntimeError("our disk is full")

    async def take_later(found: Received) -> None:
        take(found)

    async with serve_loopback(recipient.app, "127.0.0.1", 0) as port:
        url = f"http://127.0.0.1:{port}"

        def work() -> int:
            with Endpoint(url, user="app", password="secret") as endpoint:
                return endpoint.process("A01", take)

        async def process() -> int:
            if blocking:
                return await asyncio.to_thread(work)
            async with AsyncEndpoint(url, user="app", password="secret") as endpoint:
                return await endpoint.process("A01", take_later)

        with pytest.raises(RuntimeError):
            await process()
        # What was the application's own trouble is there again.
        assert await process() == 1
    assert taken == [b"1", b"2", b"2"]
    assert f"message {sent[1]} is confirmed unprocessed: not a schedule" in caplog.text


@pytest.mark.req("m11-5.2.2.2-b", component="system")
@pytest.mark.parametrize("blocking", [True, False])
async def test_our_client_does_not_process_twice_what_comes_again(
    apis: tuple[Api, Api], blocking: bool
) -> None:
    sender, recipient = apis
    sent = [await sender.endpoint.send("E2", text, "A01") for text in (b"1", b"2")]
    await sender.world.carry()
    taken: list[bytes | None] = []
    processed: set[str] = set()

    def take(found: Received) -> None:
        taken.append(found.content)
        processed.add(found.message.message_id)
        if len(taken) == 1:
            raise ConnectionError("the confirmation of the first one never arrives")

    async def take_later(found: Received) -> None:
        take(found)

    async with serve_loopback(recipient.app, "127.0.0.1", 0) as port:
        url = f"http://127.0.0.1:{port}"

        def work() -> int:
            with Endpoint(url, user="app", password="secret") as endpoint:
                return endpoint.process("A01", take, processed=processed)

        async def process() -> int:
            if blocking:
                return await asyncio.to_thread(work)
            async with AsyncEndpoint(url, user="app", password="secret") as endpoint:
                return await endpoint.process("A01", take_later, processed=processed)

        with pytest.raises(ConnectionError):
            await process()
        # Both are confirmed, and the first is known by its ID.
        assert await process() == 2
    assert taken == [b"1", b"2"]
    assert processed == set(sent)
