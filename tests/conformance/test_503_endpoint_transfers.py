"""503 cl. 6.1.5, 9.2 and 10 on an endpoint: how it transfers, what it stops, what it writes down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gridpost.core.delivery import Event, Side, Status
from gridpost.core.journal import AcknowledgementRow, MessageRow, RefusalRow, TransferRow
from gridpost.core.links import ReceivedDelivery
from gridpost.core.message import InternalType
from gridpost.core.message_box import Search
from gridpost.core.refusal import Refusal
from gridpost.services.endpoint.submission import Document
from gridpost.wire.mades.amqp_message import decode
from support.amqp_world import LIMITS, AmqpWorld
from support.builders import path
from support.post import Carried, World
from support.waiting import eventually

NOW = datetime.now(UTC) - timedelta(days=1)
BY_BROKER, DIRECT = path("*", "INDIRECT:B1", start=NOW), path("*", "DIRECT", start=NOW)


def document(number: int) -> Document:
    return Document("E2", "A01", b"document %d" % number)


@pytest.mark.req("503-6.1.5-b", component="endpoint")
async def test_no_more_is_transferred_than_credit_was_granted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("support.amqp_world.LIMITS", replace(LIMITS, credit=1))
    async with AmqpWorld() as world:
        place = await world.broker("B1")
        one = await world.endpoint("E1", BY_BROKER)
        await world.endpoint("E2", BY_BROKER)
        taken: list[ReceivedDelivery] = []
        place.memory.on_delivery = taken.append
        for number in range(10):
            await one.submission.send("app", document(number))
        for got in range(1, 11):
            await eventually(lambda got=got: len(taken) == got)
            await asyncio.sleep(0.05)
            assert len(taken) == got
            taken[-1].accept()


@pytest.mark.req("503-9.2-d", component="endpoint")
@pytest.mark.parametrize("version", [0, 3, 99])
async def test_a_message_of_an_unknown_version_is_answered_with_a_failure(version: int) -> None:
    world = World()
    told = b"\x71" + (version).to_bytes(4, "big")

    def bend(carried: Carried) -> Carried:
        if decode(carried.data).fields.internal_type is not InternalType.STANDARD_MESSAGE:
            return carried
        return replace(carried, data=of_version(carried.data, told))

    world.post.bend = bend
    message_id = await world["E1"].send("E2")
    await world.carry()
    assert await world["E1"].status(message_id) is Status.FAILED
    with pytest.raises(Refusal):
        await world["E2"].enquiry.entry(Side.RECEIVED, message_id)
    (refusal,) = [r for r in await world["E2"].journal() if isinstance(r, RefusalRow)]
    assert refusal.rule == "MESSAGE_VERSION_UNSUPPORTED"
    assert f"version {version}" in refusal.message
    # One of a version that it knows, from the same sender, is taken.
    world.post.bend = lambda carried: carried
    known = await world["E1"].send("E2")
    await world.carry()
    assert await world["E1"].status(known) is Status.DELIVERED


def of_version(data: bytes, told: bytes) -> bytes:
    """Another number in the application-property messageMversion: an int, in either encoding."""
    key = b"messageMversion"
    at = data.index(key) + len(key)
    assert data[at : at + 2] == b"\x54\x02"
    # The map gets three octets longer: its size is one octet or four.
    start = data.index(b"\x00\x53\x74") + 3
    code = data[start]
    assert code in (0xC1, 0xD1)
    width = 1 if code == 0xC1 else 4
    size = int.from_bytes(data[start + 1 : start + 1 + width]) + 3
    head = data[: start + 1] + size.to_bytes(width)
    return head + data[start + 1 + width : at] + told + data[at + 2 :]


@pytest.mark.req("503-10-b", component="endpoint")
async def test_both_endpoints_journal_each_internal_message_with_its_facts() -> None:
    world = World()
    began = world.clock.now()
    world.clock.advance(timedelta(seconds=1))
    message_id = await world["E1"].send("E2", message_type="BP1-A")
    await world.carry()
    await world["E2"].handover.confirm(message_id)
    await world.carry()
    for code, side in (("E1", Side.SENT), ("E2", Side.RECEIVED)):
        rows = await world[code].journal()
        (row,) = [r for r in rows if isinstance(r, MessageRow)]
        assert (row.message_id, row.side) == (message_id, side)
        assert (row.sender_code, row.receiver_code, row.message_type) == ("E1", "E2", "BP1-A")
        assert row.at > began
        kinds = [
            (r.internal_type, r.side, r.sender_code, r.receiver_code, r.message_type)
            for r in rows
            if isinstance(r, AcknowledgementRow)
        ]
        back = Side.RECEIVED if code == "E1" else Side.SENT
        assert kinds == [
            (kind, back, "E2", "E1", "BP1-A")
            for kind in (
                InternalType.DELIVERY_ACKNOWLEDGEMENT,
                InternalType.RECEIVE_ACKNOWLEDGEMENT,
            )
        ]
        transfers = [r for r in rows if isinstance(r, TransferRow)]
        assert transfers
        assert {r.outcome for r in transfers} == {"transferred"}
        assert all(r.sender_code == code for r in transfers)


async def until(endpoint, message_id: str) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(60):
        while True:
            try:
                await endpoint.enquiry.entry(Side.RECEIVED, message_id)
                return
            except Refusal:
                await asyncio.sleep(0.01)


@pytest.mark.req("503-6.1.5-a", component="endpoint")
async def test_a_message_larger_than_a_frame_is_carried_in_several_transfers() -> None:
    document = b"x" * 3_000_000
    assert len(document) > 10 * LIMITS.max_frame_size
    async with AmqpWorld() as world:
        await world.broker("B1")
        one = await world.endpoint("E1", BY_BROKER)
        two = await world.endpoint("E2", BY_BROKER)
        message_id = await one.submission.send("app", Document("E2", "A01", document))
        await until(two, message_id)
        assert (await two.handover.receive("A01")).content == document


@asynccontextmanager
async def cut_after(port: int, octets: int) -> AsyncIterator[int]:
    """A way to this port that ends when so many octets have gone there."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)

        async def answer() -> None:
            while data := await there.read(65536):
                writer.write(data)

        answers = asyncio.create_task(answer())
        passed = 0
        while passed < octets and (data := await reader.read(65536)):
            passed += len(data)
            back.write(data)
            await back.drain()
        answers.cancel()
        for stream in (writer, back):
            stream.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.mark.req("503-6.1.5-a", component="endpoint")
async def test_of_a_message_that_is_cut_midway_nothing_is_stored() -> None:
    async with AmqpWorld() as world:
        one = await world.endpoint("E1", DIRECT, direct=True)
        two = await world.endpoint("E2", DIRECT, direct=True)
        begun = one.inbound.under_way

        async def empty() -> bool:
            rows = await one.store.read(lambda work: work.journal.read(0, 10))
            found, _ = await one.enquiry.search(Search(), 10, None)
            return not rows and not found

        async with cut_after(one.port, 1_000_000) as port:
            straight, one.port = one.port, port
            world.publish()
            message_id = await two.submission.send("app", Document("E1", "A01", b"x" * 3_000_000))
            async with asyncio.timeout(60):
                while Event.TRANSFER_FAILED not in [
                    line.event for line in await two.enquiry.trace(Side.SENT, message_id)
                ]:
                    await asyncio.sleep(0.01)
            assert await empty()
            assert one.inbound.under_way == begun
        # The next attempt, on a way that holds, brings all of it.
        one.port = straight
        world.publish()
        await until(one, message_id)
        assert (await one.handover.receive("A01")).content == b"x" * 3_000_000
