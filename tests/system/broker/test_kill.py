"""Messages while the broker is killed and started again: every one of them is accounted for."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from gridpost.core.identifiers import new_message_id
from gridpost.core.links import LinkRefused, Outcome, OutcomeKind, ReceivedDelivery
from gridpost.wire.amqp.sections import decode_header, split_head
from support.broker_process import BrokerNetwork, Inbox, broker_network, message
from support.soak import Soak
from support.waiting import eventually

CREDIT = 200
WINDOW = 200


class Sender:
    """Sends each message until it is accepted, over as many connections as that takes."""

    def __init__(self, network: BrokerNetwork, bodies: dict[str, bytes]) -> None:
        self._network = network
        self.open = bodies
        self.accepted: set[str] = set()

    async def run(self) -> None:
        while self.open:
            try:
                connection = await self._network.connect("E1")
                producer = await connection.attach_producer("E2")
            except (LinkRefused, OSError, TimeoutError):
                await asyncio.sleep(0.05)
                continue
            while self.open and not connection.lost.done():
                batch = list(self.open.items())[:WINDOW]
                outcomes = await asyncio.gather(*(producer.send(body) for _, body in batch))
                self._note([name for name, _ in batch], outcomes)
            connection.close()
            await connection.lost

    def _note(self, names: list[str], outcomes: list[Outcome]) -> None:
        for name, outcome in zip(names, outcomes, strict=True):
            if outcome.taken:
                self.accepted.add(name)
                del self.open[name]
            else:
                # While it stops, the broker may give a message back; it never refuses one.
                assert outcome.kind is not OutcomeKind.REJECTED, outcome


class Receiver:
    def __init__(self, network: BrokerNetwork) -> None:
        self._network = network
        self.got: Counter[str] = Counter()
        self.redelivered = 0

    def take(self, delivery: ReceivedDelivery) -> None:
        octets = bytes(delivery.message)
        self.got[octets[-36:].decode()] += 1
        delivery.accept()

    async def run(self) -> None:
        while True:
            try:
                connection = await self._network.connect("E2")
                await connection.attach_consumer("E2", self.take, credit=CREDIT)
                # Shielded: the end of this task is not the end of the connection.
                await asyncio.shield(connection.lost)
            except (LinkRefused, OSError, TimeoutError):
                await asyncio.sleep(0.05)


@pytest.mark.timeout(1800)
async def test_nothing_is_lost_or_invented_while_the_broker_is_killed(
    tmp_path: Path, soak: Soak
) -> None:
    count, kills = soak.scale(10_000), max(2, soak.scale(20))
    chance = random.Random(soak.seed)
    async with broker_network(tmp_path) as network:
        names: list[str] = [new_message_id() for _ in range(count)]
        # Some are files, most are rows.
        bodies = {
            name: message(
                message_id=name, body=bytes(chance.choice((10, 1_000, 300_000))) + name.encode()
            )
            if chance.random() < 0.05
            else message(message_id=name, body=name.encode())
            for name in names
        }
        sender, receiver = Sender(network, bodies), Receiver(network)
        receiving = asyncio.create_task(receiver.run())
        sending = asyncio.create_task(sender.run())
        for number in range(kills):
            # Each kill comes at another point of the work that is left.
            goal = (number + chance.random()) * count / kills
            while len(sender.accepted) < goal and not sending.done():
                await asyncio.sleep(0.001)
            await asyncio.sleep(chance.random() * 0.05)
            await network.kill()
            await network.start()
        await sending
        async with asyncio.timeout(120):
            while len(receiver.got) < count or await network.depth("E2") > 0:
                await asyncio.sleep(0.1)
        receiving.cancel()
        depth = await network.depth("E2")
    duplicates = sum(n - 1 for n in receiver.got.values())
    lost = sender.accepted - set(receiver.got)
    invented = set(receiver.got) - set(names)
    soak.report(
        messages=count,
        kills=kills,
        accepted=len(sender.accepted),
        delivered=len(receiver.got),
        duplicated=duplicates,
        lost=len(lost),
        invented=len(invented),
    )
    assert (len(lost), len(invented), depth) == (0, 0, 0)
    assert len(receiver.got) == count
    # At least once: only what was under way at a kill can come twice.
    assert duplicates <= kills * CREDIT


def delivery_count(octets: bytes) -> int:
    return decode_header(split_head(octets)).delivery_count


async def test_deliveries_that_were_open_when_the_broker_was_killed_are_counted(
    tmp_path: Path,
) -> None:
    """AMQP 3.2.1: a count above zero tells the consumer that it may have had the message already."""
    async with broker_network(tmp_path) as broker:
        sent = [message(body=b"%d" % number) for number in range(5)]
        await broker.send("E1", "E2", *sent)
        inbox = Inbox(accept=False)
        connection = await broker.connect("E2")
        await connection.attach_consumer("E2", inbox, credit=3)
        await eventually(lambda: len(inbox.messages) == 3, 60)
        assert [delivery_count(octets) for octets in inbox.messages] == [0, 0, 0]
        # Accepted after the three were handed out: the store keeps its order.
        await broker.send("E1", "E1", message(receiver="E1"))
        await broker.kill()
        await connection.lost
        await broker.start()
        got = await broker.receive("E2", 5)
        assert [octets[-1:] for octets in got] == [b"0", b"1", b"2", b"3", b"4"]
        assert [delivery_count(octets) for octets in got] == [1, 1, 1, 0, 0]
        assert await broker.stop() == 0
