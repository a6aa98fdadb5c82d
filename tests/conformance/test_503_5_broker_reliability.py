"""503 cl. 5.6.2, 5.7 to 5.9 on a broker: expiry, duplicates, safe storage, who says what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from gridpost.core.identifiers import new_message_id
from gridpost.core.journal import RefusalRow, TransferRow
from gridpost.core.links import LinkRefused, OutcomeKind
from support.broker_process import BrokerNetwork, Inbox, broker_network, message
from support.edges import journal_of
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def quiet(broker: BrokerNetwork) -> AsyncIterator[None]:
    yield
    await broker.close_connections()


async def depth_is(broker: BrokerNetwork, code: str, wanted: int) -> None:
    async with asyncio.timeout(60):
        while await broker.depth(code) != wanted:
            await asyncio.sleep(0.02)


def expired(**options: object) -> bytes:
    """Made an hour ago, with a life of a minute: the sender's queue was long."""
    then = datetime.now(UTC) - timedelta(hours=1)
    return message(now=then, lives=timedelta(minutes=1), **options)  # type: ignore[arg-type]


@pytest.mark.req("503-5.7-h")
@pytest.mark.req("503-5.9-e")
async def test_a_message_that_expires_in_its_queue_is_not_transferred(
    broker: BrokerNetwork,
) -> None:
    await broker.send("E1", "E2", message(lives=timedelta(milliseconds=500)))
    await asyncio.sleep(0.6)
    inbox = Inbox()
    connection = await broker.connect("E2")
    await connection.attach_consumer("E2", inbox, credit=10)
    await depth_is(broker, "E2", 0)
    assert inbox.messages == []


@pytest.mark.req("503-5.7-j", component="broker")
async def test_a_message_that_arrives_expired_is_accepted_and_ignored(
    broker: BrokerNetwork,
) -> None:
    (outcome,) = await broker.send("E1", "E2", expired())
    assert outcome.taken
    assert await broker.depth("E2") == 0


@pytest.mark.req("503-5.6.2-a", component="broker")
@pytest.mark.capability("drops_expired")
async def test_a_broker_sends_no_message_of_its_own(broker: BrokerNetwork) -> None:
    inbox = Inbox()
    connection = await broker.connect("E1")
    await connection.attach_consumer("E1", inbox, credit=10)
    await broker.send("E1", "E2", expired(), message(receiver="E9"), b"\x00\x53\x77\x40")
    await broker.send("E1", "E2", message(lives=timedelta(milliseconds=300)))
    await depth_is(broker, "E2", 0)
    assert inbox.messages == []
    assert await broker.depth("E1") == 0


@pytest.mark.req("503-5.8.1-e", "503-5.8.1-h", "503-5.9-b", component="broker")
@pytest.mark.capability("stops_duplicates")
async def test_a_message_that_comes_again_is_confirmed_and_delivered_once(
    tmp_path: Path,
) -> None:
    async with broker_network(tmp_path) as broker:
        sent = message(body=b"twice")
        assert [o.taken for o in await broker.send("E1", "E2", sent, sent)] == [True, True]
        assert len(await broker.receive("E2", 1)) == 1
        # Outbound is settled; the sender never heard of it, and tries once more.
        assert (await broker.send("E1", "E2", sent))[0].taken
        await broker.kill()
        await broker.start()
        assert (await broker.send("E1", "E2", sent))[0].taken
        assert await broker.depth("E2") == 0


@pytest.mark.req("503-5.8.1-a", "503-5.9-a", "503-5.9-c", component="broker")
async def test_what_was_confirmed_survives_a_kill(tmp_path: Path) -> None:
    async with broker_network(tmp_path) as broker:
        bodies = [b"%d" % at + bytes(size) for at, size in enumerate((0, 1_000, 300_000))]
        outcomes = await broker.send("E1", "E2", *(message(body=body) for body in bodies))
        await broker.kill()
        assert all(outcome.taken for outcome in outcomes)
        await broker.start()
        got = await broker.receive("E2", 3)
        assert [m.endswith(body) for m, body in zip(got, bodies, strict=True)] == [True] * 3


@pytest.mark.req("503-5.8.1-c", component="broker")
async def test_what_was_settled_is_not_sent_again_after_a_kill(tmp_path: Path) -> None:
    async with broker_network(tmp_path) as broker:
        await broker.send("E1", "E2", message())
        inbox = Inbox()
        connection = await broker.connect("E2")
        await connection.attach_consumer("E2", inbox, credit=10)
        await depth_is(broker, "E2", 0)
        await broker.kill()
        await broker.start()
        assert await broker.depth("E2") == 0


