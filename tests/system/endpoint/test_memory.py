"""Memory of a directory, a broker and two endpoints while very many documents pass: it stays flat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gridpost.core.links import ReceivedDelivery
from gridpost.transports.free_port import free_port
from gridpost.wire.application_amqp import OutboxMessage, read_any, write_outbox
from support.amqp_application import AmqpApplication
from support.network import Network, network
from support.process import resident
from support.soak import Soak
from support.waiting import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(7200)]

MIB = 1024 * 1024
DOCUMENT = 3_000
WINDOW = 100
PARTS = 10
SLACK = 32 * MIB
"""The page cache of a store, which a short run has not filled after half of its way."""
PER_MESSAGE = 256
"""Octets that each further message may cost; one entry of any table in memory is more."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def net(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    async with network(tmp_path_factory.mktemp("flat")) as found:
        await found.broker("B1")
        await found.start("B1")
        for code in ("E1", "E2"):
            port = found.ports[f"{code} amqp"] = free_port()
            # Log lines of so many messages would fill the memory of the test.
            last = f"[log]\nmessages = false\n[amqp]\nport = {port}\n"
            last += '[[bindings]]\nmessage_type = "*"\nchannel = "amqp"\n'
            await found.endpoint(code, "INDIRECT:B1", last=last)
        await found.start("E1", "E2")
        await found.known("E1", "E2")
        await found.known("E2", "E1")
        yield found


class Steady(AmqpApplication):
    """Counts and keeps nothing: as many under way as `room` allows, until each is RECEIVED."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.room = asyncio.Semaphore(WINDOW)
        self.taken = self.received = self.failed = 0

    async def send_one(self, number: int) -> None:
        content = str(number).encode().ljust(DOCUMENT, b".")
        message = OutboxMessage("E2", "FLAT", content, conversation_id=f"flat-{number}")
        await self.until_taken(write_outbox(message, str(number)))

    def _document(self, delivery: ReceivedDelivery) -> None:
        self.taken += 1
        delivery.accept()

    def _reply(self, delivery: ReceivedDelivery) -> None:
        assert "messageID" in read_any(delivery.message).application_properties
        delivery.accept()

    def _event(self, delivery: ReceivedDelivery) -> None:
        body = read_any(delivery.message).body
        delivery.accept()
        if body in ("RECEIVED", "FAILED"):
            self.received += body == "RECEIVED"
            self.failed += body == "FAILED"
            self.room.release()


def residents(net: Network) -> dict[str, int]:
    found = {}
    for code, running in {**net.components, net.code: net.directory}.items():
        assert running.process is not None
        found[code] = resident(running.process.pid)
    return found


async def test_memory_is_flat_however_many_messages_pass(net: Network, soak: Soak) -> None:
    # 100,000 in a soak; the square keeps a small run short: a thousand.
    count = max(PARTS, soak.scale(soak.scale(100_000)) // PARTS * PARTS)
    marks = [residents(net)]
    async with (
        Steady(net.ports["E1 amqp"]) as sender,
        Steady(net.ports["E2 amqp"]) as recipient,
    ):
        sender.consume()
        recipient.consume()
        for part in range(PARTS):
            first = part * count // PARTS
            numbers = range(first, first + count // PARTS)
            async with asyncio.TaskGroup() as group:
                for number in numbers:
                    await sender.room.acquire()
                    group.create_task(sender.send_one(number))
            await eventually(lambda sent=numbers.stop: sender.received + sender.failed == sent, 600)
            marks.append(residents(net))
    assert (sender.received, sender.failed, recipient.taken) == (count, 0, count)
    half, end = marks[PARTS // 2], marks[-1]
    soak.report(
        messages=count,
        **{f"{code} (MiB)": " ".join(str(m[code] // MIB) for m in marks) for code in end},
    )
    grown = {code: end[code] - half[code] for code in end}
    allowed = SLACK + PER_MESSAGE * count // 2
    assert {code: octets for code, octets in grown.items() if octets > allowed} == {}, marks
