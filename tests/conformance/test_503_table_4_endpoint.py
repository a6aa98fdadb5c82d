"""503 Table 4, the rules of an endpoint that takes direct transfers. Real AMQP over real TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from gridpost.core.certificate import CertificateKind
from gridpost.core.delivery import Side, Status
from gridpost.core.identifiers import ComponentCode, MessageType, new_message_id
from gridpost.core.instant import Instant
from gridpost.core.journal import RefusalRow
from gridpost.core.links import LinkRefused, OutcomeKind, Peer
from gridpost.core.message import InternalType, Metadata, SealedMessage
from gridpost.services.endpoint.submission import Document
from gridpost.transports.amqp10 import AmqpClient, TlsCredentials
from gridpost.transports.amqp10.client import ClientConnection
from gridpost.wire.mades.amqp_message import encode
from support.amqp_world import LIMITS, AmqpWorld, LiveEndpoint, authentication
from support.builders import directory, path
from support.waiting import eventually

PAST = datetime.now(UTC) - timedelta(days=1)
DIRECT = path("*", "DIRECT", start=PAST)


@dataclass
class Setup:
    world: AmqpWorld
    server: LiveEndpoint

    async def connect(self, code: str, own: TlsCredentials | None = None) -> ClientConnection:
        shown = own or authentication(code)[1]

        async def anyone(peer: Peer) -> None:
            pass

        url = f"amqps://127.0.0.1:{self.server.port}"
        client = AmqpClient([url], container=code, tls=lambda: shown, check=anyone, limits=LIMITS)
        return await client.connect()

    async def refusals(self) -> list[str]:
        rows = await self.server.store.read(lambda work: work.journal.read(0, 1000))
        return [r.row.rule for r in rows if isinstance(r.row, RefusalRow)]


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    async with AmqpWorld() as world:
        server = await world.endpoint("E1", DIRECT, direct=True)
        await world.endpoint("E2", DIRECT, direct=True)
        await world.broker("B1")
        yield Setup(world, server)


def message(sender: str = "E2", receiver: str = "E1") -> bytes:
    now = datetime.now(UTC)
    metadata = Metadata(
        message_id=new_message_id(),
        receiver_code=ComponentCode(receiver),
        message_type=MessageType("A01"),
        generated=Instant.of(now),
        expiration_time=Instant.of(now + timedelta(hours=1)),
        sender_code=ComponentCode(sender),
        internal_type=InternalType.STANDARD_MESSAGE,
    )
    return encode(SealedMessage(metadata, b"sealed"), None, now)


@pytest.mark.req("503-4.4.1-b")
@pytest.mark.req("503-T4-e")
async def test_a_direct_transfer_and_its_acknowledgements_need_no_broker(setup: Setup) -> None:
    await setup.world.brokers["B1"].server.close()
    sender, recipient = setup.world["E2"], setup.server
    message_id = await sender.submission.send("app", Document("E1", "A01", b"document"))
    await _until(sender, message_id, Status.DELIVERED)
    await recipient.handover.confirm(message_id)
    await _until(sender, message_id, Status.RECEIVED)


@pytest.mark.req("503-T4-b", component="endpoint")
async def test_plain_amqp_is_not_answered(setup: Setup) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.server.port)
    writer.write(b"AMQP\x00\x01\x00\x00")
    async with asyncio.timeout(60):
        answer = await reader.read()
    assert not answer.startswith(b"AMQP")
    writer.close()


@pytest.mark.req("503-T4-c", component="endpoint")
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("B1", CertificateKind.AUTHENTICATION),
        ("E2", CertificateKind.SIGNING),
        ("STRANGER", CertificateKind.AUTHENTICATION),
    ],
    ids=["a broker", "a signing certificate", "not in the directory"],
)
async def test_only_the_authentication_certificate_of_an_endpoint_opens_a_connection(
    setup: Setup, code: str, kind: CertificateKind
) -> None:
    _, own = authentication(code, kind)
    with pytest.raises(LinkRefused):
        connection = await setup.connect(code, own)
        await connection.attach_producer("E1")
    # What TLS itself refuses never gets as far as a reason of ours.
    assert await setup.refusals() or kind is CertificateKind.SIGNING


@pytest.mark.req("503-T4-g")
@pytest.mark.req("503-6.3-g", component="endpoint")
@pytest.mark.parametrize("queue", ["E1", "E2", "E9"])
async def test_nobody_consumes_from_an_endpoint(setup: Setup, queue: str) -> None:
    connection = await setup.connect("E2")
    with pytest.raises(LinkRefused) as refused:
        await connection.attach_consumer(queue, lambda delivery: None, credit=1)
    assert refused.value.condition == "amqp:not-allowed"
    assert await setup.refusals() == ["CONSUMER_ON_ENDPOINT"]
    connection.close()
    await connection.lost


@pytest.mark.req("503-T4-i")
async def test_a_producer_is_attached_to_the_code_of_the_server_only(setup: Setup) -> None:
    connection = await setup.connect("E2")
    with pytest.raises(LinkRefused):
        await connection.attach_producer("E2")
    producer = await connection.attach_producer("E1")
    assert producer.attached
    connection.close()
    await connection.lost


@pytest.mark.req("503-T4-j", component="endpoint")
@pytest.mark.req("503-T4-l", component="endpoint")
@pytest.mark.req("503-6.3-g", component="endpoint")
@pytest.mark.parametrize(
    ("sender", "receiver", "rule"),
    [("E2", "E3", "RECEIVER_NOT_QUEUE"), ("E9", "E1", "SENDER_NOT_CONNECTED_PEER")],
)
async def test_a_message_with_a_wrong_address_is_rejected(
    setup: Setup, sender: str, receiver: str, rule: str
) -> None:
    connection = await setup.connect("E2")
    producer = await connection.attach_producer("E1")
    outcome = await producer.send(message(sender, receiver))
    assert outcome.kind is OutcomeKind.REJECTED
    async with asyncio.timeout(60):
        while rule not in await setup.refusals():
            await asyncio.sleep(0.01)
    connection.close()
    await connection.lost


@pytest.mark.req("503-T4-a", component="endpoint")
async def test_a_revoked_peer_is_put_out_and_stays_out(setup: Setup) -> None:
    connection = await setup.connect("E2")
    producer = await connection.attach_producer("E1")
    setup.world.publish(without="E2")
    await eventually(lambda: connection.lost.done())
    assert not producer.attached
    with pytest.raises(LinkRefused):
        again = await setup.connect("E2")
        await again.attach_producer("E1")


@pytest.mark.req("503-T4-a", component="endpoint")
@pytest.mark.req("503-T4-k", component="endpoint")
async def test_the_directory_is_asked_again_at_every_operation(setup: Setup) -> None:
    """Also between a synchronisation and the look at open connections that follows it."""
    connection = await setup.connect("E2")
    producer = await connection.attach_producer("E1")
    known = setup.world.directory
    for gone in ("E2", "E1"):
        entries = [c for s in known.subsystems.values() for c in s.components if c.code != gone]
        setup.world.directory = directory(*entries)
        outcome = await producer.send(message())
        assert outcome.kind is OutcomeKind.REJECTED
        if gone == "E2":
            with pytest.raises(LinkRefused):
                await connection.attach_producer("E1")
    setup.world.directory = known
    connection.close()
    await connection.lost


async def _until(one: LiveEndpoint, message_id: str, status: Status) -> None:
    async with asyncio.timeout(60):
        while await one.enquiry.status(message_id) is not status:
            await asyncio.sleep(0.01)
    assert (await one.enquiry.entry(Side.SENT, message_id)).delivery.status is status
