"""503 cl. 5.8: an endpoint loses nothing and does nothing twice."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gridpost.core.acceptance import MaximumDurations
from gridpost.core.delivery import Event, Side, State, Status
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.links import Outcome, Peer, ReceivedDelivery, SentDelivery
from gridpost.core.message import InternalType
from gridpost.core.message_box import Retention
from gridpost.core.refusal import Refusal
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.expiry import Expiry
from gridpost.services.endpoint.submission import Document
from gridpost.stores.sqlite import SqliteStore
from gridpost.transports.amqp10 import AmqpClient
from gridpost.transports.amqp10.client import ClientConnection
from gridpost.transports.amqp10.receiver import Receiver
from gridpost.wire.mades.amqp_message import decode
from support.amqp_world import LIMITS, AmqpWorld, LiveEndpoint, authentication
from support.builders import path
from support.delivery_tag import tag_of
from support.post import World
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


PAST = datetime.now(UTC) - timedelta(days=1)


def by(broker: str, message_type: str = "*", **period: datetime):  # type: ignore[no-untyped-def]
    return path(message_type, f"INDIRECT:{broker}", **({"start": PAST} | period))


async def send(sender: LiveEndpoint, to: str, type_: str = "A01", content: bytes = b"x") -> str:
    return await sender.submission.send("app", Document(to, type_, content))


@pytest.mark.req("503-5.8.1-d", component="endpoint")
async def test_a_transfer_cut_before_its_confirmation_is_repeated_unless_it_has_expired() -> None:
    short = timedelta(seconds=3)
    durations = MaximumDurations(by_type={MessageTypePattern("SHORT"): short})
    async with AmqpWorld() as world:
        b1 = await world.broker("B1")
        e1 = await world.endpoint("E1", by("B1"), settings=EndpointSettings(durations=durations))
        e2 = await world.endpoint("E2", by("B1"))
        await eventually(lambda: b1.listeners == ["E1", "E2"])
        unconfirmed: list[ReceivedDelivery] = []
        b1.memory.on_delivery = unconfirmed.append
        kept = await send(e1, "E2", "LONG")
        lost = await send(e1, "E2", "SHORT")
        over = datetime.now(UTC) + short
        await eventually(lambda: len(unconfirmed) == 2)
        # The broker has them, but never says so: for their sender they have not been transferred.
        await b1.server.close()
        for message_id in (kept, lost):
            state = (await e1.enquiry.entry(Side.SENT, message_id)).delivery.state
            assert state is State.ACCEPTED
        await eventually(lambda: datetime.now(UTC) > over)
        seen: list[bytes] = []

        def take(delivery: ReceivedDelivery) -> None:
            seen.append(bytes(delivery.message))
            b1.memory.queues["E2"].put(delivery.message)
            delivery.accept()

        b1.memory.on_delivery = take
        await b1.open()
        await eventually(lambda: any(kept.encode() in octets for octets in seen))
        async with asyncio.timeout(60):
            while (await e2.handover.receive("LONG")).entry is None:
                await asyncio.sleep(0.01)
        later = await send(e1, "E2", "LONG")
        await eventually(lambda: any(later.encode() in octets for octets in seen))
        assert not any(lost.encode() in octets for octets in seen)


DAY = timedelta(days=1)


@pytest.mark.req("503-5.8.3-d")
@pytest.mark.parametrize(
    "kind", [InternalType.DELIVERY_ACKNOWLEDGEMENT, InternalType.RECEIVE_ACKNOWLEDGEMENT]
)
async def test_a_repeated_acknowledgement_has_no_further_effect(kind: InternalType) -> None:
    world = World()
    one = world["E1"]
    told: list[Status] = []
    one.context.signals.on_status(lambda change: told.append(change.status))
    message_id = await one.send("E2")
    await world.carry()
    await world["E2"].handover.confirm(message_id)
    await world.carry()
    before = (await one.enquiry.entry(Side.SENT, message_id)).delivery
    (acknowledgement,) = [
        c for c in world.post.carried if decode(c.data).fields.internal_type is kind
    ]
    for _ in range(3):
        await one.arrival.arrive(acknowledgement.data, acknowledgement.route)
    assert (await one.enquiry.entry(Side.SENT, message_id)).delivery == before
    assert told == [Status.ACCEPTED, Status.DELIVERED, Status.RECEIVED]
    repeated = (await one.trace(message_id))[-3:]
    assert [line.moved for line in repeated] == [False] * 3


@pytest.mark.req("503-5.8.2-d")
@pytest.mark.parametrize("outcome", [Status.RECEIVED, Status.FAILED])
async def test_conversation_id_and_status_are_kept_for_some_time_after_the_end(
    outcome: Status,
) -> None:
    world = World()
    one = world["E1"]
    document = Document("E2", "BP1-A", b"document", conversation_id="c-1")
    message_id = await one.submission.send("app", document)
    if outcome is Status.RECEIVED:
        await world.carry()
        await world["E2"].handover.confirm(message_id)
        await world.carry()
    else:
        world.clock.advance(8 * DAY)
        await world.expire()
    assert await one.status(message_id) is outcome
    expiry = Expiry(one.context, Retention(sent_metadata=30 * DAY, sent_content=1 * DAY))
    world.clock.advance(29 * DAY)
    await expiry.purge()
    assert await one.status(message_id) is outcome
    assert await one.submission.send("app", document) == message_id
    world.clock.advance(2 * DAY)
    await expiry.purge()
    with pytest.raises(Refusal):
        await one.status(message_id)


def now_path(pattern: str, route: str):  # type: ignore[no-untyped-def]
    return path(pattern, route, start=datetime.now(UTC) - DAY)


@pytest.mark.req("503-5.8.3-a", "503-5.8.3-b", component="endpoint")
async def test_no_transfer_of_an_endpoint_is_settled_in_advance() -> None:
    """A broker that answers late: the message stays the sender's until it has said accepted."""
    async with AmqpWorld() as world:
        place = await world.broker("B1")
        one = await world.endpoint("E1", now_path("*", "INDIRECT:B1"))
        await world.endpoint("E2", now_path("*", "INDIRECT:B1"))
        taken: list[ReceivedDelivery] = []
        place.memory.on_delivery = taken.append
        message_id = await one.submission.send("app", Document("E2", "A01", b"document"))
        await eventually(lambda: taken)
        assert not taken[0].presettled
        assert await one.enquiry.entry(Side.SENT, message_id) is not None
        await asyncio.sleep(0.1)
        state = (await one.enquiry.entry(Side.SENT, message_id)).delivery.state
        assert state is State.ACCEPTED
        taken[0].accept()
        async with asyncio.timeout(60):
            while (
                await one.enquiry.entry(Side.SENT, message_id)
            ).delivery.state is not State.DELIVERING:
                await asyncio.sleep(0.01)
