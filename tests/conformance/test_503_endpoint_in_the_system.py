"""What 503 says of an endpoint across its clauses: routes, what stays inside, what is stored how long."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gridpost.core.channels import Channel
from gridpost.core.delivery import Event, Side, State, Status
from gridpost.core.identifiers import ComponentCode
from gridpost.core.journal import MessageRow
from gridpost.core.message import InternalType
from gridpost.core.message_box import Search
from gridpost.core.message_path import Route
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.expiry import Expiry
from gridpost.services.endpoint.submission import Document
from gridpost.services.endpoint.upkeep import Upkeep, UpkeepSettings
from gridpost.stores.sqlite import SqliteStore
from gridpost.transports.amqp10.tls import client_context
from gridpost.wire.amqp.sections import decode_application_properties, split
from gridpost.wire.mades.amqp_message import decode
from support.amqp_world import AmqpWorld, authentication
from support.builders import path
from support.post import BY_B1, START, Carried, TestEndpoint, World
from support.waiting import eventually

DAY = timedelta(days=1)
BY_B2 = Route(ComponentCode("B2"))
PAST = START - DAY


def by(pattern: str, route: str):  # type: ignore[no-untyped-def]
    return path(pattern, route, start=PAST)


async def delivered(world: World, *message_ids: str) -> None:
    await world.carry()
    for message_id in message_ids:
        assert await world["E1"].status(message_id) is Status.DELIVERED


# ---------------------------------------------------------------- routes


@pytest.mark.req("503-4.4.2-a")
async def test_the_route_follows_from_the_type_and_the_paths_of_the_recipient() -> None:
    """The application names a type and a recipient; there is nothing by which it could name a route."""
    world = World(by("A*", "INDIRECT:B1"), by("B*", "INDIRECT:B2"))
    for type_, route in (("A01", BY_B1), ("B01", BY_B2)):
        message_id = await world["E1"].send("E2", b"document", type_)
        assert (await world["E1"].enquiry.entry(Side.SENT, message_id)).route == route
    assert not {"route", "path", "broker"} & set(Document.__dataclass_fields__)
    # The owner of the paths changes them: the same call takes another way.
    world._paths = (by("A*", "INDIRECT:B2"),)
    world.directory = world.describe()
    message_id = await world["E1"].send("E2", b"document", "A01")
    assert (await world["E1"].enquiry.entry(Side.SENT, message_id)).route == BY_B2


@pytest.mark.req("503-4.4.2-c")
async def test_all_messages_of_one_type_take_one_route_at_a_time() -> None:
    world = World(by("*", "INDIRECT:B2"), by("A*", "INDIRECT:B1"), by("A0*", "INDIRECT:B2"))
    await asyncio.gather(*(world["E1"].send("E2", b"%d" % n, "A01") for n in range(20)))
    await world["E1"].transfer.round()
    assert [c.route for c in world.post.carried] == [BY_B2] * 20


@pytest.mark.req("503-4.4.5-c")
async def test_one_endpoint_serves_several_processes_by_brokers_and_directly() -> None:
    world = World(by("A*", "INDIRECT:B1"), by("B*", "INDIRECT:B2"), by("C*", "DIRECT"), direct=True)
    ids = [await world["E1"].send("E2", b"document", type_) for type_ in ("A01", "B01", "C01")]
    await delivered(world, *ids)
    routes = [c.route for c in world.post.carried if c.sender == "E1"]
    assert {route.broker for route in routes} == {"B1", "B2", None}
    for type_, message_id in zip(("A01", "B01", "C01"), ids, strict=True):
        handed = await world["E2"].handover.receive(type_)
        assert handed.entry is not None
        assert handed.entry.message_id == message_id


# ---------------------------------------------------------------- inside and outside


@pytest.mark.req("503-4.3-a")
async def test_no_acknowledgement_reaches_an_application() -> None:
    """Acknowledgements carry the type of their message: whoever asks for that type gets none of them."""
    world = World()
    one = world["E1"]
    message_id = await one.send("E2")
    test = await one.submission.test_connectivity("app", "E2", "BP1-A")
    await world.carry()
    await world["E2"].handover.confirm(message_id)
    await world.carry()
    assert await one.status(message_id) is Status.RECEIVED
    assert await one.status(test) is Status.DELIVERED
    acknowledgements = [
        fields
        for c in world.post.carried
        if (fields := decode(c.data).fields).internal_type.is_acknowledgement
    ]
    kinds = {fields.internal_type for fields in acknowledgements}
    assert len(kinds) == 3
    for code in ("E1", "E2"):
        endpoint = world[code]
        for channel in Channel:
            assert (await endpoint.handover.receive("BP1-A", channel=channel)).entry is None
            assert await endpoint.handover.waiting("BP1-A", 0, 10, channel) == []
        found = await endpoint.store.read(lambda work: work.box.search(Search(), 100).entries)
        assert {e.metadata.internal_type for e in found} <= {
            InternalType.STANDARD_MESSAGE,
            InternalType.TRACING_MESSAGE,
        }
        for fields in acknowledgements:
            with pytest.raises(Refusal) as unknown:
                await endpoint.handover.confirm(fields.message_id)
            assert unknown.value.rule is Rule.MESSAGE_UNKNOWN
            with pytest.raises(Refusal):
                await endpoint.enquiry.status(fields.message_id)


@pytest.mark.req("503-5.6.1-g")
async def test_a_message_that_was_uploaded_is_delivering_and_its_status_accepted() -> None:
    world = World()
    world.post.bend = lambda carried: None
    message_id = await world["E1"].send("E2")
    assert await world["E1"].state(Side.SENT, message_id) is State.ACCEPTED
    await world["E1"].transfer.round()
    assert await world["E1"].state(Side.SENT, message_id) is State.DELIVERING
    assert await world["E1"].status(message_id) is Status.ACCEPTED


# ---------------------------------------------------------------- storage


@pytest.fixture
async def stored(tmp_path: Path) -> AsyncIterator[tuple[World, Path]]:
    """A world whose endpoints have their messages on disk."""
    world = World()
    stores = {}
    for code in ("E1", "E2"):
        stores[code] = world[code].context.store = SqliteStore.open(tmp_path / code, code)
    yield world, tmp_path
    for store in stores.values():
        await store.close()


@pytest.mark.req("503-5.9-d")
@pytest.mark.parametrize("size", [60, 400_000])
async def test_contents_are_stored_unencrypted(stored: tuple[World, Path], size: int) -> None:
    world, folder = stored
    document = b"<Schedule>clear text of this test</Schedule>" * (size // 40)
    message_id = await world["E1"].send("E2", document)
    await delivered(world, message_id)
    for code, side in (("E1", Side.SENT), ("E2", Side.RECEIVED)):
        kept = await world[code].context.store.read(
            lambda work, side=side: work.box.content(side, message_id)
        )
        assert kept == document
        files = [f.read_bytes() for f in (folder / code).rglob("*") if f.is_file()]
        assert any(document[:44] in data for data in files)
    # What travelled between them was not.
    assert all(document[:44] not in c.data for c in world.post.carried)


@pytest.mark.req("503-5.9-h")
async def test_the_history_of_exchanged_messages_can_be_browsed() -> None:
    world = World()
    sent = [await world["E1"].send("E2", b"%d" % n, ba_message_id=f"DOC-{n}") for n in range(5)]
    came = await world["E2"].send("E1", b"answer")
    await world.carry()
    browse = world["E1"].enquiry.search
    page, more = await browse(Search(), 4, None)
    rest, end = await browse(Search(), 4, more)
    assert [e.message_id for e in (*page, *rest)] == [came, *reversed(sent)]
    assert end is None
    (found,), _ = await browse(Search(ba_message_id="DOC-3"), 10, None)
    assert found.message_id == sent[3]
    events = [line.event for line in await world["E1"].trace(sent[3])]
    assert events == [Event.ACCEPT, Event.TRANSFERRED, Event.DELIVERY_ACKNOWLEDGED]


# ---------------------------------------------------------------- AMQP and versions


@pytest.mark.req("503-9.2-b")
@pytest.mark.req("503-9.1-a", component="endpoint")
async def test_every_internal_message_tells_its_version_in_both_places() -> None:
    world = World()
    message_id = await world["E1"].send("E2")
    await world["E1"].submission.test_connectivity("app", "E2", "BP1-A")
    await world.carry()
    await world["E2"].handover.confirm(message_id)
    await world.carry()
    assert len({decode(c.data).fields.internal_type for c in world.post.carried}) == 5
    for carried in world.post.carried:
        assert versions(carried) == (2, 2)


def versions(carried: Carried) -> tuple[object, object]:
    """Read from the octets: the application-property, and the element of the metadata."""
    sections = split(carried.data)
    told = decode_application_properties(sections)["messageMversion"]
    xml = decode(carried.data).metadata_xml
    inside = xml.partition("<messageMversion>")[2].partition("<")[0]
    return int(told), int(inside)  # type: ignore[call-overload]


def now_path(pattern: str, route: str):  # type: ignore[no-untyped-def]
    return path(pattern, route, start=datetime.now(UTC) - DAY)


@pytest.mark.req("503-9.1-b", "503-9.2-f", component="endpoint")
@pytest.mark.parametrize("header", [b"AMQP\x00\x00\x09\x01", b"AMQP\x03\x02\x00\x00", b"HTTP/1.1"])
async def test_an_endpoint_speaks_amqp_1_0_0_and_says_so_to_others(header: bytes) -> None:
    async with AmqpWorld() as world:
        one = await world.endpoint("E1", now_path("*", "DIRECT"), direct=True)
        await world.endpoint("E2", now_path("*", "DIRECT"), direct=True)
        context = client_context(authentication("E2")[1])
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port, ssl=context)
        writer.write(header)
        assert await asyncio.wait_for(reader.read(), 60) == b"AMQP\x03\x01\x00\x00"
        writer.close()


@pytest.mark.req("503-6.3-e", "503-6.3-f")
@pytest.mark.req("503-6.3-d", "503-T3-a", "503-T3-b", "503-T3-c", component="endpoint")
async def test_an_endpoint_consumes_its_own_queue_and_produces_to_the_recipients() -> None:
    """As a broker without rules sees it: whoever could attach anywhere attaches nowhere else."""
    async with AmqpWorld() as world:
        place = await world.broker("B1")
        one = await world.endpoint("E1", now_path("*", "INDIRECT:B1"))
        two = await world.endpoint("E2", now_path("*", "INDIRECT:B1"))
        await eventually(lambda: place.listeners == ["E1", "E2"])
        message_id = await one.submission.send("app", Document("E2", "A01", b"document"))
        await until(two, message_id)
        await two.handover.confirm(message_id)
        async with asyncio.timeout(60):
            while await one.enquiry.status(message_id) is not Status.RECEIVED:
                await asyncio.sleep(0.01)
        # The message went into the queue E2, its acknowledgements into E1, and no other was touched.
        assert set(place.memory.queues) == {"E1", "E2"}
        assert place.listeners == ["E1", "E2"]


async def until(endpoint, message_id: str) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(60):
        while True:
            try:
                await endpoint.enquiry.entry(Side.RECEIVED, message_id)
                return
            except Refusal:
                await asyncio.sleep(0.01)


@pytest.mark.req("503-6.3-c")
async def test_an_endpoint_with_direct_transfer_takes_messages_in_from_peers() -> None:
    async with AmqpWorld() as world:
        one = await world.endpoint("E1", now_path("*", "DIRECT"), direct=True)
        two = await world.endpoint("E2", now_path("*", "DIRECT"), direct=True)
        message_id = await one.submission.send("app", Document("E2", "A01", b"document"))
        await until(two, message_id)
        assert (await two.handover.receive("A01")).content == b"document"


@pytest.mark.req("503-T18-f")
async def test_an_endpoint_without_urls_is_not_sent_to_directly() -> None:
    """Its port is closed to everybody, and nobody has an address to dial."""
    async with AmqpWorld() as world:
        one = await world.endpoint("E1", now_path("*", "DIRECT"), direct=True)
        two = await world.endpoint("E2", now_path("*", "DIRECT"))
        assert (one.entry().takes_connections, two.entry().takes_connections) == (True, False)
        message_id = await one.submission.send("app", Document("E2", "A01", b"document"))
        async with asyncio.timeout(60):
            while Event.TRANSFER_FAILED not in [
                line.event for line in await one.enquiry.trace(Side.SENT, message_id)
            ]:
                await asyncio.sleep(0.01)
        assert await one.enquiry.status(message_id) is Status.ACCEPTED


@pytest.mark.req("503-6.1.2-a", component="endpoint")
async def test_an_endpoint_takes_tls_then_sasl_external_and_nothing_else() -> None:
    async with AmqpWorld() as world:
        one = await world.endpoint("E1", now_path("*", "DIRECT"), direct=True)
        await world.endpoint("E2", now_path("*", "DIRECT"), direct=True)
        context = client_context(authentication("E2")[1])
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port, ssl=context)
        writer.write(b"AMQP\x03\x01\x00\x00")
        offer = await asyncio.wait_for(reader.readuntil(b"EXTERNAL"), 60)
        assert offer.startswith(b"AMQP\x03\x01\x00\x00")
        assert b"ANONYMOUS" not in offer
        assert b"PLAIN" not in offer
        writer.close()
        # Without SASL there is no AMQP: the header of the second step is answered with the first.
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port, ssl=context)
        writer.write(b"AMQP\x00\x01\x00\x00")
        assert await asyncio.wait_for(reader.read(), 60) == b"AMQP\x03\x01\x00\x00"
        writer.close()


@pytest.mark.req("503-10-c", component="endpoint")
async def test_the_log_is_kept_on_disk_for_the_configured_time(tmp_path: Path) -> None:
    world = World()
    one = world["E1"]
    one.context.store = SqliteStore.open(tmp_path / "E1", "E1")
    settings = UpkeepSettings(journal_retention=10 * DAY)
    upkeep = Upkeep(one.context, Expiry(one.context), tuple, settings)
    old = await one.send("E2", b"old")
    world.clock.advance(9 * DAY)
    new = await one.send("E2", b"new")
    await upkeep.tidy_once()
    # Over a restart.
    await one.context.store.close()
    one.context.store = SqliteStore.open(tmp_path / "E1", "E1")
    assert await journalled(one) == {old, new}
    world.clock.advance(2 * DAY)
    await upkeep.tidy_once()
    assert await journalled(one) == {new}
    upkeep.settings = UpkeepSettings(journal_retention=DAY)
    await upkeep.tidy_once()
    assert await journalled(one) == set()
    await one.context.store.close()


async def journalled(one: TestEndpoint) -> set[str]:
    rows = await one.context.store.read(lambda work: work.journal.read(0, 1000))
    return {r.row.message_id for r in rows if isinstance(r.row, MessageRow)}
