"""What an operator does to messages: send again, cancel, pause and resume, maintenance."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

import httpx
import pytest

from gridpost.core.channels import Channel, Origin
from gridpost.core.delivery import Event, Side, State, Status
from gridpost.core.holds import HoldKind
from gridpost.core.journal import AdministrationRow
from gridpost.core.message import InternalType
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.dispatch import Dispatcher
from gridpost.services.endpoint.events import Events
from gridpost.services.endpoint.explaining import Explaining
from gridpost.services.endpoint.json_api import JsonApi
from gridpost.services.endpoint.operating import Operating
from gridpost.services.endpoint.submission import Document
from gridpost.services.endpoint.users import User, Users
from gridpost.services.operations.passwords import hash_password
from support.post import World
from support.waiting import eventually

HASH = hash_password("secret")


class Desk:
    """E1 with a dispatcher that really runs, and its operator."""

    def __init__(self, world: World, code: str = "E1") -> None:
        self.world = world
        self.one = world[code]
        self.dispatcher = Dispatcher(self.one.context, self.one.transfer)
        self.operating = Operating(self.one.context, self.one.submission, self.dispatcher)
        self.explaining = Explaining(self.one.context, self.one.enquiry, list)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Desk:
        await self.operating.open()
        self._task = asyncio.create_task(self.dispatcher.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def send(self, message_type: str = "BP1-A", to: str = "E2", by: str = "app") -> str:
        document = Document(to, message_type, b"document")
        return await self.one.submission.send(str(Origin(Channel.JSON, by)), document)

    async def until(self, message_id: str, *wanted: State) -> None:
        async with asyncio.timeout(60):
            while await self.one.state(Side.SENT, message_id) not in wanted:
                await asyncio.sleep(0.005)

    async def actions(self) -> list[tuple[str, str, str]]:
        return [
            (row.actor, row.action, row.target)
            for row in await self.one.journal()
            if isinstance(row, AdministrationRow)
        ]

    def api(self, *, operator: bool = True) -> httpx.AsyncClient:
        one = self.one
        users = Users([User("olga", HASH, send=("*",), receive=("*",), operator=operator)])  # type: ignore[arg-type]
        api = JsonApi(
            one.context, users, one.submission, one.handover, one.enquiry, self.explaining,
            one.evidence, Events(one.context.signals), lambda scope: (), self.operating,
        )  # fmt: skip
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(api.app()),
            base_url="http://endpoint/api/v1",
            auth=("olga", "secret"),
        )


async def failed(desk: Desk) -> str:
    """A message that the recipient refused."""
    message_id = await desk.one.send("E2")
    await desk.until(message_id, State.DELIVERING)
    desk.world.clock.advance(timedelta(days=30))
    await desk.one.expiry.round()
    assert await desk.one.status(message_id) is Status.FAILED
    return message_id


def drop_all(world: World) -> None:
    world.post.bend = lambda carried: None


async def test_a_failed_message_is_sent_again_as_a_new_one_and_each_knows_the_other() -> None:
    world = World()
    async with Desk(world) as desk:
        drop_all(world)
        old = await failed(desk)
        world.post.bend = lambda carried: carried
        async with desk.api() as api:
            answer = await api.post(f"/messages/{old}/resend", json={"reason": "they were down"})
            assert answer.status_code == 201, answer.text
            new = answer.json()["messageID"]
            assert (await api.get(f"/messages/{old}/trace")).json()["resentAs"] == [new]
            shown = (await api.get(f"/messages/{new}/trace")).json()
            assert shown["resendOf"] == old
            assert old in shown["trace"][0]["detail"]
            found = (await api.get("/messages", params={"side": "sent"})).json()["messages"]
            assert {m["messageID"]: (m["resendOf"], m["resentAs"]) for m in found} == {
                old: ("", [new]),
                new: (old, []),
            }
        trace = await desk.one.trace(old)
        assert (trace[-1].event, trace[-1].moved) == (Event.RESEND, False)
        assert new in trace[-1].detail
        await desk.until(new, State.DELIVERING, State.DELIVERED)
        handed = await world["E2"].handover.receive("BP1-A")
        assert handed.content == b"document"
        assert ("json/olga", "message sent again", old) in await desk.actions()


async def test_a_message_is_not_sent_again_before_it_failed_nor_twice() -> None:
    world = World()
    async with Desk(world) as desk:
        drop_all(world)
        alive = await desk.send()
        with pytest.raises(Refusal) as early:
            await desk.operating.resend(alive, "olga")
        assert early.value.rule is Rule.NOT_FAILED
        old = await failed(desk)
        new = await desk.operating.resend(old, "olga")
        with pytest.raises(Refusal) as again:
            await desk.operating.resend(old, "olga")
        assert again.value.rule is Rule.RESENT_ALREADY
        assert new in again.value.message


async def test_an_accepted_message_is_cancelled_and_never_leaves() -> None:
    world = World()
    async with Desk(world) as desk:
        await desk.operating.pause(HoldKind.PARTNER, "E2", "olga")
        message_id = await desk.send()
        async with desk.api() as api:
            answer = await api.post(f"/messages/{message_id}/cancel", json={"reason": "wrong day"})
            assert answer.status_code == 200, answer.text
        assert await desk.one.status(message_id) is Status.FAILED
        explained = await desk.explaining.explain(Side.SENT, message_id)
        assert "wrong day" in explained.summary
        await desk.operating.resume(HoldKind.PARTNER, "E2", "olga")
        later = await desk.send()
        await desk.until(later, State.DELIVERING, State.DELIVERED)
        assert len([c for c in world.post.carried if c.sender == "E1"]) == 1


async def test_a_message_that_is_being_transferred_is_not_cancelled() -> None:
    world = World()
    async with Desk(world) as desk:
        on_its_way, go_on = asyncio.Event(), asyncio.Event()

        async def slow(carried):  # type: ignore[no-untyped-def]
            on_its_way.set()
            await go_on.wait()
            return carried

        world.post.bend = slow
        message_id = await desk.send()
        await on_its_way.wait()
        with pytest.raises(Refusal) as under_way:
            await desk.operating.cancel(message_id, "olga")
        assert under_way.value.rule is Rule.UNDER_WAY
        go_on.set()
        await desk.until(message_id, State.DELIVERING, State.DELIVERED)
        with pytest.raises(Refusal) as too_late:
            await desk.operating.cancel(message_id, "olga")
        assert too_late.value.rule is Rule.NOT_CANCELLABLE


@pytest.mark.parametrize(
    ("kind", "value"), [("partner", "E2"), ("type", "BP1-*"), ("channel", "json")]
)
async def test_what_is_paused_waits_and_goes_on_after_it_is_resumed(kind: str, value: str) -> None:
    world = World(codes=("E1", "E2", "E3"))
    async with Desk(world) as desk:
        async with desk.api() as api:
            body = {"kind": kind, "value": value, "reason": "they move house"}
            assert (await api.post("/holds", json=body)).status_code == 200
            paused = await desk.send()
            free = await desk.one.submission.send("soap/x", Document("E3", "OTHER", b"free"))
            await desk.until(free, State.DELIVERING, State.DELIVERED)
            assert await desk.one.state(Side.SENT, paused) is State.ACCEPTED
            told = (await api.get(f"/messages/{paused}/explanation")).json()
            assert "paused" in told["explanation"]
            assert "they move house" in told["explanation"]
            assert told["mustAct"] == "the operator of this endpoint"
            # Durable: whoever opens the store next finds the same.
            again = Operating(desk.one.context, desk.one.submission, desk.dispatcher)
            await again.open()
            assert [(h.kind, h.value) for h in again.holds.all] == [(kind, value)]
            gone = await api.delete("/holds", params={"kind": kind, "value": value})
            assert gone.json() == {"changed": True}
        await desk.until(paused, State.DELIVERING, State.DELIVERED)
        assert ("json/olga", "paused", f"{kind} {value}") in await desk.actions()
        assert ("json/olga", "resumed", f"{kind} {value}") in await desk.actions()


@pytest.mark.parametrize(
    ("kind", "value"), [("partner", "E1"), ("type", "BP1-A"), ("channel", "json")]
)
async def test_documents_are_not_handed_over_while_that_is_paused(kind: str, value: str) -> None:
    world = World(codes=("E1", "E2", "E3"))
    desk = Desk(world, "E2")
    await world["E1"].send("E2", b"from E1")
    await world["E3"].send("E2", b"from E3")
    await world.carry()
    await desk.operating.pause(HoldKind(kind), value, "olga")
    two = world["E2"]
    handed = await two.handover.receive("BP1-A", channel=Channel.JSON)
    if kind == "partner":
        # The other partner's document is there, and nothing is counted that is not.
        assert (handed.content, handed.remaining) == (b"from E3", 0)
    else:
        assert handed.entry is None
    listed = await two.handover.waiting("BP1-A", 0, 10, Channel.JSON)
    assert [content for _, content in listed] == ([b"from E3"] if kind == "partner" else [])
    held = await two.store.read(lambda work: work.box.waiting("BP1-A", world.clock.now(), 1))
    explained = await desk.explaining.explain(Side.RECEIVED, held[0].message_id)
    # SOAP pulls the same documents: a pause of JSON alone keeps nothing from an application.
    assert ("paused" in explained.summary) == (kind != "channel")
    await desk.operating.resume(HoldKind(kind), value, "olga")
    assert (await two.handover.receive("BP1-A", channel=Channel.JSON)).content == b"from E1"


async def test_acknowledgements_go_also_to_a_paused_partner() -> None:
    world = World()
    async with Desk(world, "E2") as desk:
        await desk.operating.pause(HoldKind.PARTNER, "E1", "olga")
        message_id = await world["E1"].send("E2")
        await world["E1"].transfer.round()
        await eventually(lambda: any(c.sender == "E2" for c in world.post.carried))
        assert await world["E1"].status(message_id) is Status.DELIVERED


async def test_maintenance_refuses_new_documents_while_what_is_accepted_goes_on() -> None:
    world = World()
    async with Desk(world) as desk:
        before = await desk.one.submission.send(
            "json/app", Document("E2", "BP1-A", b"before", conversation_id="c-1")
        )
        async with desk.api() as api:
            body = {"on": True, "reason": "new disks"}
            assert (await api.put("/maintenance", json=body)).json() == {
                "on": True,
                "changed": True,
            }
            params = {"receiverCode": "E2", "messageType": "BP1-A"}
            refused = await api.post("/messages", params=params, content=b"x")
            assert refused.status_code == 503
            told = refused.json()["refused"]
            assert (told["rule"], told["retryable"]) == ("MAINTENANCE", True)
            assert "new disks" in told["message"]
            with pytest.raises(Refusal):
                await desk.one.submission.test_connectivity("json/app", "E2", "BP1-A")
            # What was accepted before is answered alike, and travels.
            repeated = Document("E2", "BP1-A", b"before", conversation_id="c-1")
            assert await desk.one.submission.send("json/app", repeated) == before
            await desk.until(before, State.DELIVERING, State.DELIVERED)
            assert (await api.put("/maintenance", json={"on": False})).json()["changed"]
            sent = await api.post("/messages", params=params, content=b"x")
            assert sent.status_code == 201
        actions = [action for _, action, _ in await desk.actions()]
        assert actions == ["maintenance begun", "maintenance ended"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/messages/x/resend"),
        ("POST", "/messages/x/cancel"),
        ("POST", "/received/x/release"),
        ("POST", "/received/x/drop"),
        ("GET", "/held-back"),
        ("GET", "/holds"),
        ("POST", "/holds"),
        ("DELETE", "/holds"),
        ("PUT", "/maintenance"),
    ],
)
async def test_an_application_is_no_operator(method: str, path: str) -> None:
    desk = Desk(World())
    async with desk.api(operator=False) as api:
        answer = await api.request(method, path, json={"on": True} if method != "GET" else None)
    assert answer.status_code == 403
    assert answer.json()["refused"]["rule"] == "ACCESS_DENIED"


@pytest.mark.parametrize(
    "body", [{"kind": "planet", "value": "x"}, {"kind": "channel", "value": "x"},
             {"kind": "type", "value": "A*B"}, {"kind": "partner", "value": ""}, {"kind": "type"}],
)  # fmt: skip
async def test_a_pause_that_makes_no_sense_is_refused(body: dict[str, str]) -> None:
    desk = Desk(World())
    async with desk.api() as api:
        assert (await api.post("/holds", json=body)).status_code == 400
        assert (await api.get("/holds")).json() == {"holds": []}


async def test_a_connectivity_test_is_not_sent_again() -> None:
    world = World()
    async with Desk(world) as desk:
        drop_all(world)
        message_id = await desk.one.submission.test_connectivity("json/app", "E2", "BP1-A")
        world.clock.advance(timedelta(days=30))
        await desk.one.expiry.round()
        entry = await desk.one.enquiry.entry(Side.SENT, message_id)
        assert entry.metadata.internal_type is InternalType.TRACING_MESSAGE
        with pytest.raises(Refusal) as refused:
            await desk.operating.resend(message_id, "olga")
        assert refused.value.rule is Rule.NOT_FAILED


async def test_a_pause_that_another_process_ended_ends_here_as_well() -> None:
    """The store is shared: what this process has put aside goes on when it hears of the end."""
    world = World()
    async with Desk(world) as desk:
        await desk.operating.pause(HoldKind.PARTNER, "E2", "olga")
        message_id = await desk.send()
        await desk.one.store.run(lambda work: work.controls.release(HoldKind.PARTNER, "E2"))
        assert await desk.one.state(Side.SENT, message_id) is State.ACCEPTED
        await desk.operating.reload()
        await desk.until(message_id, State.DELIVERING, State.DELIVERED)
