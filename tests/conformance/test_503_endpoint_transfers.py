"""503 cl. 5.8.1, 6.1.5, 9.2 and 10 on an endpoint: how it transfers, what it stops, what it writes down."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gridpost.core.delivery import Event, Side, Status
from gridpost.core.journal import AcknowledgementRow, MessageRow, RefusalRow, TransferRow
from gridpost.core.links import Outcome, Peer, ReceivedDelivery, SentDelivery
from gridpost.core.message import InternalType
from gridpost.core.refusal import Refusal
from gridpost.services.endpoint.submission import Document
from gridpost.stores.sqlite import SqliteStore
from gridpost.transports.amqp10 import AmqpClient
from gridpost.transports.amqp10.client import ClientConnection
from gridpost.transports.amqp10.receiver import Receiver
from gridpost.wire.mades.amqp_message import decode
from support.amqp_world import LIMITS, AmqpWorld, LiveEndpoint, authentication
from support.builders import path
from support.delivery_tag import tag_of
from support.post import Carried, World
from support.waiting import eventually

NOW = datetime.now(UTC) - timedelta(days=1)
BY_BROKER, DIRECT = path("*", "INDIRECT:B1", start=NOW), path("*", "DIRECT", start=NOW)


def document(number: int) -> Document:
    return Document("E2", "A01", b"document %d" % number)


@pytest.mark.req("503-5.8.1-b", component="endpoint")
async def test_open_transfers_have_identifiers_of_their_own() -> None:
    async with AmqpWorld() as world:
        place = await world.broker("B1")
        one = await world.endpoint("E1", BY_BROKER)
        await world.endpoint("E2", BY_BROKER)
        taken: list[ReceivedDelivery] = []
        place.memory.on_delivery = taken.append
        for number in range(30):
            await one.submission.send("app", document(number))
        await eventually(lambda: len(taken) == 30)
        # None of them has been answered: all are in transit at the same time.
        assert len({tag_of(delivery) for delivery in taken}) == 30


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


async def connect(server: LiveEndpoint, code: str) -> ClientConnection:
    async def anyone(peer: Peer) -> None:
        pass

    own = authentication(code)[1]
    url = f"amqps://127.0.0.1:{server.port}"
    client = AmqpClient([url], container=code, tls=lambda: own, check=anyone, limits=LIMITS)
    return await client.connect()


def exactly_once_links(server: LiveEndpoint) -> list[Receiver]:
    assert server.server is not None
    found = [link for c in server.server._connections for link in c._links.values()]
    return [link for link in found if isinstance(link, Receiver) and link.settles_second]


async def sealed(world: AmqpWorld) -> bytes:
    """A message of E1 for E2, which the broker takes and forgets."""
    taken: list[bytes] = []

    def keep(delivery: ReceivedDelivery) -> None:
        taken.append(bytes(delivery.message))
        delivery.accept()

    world.brokers["B1"].memory.on_delivery = keep
    await world["E1"].submission.send("app", document(1))
    await eventually(lambda: taken)
    world.brokers["B1"].memory.on_delivery = None
    return taken[0]


@pytest.mark.req("503-5.8.1-f", "503-5.8.1-h", component="endpoint")
async def test_a_transfer_that_its_sender_did_not_settle_is_known_after_a_restart(
    tmp_path: Path,
) -> None:
    """Its document may be with the application long before: the identifier stays."""
    async with AmqpWorld() as world:
        await world.broker("B1")
        await world.endpoint("E1", DIRECT, direct=True)
        two = await world.endpoint("E2", BY_BROKER, direct=True)
        data = await sealed(world)
        message_id = decode(data).fields.message_id
        two.context.store = SqliteStore.open(tmp_path / "E2", "E2")
        connection = await connect(two, "E1")
        producer = await connection.attach_producer("E2", exactly_once=True)
        waiting: list[SentDelivery] = []
        outcomes: list[Outcome] = []

        def keep(delivery: SentDelivery, outcome: Outcome) -> None:
            waiting.append(delivery)
            outcomes.append(outcome)

        producer.on_outcome = keep  # type: ignore[method-assign]
        producer.send(data)
        await eventually(lambda: outcomes)
        # E2 has it, and does not settle before its sender does.
        assert outcomes[0].taken
        assert not outcomes[0].settled
        (link,) = exactly_once_links(two)
        assert len(link.open) == 1
        # The way out is finished: the application has the document and confirmed it.
        assert (await two.handover.receive("A01")).content == b"document 1"
        await two.handover.confirm(message_id)
        connection.abort()
        await connection.lost
        outcomes.clear()
        waiting.clear()
        # The sender never settled, E2 starts anew, and the transfer is repeated.
        await two.context.store.close()
        two.context.store = SqliteStore.open(tmp_path / "E2", "E2")
        again = await connect(two, "E1")
        second = await again.attach_producer("E2", exactly_once=True)
        second.on_outcome = keep  # type: ignore[method-assign]
        second.send(data)
        await eventually(lambda: outcomes)
        assert outcomes[0].taken
        assert (await two.handover.receive("A01")).entry is None
        events = [line.event for line in await two.enquiry.trace(Side.RECEIVED, message_id)]
        assert events.count(Event.VERIFIED) == 1
        assert events[-1] is Event.ARRIVED_AGAIN
        # Now the sender settles, and E2 drops the record of the transfer.
        (link,) = exactly_once_links(two)
        assert len(link.open) == 1
        waiting[0].settle()
        await eventually(lambda: not link.open)
        again.close()
        await again.lost
        await two.context.store.close()


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
