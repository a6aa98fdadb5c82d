"""503 cl. 6.4: which connections an endpoint has, and where it listens. Real AMQP over real TLS."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from gridpost.core.acceptance import MaximumDurations
from gridpost.core.delivery import Side, State, Status
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_path import Route
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.line import LineSettings
from gridpost.services.endpoint.submission import Document
from support.amqp_world import AmqpWorld, LiveEndpoint
from support.builders import path
from support.waiting import eventually

PAST = datetime.now(UTC) - timedelta(days=1)


def by(broker: str, message_type: str = "*", **period: datetime):  # type: ignore[no-untyped-def]
    return path(message_type, f"INDIRECT:{broker}", **({"start": PAST} | period))


async def send(sender: LiveEndpoint, to: str, type_: str = "A01", content: bytes = b"x") -> str:
    return await sender.submission.send("app", Document(to, type_, content))


async def reaches(one: LiveEndpoint, message_id: str, status: Status, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while await one.enquiry.status(message_id) is not status:
            await asyncio.sleep(0.01)


@pytest.mark.req("503-6.4-b")
async def test_it_listens_at_the_brokers_of_its_usable_paths_and_nowhere_else() -> None:
    async with AmqpWorld() as world:
        b1, b2 = await world.broker("B1"), await world.broker("B2")
        over = PAST + timedelta(hours=1)
        await world.endpoint("E1", by("B1"), by("B2", "OLD", end=over))
        await eventually(lambda: b1.listeners == ["E1"])
        await asyncio.sleep(0.1)
        assert b2.listeners == []
        assert b2.memory.connections == []


@pytest.mark.req("503-6.4-b")
async def test_it_attaches_when_the_period_of_a_path_begins_and_detaches_when_it_ends() -> None:
    async with AmqpWorld() as world:
        b1 = await world.broker("B1")
        begin = datetime.now(UTC) + timedelta(seconds=3)
        await world.endpoint("E1", by("B1", start=begin, end=begin + timedelta(seconds=5)))
        await asyncio.sleep(0.2)
        # A busy machine may be that late.
        assert b1.listeners == [] or datetime.now(UTC) >= begin
        await eventually(lambda: b1.listeners == ["E1"])
        assert datetime.now(UTC) >= begin
        await eventually(lambda: b1.listeners == [])


@pytest.mark.req("503-6.4-b")
@pytest.mark.req("503-6.4-e")
async def test_a_new_path_is_listened_to_without_a_restart() -> None:
    async with AmqpWorld() as world:
        b1, b2 = await world.broker("B1"), await world.broker("B2")
        e1 = await world.endpoint("E1", by("B1"), lines=LineSettings(idle_seconds=0))
        await eventually(lambda: b1.listeners == ["E1"])
        e1.paths = (by("B2"),)
        world.publish()
        await eventually(lambda: b2.listeners == ["E1"] and b1.listeners == [])
        await eventually(lambda: b1.memory.connections == [])


@pytest.mark.req("503-6.4-c")
async def test_it_listens_where_an_acknowledgement_may_still_come_from() -> None:
    async with AmqpWorld() as world:
        b1, b2 = await world.broker("B1"), await world.broker("B2")
        e1 = await world.endpoint("E1", by("B1"))
        e2 = await world.endpoint("E2", by("B2"))
        message_id = await send(e1, "E2")
        await eventually(lambda: "E1" in b2.listeners)
        await reaches(e1, message_id, Status.DELIVERED)
        # RECEIVED is still to come: see divergences, listening.
        e1.lines.wake()
        await asyncio.sleep(0.1)
        assert "E1" in b2.listeners
        await e2.handover.confirm(message_id)
        await reaches(e1, message_id, Status.RECEIVED)
        e1.lines.wake()
        await eventually(lambda: b2.listeners == ["E2"])
        assert "E1" in b1.listeners


@pytest.mark.req("503-6.4-c")
async def test_it_listens_no_longer_than_until_the_message_expires() -> None:
    short = EndpointSettings(durations=MaximumDurations(timedelta(seconds=5)))
    async with AmqpWorld() as world:
        b2 = await world.broker("B2")
        await world.broker("B1")
        e1 = await world.endpoint("E1", by("B1"), settings=short)
        e2 = await world.endpoint("E2", by("B2"))
        await e2.stop()
        await send(e1, "E2")
        await eventually(lambda: "E1" in b2.listeners)
        await eventually(lambda: "E1" not in b2.listeners)


@pytest.mark.req("503-6.4-a")
async def test_heavy_traffic_uses_one_connection_to_each_broker() -> None:
    async with AmqpWorld() as world:
        b1 = await world.broker("B1")
        e1 = await world.endpoint("E1", by("B1"))
        e2 = await world.endpoint("E2", by("B1"))
        ids = [await send(e1, "E2") for _ in range(60)]
        for message_id in ids:
            await reaches(e1, message_id, Status.DELIVERED)
        assert len(b1.server.connections()) == 2
        assert sorted(v.identity for v in b1.server.connections()) == ["E1", "E2"]
        assert (await e2.handover.receive("A01")).remaining == 59


@pytest.mark.req("503-6.4-f")
@pytest.mark.req("503-6.2-d", component="endpoint")
async def test_groups_of_consumers_and_producers_have_the_configured_size() -> None:
    groups = LineSettings(consumers_of={"B1": 3}, producers_to={"B1/E2": 2})
    async with AmqpWorld() as world:
        b1 = await world.broker("B1")
        e1 = await world.endpoint("E1", by("B1"), lines=groups)
        await world.endpoint("E2", by("B1"))
        await eventually(lambda: len(b1.memory.queues["E1"].consumers) == 3)
        message_id = await send(e1, "E2")
        await reaches(e1, message_id, Status.DELIVERED)
        attached = [p for p in b1.memory.producers if p.link.attachment.address == "E2"]
        assert len(attached) == 2
        e1.paths = ()
        world.publish()
        e2 = world["E2"]
        await e2.handover.confirm(message_id)
        await reaches(e1, message_id, Status.RECEIVED)
        e1.lines.wake()
        await eventually(lambda: b1.memory.queues["E1"].consumers == [])


@pytest.mark.req("503-6.4-d")
@pytest.mark.req("503-6.1.6-a", component="endpoint")
async def test_a_permanent_attachment_is_opened_at_the_start_and_again_after_a_loss() -> None:
    async with AmqpWorld() as world:
        b1 = await world.broker("B1")
        await world.endpoint("E1", lines=LineSettings(permanent=("B1",)))
        await eventually(lambda: b1.listeners == ["E1"])
        await b1.server.close()
        await eventually(lambda: b1.listeners == [])
        await b1.open()
        await eventually(lambda: b1.listeners == ["E1"])


async def test_what_waited_for_a_broker_leaves_as_soon_as_it_is_back() -> None:
    async with AmqpWorld() as world:
        b1 = await world.broker("B1")
        e1 = await world.endpoint("E1", by("B1"))
        await world.endpoint("E2", by("B1"))
        await eventually(lambda: b1.listeners == ["E1", "E2"])
        await b1.server.close()
        message_id = await send(e1, "E2")
        await asyncio.sleep(0.3)
        assert await e1.enquiry.status(message_id) is Status.ACCEPTED
        await b1.open()
        await reaches(e1, message_id, Status.DELIVERED)


async def test_a_server_that_is_not_the_dialled_broker_gets_nothing() -> None:
    """503 cl. 8.3.2; see divergences, peer identity."""
    async with AmqpWorld() as world:
        false = await world.broker("B1", shown="B2")
        await world.broker("B2")
        e1 = await world.endpoint("E1", by("B1"))
        await world.endpoint("E2", by("B1"))
        message_id = await send(e1, "E2")
        await eventually(lambda: any("B2" in v.reason for v in e1.lines.views()))
        assert false.memory.deliveries == 0
        assert false.memory.connections == []
        entry = await e1.enquiry.entry(Side.SENT, message_id)
        assert entry.delivery.state is State.ACCEPTED
        assert Route(ComponentCode("B1")) in e1.lines.closed()
