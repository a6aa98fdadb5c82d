"""503 cl. 4.4.1, 6.1 to 6.3 and Table 3 on a broker: queues, links, credit, sizes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gridpost.core.links import LinkRefused, OutcomeKind
from gridpost.core.message import InternalType
from gridpost.transports.amqp10 import AmqpLimits
from gridpost.wire.amqp.sections import decode_header, split_head
from support import amqp_frames as amqp
from support.broker_process import BrokerNetwork, Inbox, broker_network, message
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def quiet(broker: BrokerNetwork) -> AsyncIterator[None]:
    yield
    await broker.close_connections()
    if await broker.depth("E2") > 0:
        await broker.receive("E2", await broker.depth("E2"))


async def emptied(broker: BrokerNetwork, code: str, depth: int = 0) -> None:
    async with asyncio.timeout(60):
        while await broker.depth(code) != depth:
            await asyncio.sleep(0.02)


@pytest.mark.req("503-4.4.1-a", "503-T3-c", component="broker")
@pytest.mark.req("503-6.3-a")
async def test_a_message_waits_until_its_recipient_comes_for_it(broker: BrokerNetwork) -> None:
    await broker.send("E1", "E2", message(body=b"wait for me"))
    assert await broker.depth("E2") == 1
    other = Inbox()
    connection = await broker.connect("E1")
    await connection.attach_consumer("E1", other, credit=10)
    (got,) = await broker.receive("E2", 1)
    assert got.endswith(b"wait for me")
    assert other.messages == []


@pytest.mark.req("503-4.4.1-c")
@pytest.mark.req("503-6.5.1-b")
@pytest.mark.parametrize("kind", list(InternalType))
async def test_every_kind_of_message_passes_alike_and_the_body_is_not_looked_at(
    broker: BrokerNetwork, kind: InternalType
) -> None:
    sent = message(kind=kind, body=b"\x00not a sealed body\xff")
    # The first element of the body is metadata in XML: here it is rubbish of the same length.
    at = sent.index(b"<")
    rubbish = sent[:at] + b"#" + sent[at + 1 :]
    outcomes = await broker.send("E1", "E2", rubbish)
    assert outcomes[0].taken
    (got,) = await broker.receive("E2", 1)
    # All but the header, which is the broker's to write, is as it was sent.
    assert got.endswith(rubbish[rubbish.index(b"\x00\x53\x73") :])


@pytest.mark.req("503-6.3-d", component="broker")
@pytest.mark.req("503-6.3-j")
async def test_a_queue_comes_with_the_first_valid_link_and_bears_the_code(
    broker: BrokerNetwork,
) -> None:
    broker.endpoint("Case-Kept@X")
    await broker.synchronised()
    connection = await broker.connect("E1")
    with pytest.raises(LinkRefused):
        await connection.attach_producer("case-kept@x")
    assert await broker.queue("Case-Kept@X") is None
    assert await broker.queue("case-kept@x") is None
    await connection.attach_producer("Case-Kept@X")
    assert await broker.depth("Case-Kept@X") == 0


@pytest.mark.req("503-6.3-k")
@pytest.mark.capability("removes_queues")
async def test_a_queue_goes_when_it_is_empty_and_unreferenced_for_long_enough(
    tmp_path: Path,
) -> None:
    queues = {"upkeep": "100ms", "remove_after": "600ms"}
    async with broker_network(tmp_path, endpoints=("E1", "E2", "E3"), queues=queues) as broker:
        connection = await broker.connect("E1")
        await connection.attach_producer("E2")
        await broker.send("E1", "E3", message(receiver="E3"))
        await asyncio.sleep(1.5)
        # One has a link, the other a message.
        assert await broker.depth("E2") == 0
        assert await broker.depth("E3") == 1
        connection.close()
        await connection.lost
        await broker.receive("E3", 1)
        await emptied(broker, "E2", -1)
        await emptied(broker, "E3", -1)


@pytest.mark.req("503-6.2-a")
async def test_a_queue_keeps_its_order_over_a_restart(tmp_path: Path) -> None:
    async with broker_network(tmp_path) as broker:
        await broker.send("E1", "E2", *(message(body=b"%03d" % at) for at in range(100)))
        assert await broker.stop() == 0
        await broker.start()
        got = await broker.receive("E2", 100)
        assert [m[-3:] for m in got] == [b"%03d" % at for at in range(100)]


@pytest.mark.req("503-6.2-b")
async def test_consumers_share_a_queue_and_no_message_goes_to_two(broker: BrokerNetwork) -> None:
    inboxes = [Inbox() for _ in range(3)]
    for inbox in inboxes[:2]:
        connection = await broker.connect("E2")
        await connection.attach_consumer("E2", inbox, credit=50)
    without_credit = await broker.connect("E2")
    await without_credit.attach_consumer("E2", inboxes[2], credit=0)
    connection = await broker.connect("E1")
    producer = await connection.attach_producer("E2")
    bodies = [b"%04d" % at for at in range(600)]
    outcomes = await asyncio.gather(*(producer.send(message(body=b)) for b in bodies))
    assert all(outcome.taken for outcome in outcomes)
    await eventually(lambda: sum(len(i.messages) for i in inboxes) >= 600)
    await emptied(broker, "E2")
    got = sorted(m[-4:] for inbox in inboxes for m in inbox.messages)
    assert got == bodies
    assert inboxes[2].messages == []
    assert min(len(inbox.messages) for inbox in inboxes[:2]) > 100


@pytest.mark.req("503-6.2-c")
@pytest.mark.req("503-5.8.1-c", "503-5.8.1-d", component="broker")
async def test_a_message_leaves_its_queue_only_when_the_consumer_has_settled_it(
    broker: BrokerNetwork,
) -> None:
    await broker.send("E1", "E2", message(body=b"once"))
    silent = Inbox(accept=False)
    connection = await broker.connect("E2")
    await connection.attach_consumer("E2", silent, credit=10)
    await eventually(lambda: silent.messages)
    assert await broker.depth("E2") == 1
    connection.close()
    await connection.lost
    (again,) = await broker.receive("E2", 1)
    # AMQP 3.2.1: the second attempt says that there was a first; delivery-count is 1.
    assert again[:8] != silent.messages[0][:8] or again != silent.messages[0]
    assert b"\x70\x00\x00\x00\x01" in again[:24]
    await emptied(broker, "E2")
    late = Inbox()
    third = await broker.connect("E2")
    await third.attach_consumer("E2", late, credit=10)
    await asyncio.sleep(0.3)
    assert late.messages == []


@pytest.mark.req("503-6.2-d", component="broker")
async def test_one_endpoint_may_have_several_links_to_a_queue(broker: BrokerNetwork) -> None:
    sending, receiving = await broker.connect("E1"), await broker.connect("E2")
    inboxes = [Inbox() for _ in range(3)]
    for inbox in inboxes:
        await receiving.attach_consumer("E2", inbox, credit=5)
    producers = [await sending.attach_producer("E2") for _ in range(3)]
    for producer in producers:
        assert (await producer.send(message())).taken
    await eventually(lambda: sum(len(inbox.messages) for inbox in inboxes) == 3)


@pytest.mark.req("503-6.1.5-b", component="broker")
async def test_no_more_is_transferred_than_credit_was_granted(broker: BrokerNetwork) -> None:
    await broker.send("E1", "E2", *(message() for _ in range(10)))
    inbox = Inbox(accept=False)
    connection = await broker.connect("E2")
    await connection.attach_consumer("E2", inbox, credit=1)
    await eventually(lambda: inbox.messages)
    await asyncio.sleep(0.3)
    assert len(inbox.messages) == 1


@pytest.mark.timeout(600)
@pytest.mark.req("503-6.1.5-a", component="broker")
async def test_a_message_of_64_mib_passes_in_small_frames(broker: BrokerNetwork) -> None:
    body = bytes(range(256)) * (64 * 4096)
    limits = AmqpLimits(max_frame_size=4096, close_seconds=0.5)
    sending = await broker.connect("E1", limits=limits)
    producer = await sending.attach_producer("E2")
    assert (await asyncio.wait_for(producer.send(message(body=body)), 240)).taken
    inbox = Inbox()
    receiving = await broker.connect("E2", limits=limits)
    await receiving.attach_consumer("E2", inbox, credit=1)
    await eventually(lambda: inbox.messages, 240)
    assert len(inbox.messages) == 1
    assert inbox.messages[0].endswith(body)


@pytest.mark.req("503-6.3-h", component="broker")
async def test_the_maximum_size_is_configured_announced_and_enforced(tmp_path: Path) -> None:
    async with broker_network(tmp_path, limits={"max_message_size": 20_000}) as broker:
        connection = await broker.connect("E1")
        producer = await connection.attach_producer("E2")
        assert (await producer.send(message(body=bytes(15_000)))).taken
        outcome = await producer.send(message(body=bytes(20_001)))
        # Our client reads the announcement and does not even try.
        assert outcome.kind is OutcomeKind.REJECTED
        assert outcome.condition == "amqp:link:message-size-exceeded"
        # One that tries all the same loses its link.
        peer = await broker.raw("E1")
        await peer.say(amqp.attach("one", 0, amqp.SENDER, "E2"))
        assert (await peer.expect(amqp.ATTACH))[10] == 20_000
        await peer.expect(amqp.FLOW)
        await peer.say(amqp.transfer(0, 0, message(body=bytes(20_001))))
        gone = await peer.expect(amqp.DETACH)
        assert amqp.condition(gone[2]) == "amqp:link:message-size-exceeded"
        await peer.close()
        assert await broker.depth("E2") == 1


@pytest.mark.req("503-6.1.5-a", component="broker")
async def test_of_a_message_that_is_cut_midway_nothing_is_stored(broker: BrokerNetwork) -> None:
    before = await broker.depth("E2")
    whole = message(body=b"in two frames")
    for end in ("connection", "link", "aborted"):
        peer = await broker.raw("E1")
        await peer.say(amqp.attach("one", 0, amqp.SENDER, "E2"))
        await peer.expect(amqp.ATTACH, amqp.FLOW)
        await peer.say(amqp.transfer(0, 0, whole[:-5], more=True))
        if end == "link":
            await peer.say(amqp.detach(0))
            await peer.expect(amqp.DETACH)
        elif end == "aborted":
            await peer.say(amqp.transfer(0, 0, b"", aborted=True))
        await peer.close()
    # The same id, whole, is no duplicate: nothing of it was taken before.
    (outcome,) = await broker.send("E1", "E2", whole)
    assert outcome.taken
    assert await broker.depth("E2") == max(0, before) + 1
    got = await broker.receive("E2", 1)
    assert got[-1].endswith(b"in two frames")


@pytest.mark.req("503-6.3-h", "503-5.8.3-b", component="broker")
async def test_exactly_once_is_negotiated_when_the_peer_asks_for_it(broker: BrokerNetwork) -> None:
    connection = await broker.connect("E1")
    producer = await connection.attach_producer("E2", exactly_once=True)
    outcome = await producer.send(message())
    assert outcome.taken
    # The broker is the receiver here: it settles second, after us.
    assert not outcome.settled
    (got,) = await broker.receive("E2", 1)
    assert got


@pytest.mark.req("503-6.1.6-a", component="broker")
async def test_after_a_loss_everything_is_attached_anew(broker: BrokerNetwork) -> None:
    sent = message(body=b"before and after")
    first = await broker.connect("E1")
    producer = await first.attach_producer("E2")
    waiting = producer.send(sent)
    first.abort()
    await first.lost
    await waiting
    second = await broker.connect("E1")
    again = await second.attach_producer("E2")
    assert (await again.send(sent)).taken
    # Stored once, though it was sent twice.
    got = await broker.receive("E2", 1)
    assert len(got) == 1


@pytest.mark.req("503-6.1.6-a", component="broker")
@pytest.mark.capability("stops_duplicates")
async def test_what_was_open_in_both_directions_at_a_loss_is_delivered_and_stored_once(
    broker: BrokerNetwork,
) -> None:
    """Nothing is resumed: each side begins anew, and what the broker had stored it knows again."""
    first, second = message(body=b"1"), message(body=b"2")
    await broker.send("E1", "E2", first)
    silent = Inbox(accept=False)
    receiving = await broker.connect("E2")
    await receiving.attach_consumer("E2", silent, credit=1)
    await eventually(lambda: silent.messages)
    sending = await broker.connect("E1")
    producer = await sending.attach_producer("E2", exactly_once=True)
    # Accepted by the broker, not settled by us.
    assert not (await producer.send(second)).settled
    for connection in (receiving, sending):
        connection.abort()
        await connection.lost
    async with asyncio.timeout(60):
        while (await broker.ask("/connections")).json():
            await asyncio.sleep(0.02)
    (again,) = await broker.send("E1", "E2", second)
    assert again.taken
    got = await broker.receive("E2", 2)
    assert [octets[-1:] for octets in got] == [b"1", b"2"]
    assert [decode_header(split_head(octets)).delivery_count for octets in got] == [1, 0]
    await emptied(broker, "E2")
