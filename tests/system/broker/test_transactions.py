"""What becomes of messages whose transaction goes wrong (AMQP part 4): none is lost from sight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from gridpost.wire.amqp.types import Described, ULong
from support import amqp_frames as amqp
from support.amqp_frames import RawPeer
from support.broker_process import BrokerNetwork, Inbox, broker_network, message

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.capability("transactions"),
]
CONTROL, OUT, IN = 9, 1, 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BrokerNetwork]:
    queues = {
        "upkeep": "100ms",
        "remove_after": "1s",
        "transaction_messages": 2,
        "transaction_octets": 20_000,
    }
    endpoints = ("E1", "E2", "E3", "E4")
    folder = tmp_path_factory.mktemp("broker")
    async with broker_network(folder, endpoints=endpoints, queues=queues) as network:
        yield network


async def declared(peer: RawPeer) -> bytes:
    """A coordinator link, and a transaction on it; its declaration has the number 0."""
    await peer.say(amqp.attach("control", CONTROL, amqp.SENDER, None, coordinator=True))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    await peer.say(amqp.transfer(CONTROL, 0, amqp.declare()))
    state = (await peer.expect(amqp.DISPOSITION))[4]
    assert state.descriptor == amqp.DECLARED
    found = state.value[0]
    assert isinstance(found, bytes)
    return found


async def outcome(peer: RawPeer) -> int:
    """The outcome of a transfer, also where it is one inside a transaction."""
    state = (await peer.expect(amqp.DISPOSITION))[4]
    if state.descriptor == amqp.TRANSACTIONAL:
        state = state.value[1]
    return int(state.descriptor)


def within(transaction: bytes) -> Any:
    return Described(ULong(amqp.TRANSACTIONAL), [transaction])


async def emptied(broker: BrokerNetwork, code: str, bodies: set[bytes]) -> None:
    """A consumer that comes now gets all of these, and then the queue is empty."""
    inbox = Inbox()
    connection = await broker.connect(code)
    await connection.attach_consumer(code, inbox, credit=10)
    async with asyncio.timeout(30):
        while {octets[-1:] for octets in inbox.messages} < bodies:
            await asyncio.sleep(0.02)
        while (found := await broker.queue(code)) and (found["messages"] or found["under_way"]):
            await asyncio.sleep(0.02)
    connection.close()
    await connection.lost


async def test_an_outcome_in_a_transaction_that_is_not_open_gives_the_message_back(
    broker: BrokerNetwork,
) -> None:
    await broker.send("E1", "E2", message(body=b"1"))
    peer = await broker.raw("E2")
    await peer.say(amqp.attach("in", IN, amqp.RECEIVER, "E2"), amqp.flow(IN, 1))
    await peer.expect(amqp.TRANSFER)
    said = amqp.disposition(
        amqp.RECEIVER, 0, 0, settled=True, state=amqp.ACCEPTED, transaction=b"none"
    )
    await peer.say(said)
    assert amqp.condition((await peer.expect(amqp.CLOSE))[0]) == "amqp:transaction:unknown-id"
    await peer.close()
    await emptied(broker, "E2", {b"1"})


async def test_acceptances_above_the_limit_of_a_transaction_give_all_its_messages_back(
    broker: BrokerNetwork,
) -> None:
    await broker.send("E1", "E2", *(message(body=b"%d" % number) for number in range(3)))
    peer = await broker.raw("E2")
    transaction = await declared(peer)
    await peer.say(amqp.attach("in", IN, amqp.RECEIVER, "E2"), amqp.flow(IN, 3))
    await peer.expect(amqp.TRANSFER, amqp.TRANSFER, amqp.TRANSFER)
    for number in range(3):
        said = amqp.disposition(
            amqp.RECEIVER, number, number, settled=True, state=amqp.ACCEPTED,
            transaction=transaction,
        )  # fmt: skip
        await peer.say(said)
    assert amqp.condition((await peer.expect(amqp.CLOSE))[0]) == "amqp:resource-limit-exceeded"
    await peer.close()
    await emptied(broker, "E2", {b"0", b"1", b"2"})


async def test_a_queue_stays_while_a_transaction_is_open_that_puts_into_it(
    broker: BrokerNetwork,
) -> None:
    peer = await broker.raw("E1")
    transaction = await declared(peer)
    await peer.say(amqp.attach("out", OUT, amqp.SENDER, "E3"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    body = message(receiver="E3", body=b"3")
    await peer.say(amqp.transfer(OUT, 1, body, state=within(transaction)))
    assert await outcome(peer) == amqp.ACCEPTED
    await peer.say(amqp.detach(OUT))
    await peer.expect(amqp.DETACH)
    # Longer than remove_after: a queue that nobody refers to goes meanwhile.
    await broker.send("E1", "E4", message(receiver="E4", body=b"4"))
    await emptied(broker, "E4", {b"4"})
    async with asyncio.timeout(30):
        while await broker.queue("E4"):
            await asyncio.sleep(0.05)
    await peer.say(amqp.transfer(CONTROL, 2, amqp.discharge(transaction)))
    assert await outcome(peer) == amqp.ACCEPTED
    assert await broker.depth("E3") == 1
    await emptied(broker, "E3", {b"3"})
    await peer.close()
    async with asyncio.timeout(30):
        while await broker.queue("E3"):
            await asyncio.sleep(0.05)


async def test_a_queue_goes_after_the_transaction_that_put_into_it_was_rolled_back(
    broker: BrokerNetwork,
) -> None:
    peer = await broker.raw("E1")
    transaction = await declared(peer)
    await peer.say(amqp.attach("out", OUT, amqp.SENDER, "E3"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    body = message(receiver="E3", body=b"3")
    await peer.say(amqp.transfer(OUT, 1, body, state=within(transaction)))
    assert await outcome(peer) == amqp.ACCEPTED
    await peer.close()
    async with asyncio.timeout(30):
        while await broker.queue("E3"):
            await asyncio.sleep(0.05)


async def test_a_message_that_is_too_large_for_a_transaction_does_not_use_up_its_room(
    broker: BrokerNetwork,
) -> None:
    peer = await broker.raw("E1")
    transaction = await declared(peer)
    await peer.say(amqp.attach("out", OUT, amqp.SENDER, "E3"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    large = message(receiver="E3", body=bytes(30_000))
    await peer.say(amqp.transfer(OUT, 1, large, state=within(transaction)))
    assert await outcome(peer) == amqp.REJECTED
    small = message(receiver="E3", body=b"3")
    await peer.say(amqp.transfer(OUT, 2, small, state=within(transaction)))
    assert await outcome(peer) == amqp.ACCEPTED
    await peer.say(amqp.transfer(CONTROL, 3, amqp.discharge(transaction)))
    assert await outcome(peer) == amqp.ACCEPTED
    await peer.close()
    await emptied(broker, "E3", {b"3"})