@pytest.mark.req("503-5.8.1-b", component="broker")
async def test_open_deliveries_have_tags_of_their_own(broker: BrokerNetwork) -> None:
    await broker.send("E1", "E2", *(message() for _ in range(20)))
    inbox = Inbox(accept=False)
    connection = await broker.connect("E2")
    await connection.attach_consumer("E2", inbox, credit=50)
    await eventually(lambda: len(inbox.messages) == 20)
    tags = {_tag(delivery) for delivery in inbox.deliveries}
    assert len(tags) == 20
    for delivery in inbox.deliveries:
        delivery.accept()
    await depth_is(broker, "E2", 0)


def _tag(delivery: object) -> bytes:
    from support.delivery_tag import tag_of

    return tag_of(delivery)


@pytest.mark.req("503-5.8.1-g", component="broker")
async def test_a_message_may_be_delivered_before_its_sender_has_settled(
    broker: BrokerNetwork,
) -> None:
    inbox = Inbox()
    receiving = await broker.connect("E2")
    await receiving.attach_consumer("E2", inbox, credit=10)
    sending = await broker.connect("E1")
    producer = await sending.attach_producer("E2", exactly_once=True)
    outcome = await producer.send(message())
    assert not outcome.settled
    await eventually(lambda: inbox.messages)


@pytest.mark.req("503-5.8.1-i", component="broker")
async def test_an_unsettled_message_that_expires_is_not_sent_again(broker: BrokerNetwork) -> None:
    silent = Inbox(accept=False)
    connection = await broker.connect("E2")
    await connection.attach_consumer("E2", silent, credit=10)
    producer = await (await broker.connect("E1")).attach_producer("E2")
    assert (await producer.send(message(lives=timedelta(seconds=5)))).taken
    await eventually(lambda: silent.messages)
    await asyncio.sleep(5.1)
    connection.close()
    await connection.lost
    await depth_is(broker, "E2", 0)
    inbox = Inbox()
    again = await broker.connect("E2")
    await again.attach_consumer("E2", inbox, credit=10)
    await asyncio.sleep(0.3)
    assert inbox.messages == []


@pytest.mark.req("503-5.8.3-b", component="broker")
async def test_links_that_would_not_settle_are_refused(broker: BrokerNetwork) -> None:
    from gridpost.transports.amqp10.engine import lib

    connection = await broker.connect("E1")
    real = lib.pn_link_set_snd_settle_mode
    pn = lib.pn_sender(connection._live_session(), b"presettled")
    lib.pn_terminus_set_address(lib.pn_link_target(pn), b"E2")
    real(pn, lib.PN_SND_SETTLED)
    from gridpost.core.links import Attachment
    from gridpost.transports.amqp10.sender import Sender

    with pytest.raises(LinkRefused, match="amqp:not-implemented"):
        await connection._attach(Sender(connection, pn, Attachment("", "E2")), pn)


@pytest.mark.req("503-10-a", "503-10-b", "503-5.6.2-c", component="broker")
async def test_transfers_and_refusals_are_in_the_journal(tmp_path: Path) -> None:
    async with broker_network(tmp_path) as broker:
        name = new_message_id()
        refused = new_message_id()
        outcomes = await broker.send(
            "E1",
            "E2",
            message(message_id=name, message_type="BP-7"),
            message(message_id=refused, receiver="E9"),
        )
        assert [o.kind for o in outcomes] == [OutcomeKind.ACCEPTED, OutcomeKind.REJECTED]
        # A download that is cut: the consumer vanishes before it has said anything.
        silent = Inbox(accept=False)
        cut = await broker.connect("E2")
        await cut.attach_consumer("E2", silent, credit=1)
        await eventually(lambda: silent.messages)
        cut.abort()
        await cut.lost
        await broker.receive("E2", 1)
        await depth_is(broker, "E2", 0)
        # 503-10-c: it is on the disk whatever happens to the process.
        await broker.kill()
        rows = list(journal_of(broker))
    transfers = [row for row in rows if isinstance(row, TransferRow)]
    assert [(t.side, t.outcome, t.peer) for t in transfers if t.message_id == name] == [
        ("received", "accepted", "E1"),
        ("sent", "not settled", "E2"),
        ("sent", "accepted", "E2"),
    ]
    assert {(t.sender_code, t.receiver_code, t.message_type) for t in transfers} == {
        ("E1", "E2", "BP-7")
    }
    (refusal,) = [row for row in rows if isinstance(row, RefusalRow)]
    assert (refusal.message_id, refusal.rule, refusal.peer) == (refused, "RECEIVER_NOT_QUEUE", "E1")
    assert refusal.refusal_id in outcomes[1].description
