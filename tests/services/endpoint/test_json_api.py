"""The JSON API: what applications may ask, how they are known, and what they are told when refused."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from gridpost.core.delivery import Status
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.journal import RefusalRow
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.events import Events
from gridpost.services.endpoint.evidence import Evidence
from gridpost.services.endpoint.explaining import Explaining
from gridpost.services.endpoint.json_api import JsonApi
from gridpost.services.endpoint.users import User, Users
from gridpost.services.operations.passwords import hash_password
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

    def __post_init__(self) -> None:
        one = self.endpoint
        users = Users(
            [
                User("app", HASH, send=ALL, receive=ALL),
                User("narrow", HASH, send=(MessageTypePattern("A*"),)),
                User("robot", certificate=hashlib.sha256(CERTIFICATE).hexdigest(), send=ALL),
            ]
        )
        self.app = JsonApi(
            one.context,
            users,
            one.submission,
            one.handover,
            one.enquiry,
            Explaining(one.context, one.enquiry, list),
            Evidence(one.context),
            self.events,
            lambda scope: self.chain,
        ).app()

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
