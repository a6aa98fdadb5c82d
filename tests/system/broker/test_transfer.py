"""Messages through a running broker."""

from __future__ import annotations

import asyncio

import pytest

from gridpost.core.journal import TransferRow
from gridpost.core.links import OutcomeKind
from support.broker_process import BrokerNetwork, Inbox, message
from support.edges import journal_of
from support.failing_consumer import fails_again_and_again
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_message_waits_in_its_queue_until_its_recipient_comes(
    broker: BrokerNetwork,
) -> None:
    sent = message(body=b"hello")
    (outcome,) = await broker.send("E1", "E2", sent)
    assert outcome.taken
    assert await broker.depth("E2") == 1
    (got,) = await broker.receive("E2", 1)
    assert got.endswith(b"hello")
    assert await broker.depth("E2") == 0


async def test_a_large_message_passes_unchanged(broker: BrokerNetwork) -> None:
    body = bytes(range(256)) * 4 * 1024 * 16  # 16 MiB
    (outcome,) = await broker.send("E1", "E2", message(body=body))
    assert outcome.taken
    (got,) = await broker.receive("E2", 1)
    assert got.endswith(body)


async def test_a_thousand_messages_stay_in_order(broker: BrokerNetwork) -> None:
    connection = await broker.connect("E1")
    producer = await connection.attach_producer("E2")
    futures = [producer.send(message(body=b"%06d" % at)) for at in range(1000)]
    outcomes = await asyncio.gather(*futures)
    assert all(outcome.taken for outcome in outcomes)
    got = await broker.receive("E2", 1000)
    assert [m[-6:] for m in got] == [b"%06d" % at for at in range(1000)]


async def test_a_consumer_that_goes_gives_its_messages_back(broker: BrokerNetwork) -> None:
    await broker.send("E1", "E2", *(message(body=b"%d" % at) for at in range(3)))
    silent = Inbox(accept=False)
    connection = await broker.connect("E2")
    await connection.attach_consumer("E2", silent, credit=10)
    await eventually(lambda: len(silent.messages) == 3)
    connection.close()
    await connection.lost
    got = await broker.receive("E2", 3)
    assert [m[-1:] for m in got] == [b"0", b"1", b"2"]


async def test_a_message_that_fails_again_and_again_steps_aside(broker: BrokerNetwork) -> None:
    name = await fails_again_and_again(broker, broker)
    found = [row for row in journal_of(broker) if isinstance(row, TransferRow)]
    tried = [row.detail for row in found if row.message_id == name and row.outcome == "not settled"]
    assert tried == ["attempt 1", "attempt 2", "attempt 4"]


async def test_a_message_without_a_required_field_is_rejected(broker: BrokerNetwork) -> None:
    (outcome,) = await broker.send("E1", "E2", b"\x00\x53\x77\xa1\x02hi")
    assert outcome.kind is OutcomeKind.REJECTED
