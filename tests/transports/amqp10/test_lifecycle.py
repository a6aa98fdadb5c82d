"""How connections end: expiry, orderly stop, and what operators see meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gridpost.core.links import LinkRefused, OutcomeKind, Peer, ReceivedDelivery
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10 import AmqpLimits
from gridpost.transports.amqp10.engine import lib, set_condition
from support.amqp_frames import CLOSE, SASL_HEADER, RawPeer, condition, frame, open_
from support.waiting import eventually

TAKEN = OutcomeKind.ACCEPTED


async def test_a_connection_ends_when_its_certificate_expires(setup: Any, clock: Any) -> None:
    setup.broker.until = datetime.now(UTC) + timedelta(hours=1)
    connection = await setup.connect("E1")
    setup.broker.until = datetime.now(UTC) + timedelta(hours=3)
    longer = await setup.connect("E2")
    assert [view.until is None for view in setup.server.connections()] == [False, False]
    clock.ahead = timedelta(hours=2)
    condition, description = await connection.lost
    assert condition == "amqp:unauthorized-access"
    assert "CERTIFICATE_EXPIRED" in description
    assert not longer.closed


async def test_a_peer_that_does_not_answer_close_is_cut(setup: Any) -> None:
    peer = RawPeer(*await setup.raw())
    await peer.greet()
    await peer.say(open_())
    await eventually(lambda: setup.server.connections())
    (connection,) = setup.server._connections
    connection.close(Refusal(Rule.PEER_UNKNOWN, "gone"))
    await eventually(lambda: not setup.server.connections(), 3)
    await peer.close()


@pytest.mark.parametrize("fault", ["refused", "protocol", "header"])
async def test_a_peer_that_goes_on_talking_still_gets_to_read_the_reason(
    setup: Any, fault: str
) -> None:
    """A socket that is closed with something unread makes TCP drop what the peer has not read."""

    async def refuse(peer: Peer) -> None:
        raise Refusal(Rule.PEER_NOT_ALLOWED, "not you")

    peer = RawPeer(*await setup.raw())
    if fault == "header":
        await peer.say(b"AMQP\x00\x00\x09\x01")
    else:
        if fault == "refused":
            setup.broker.on_admit = refuse
        await peer.greet()
        await peer.say(open_() if fault == "refused" else frame(b"\x00\x53\x7f\x45"))
    for _ in range(5):
        await asyncio.sleep(0.02)
        with contextlib.suppress(ConnectionError):  # the server may have hung up
            await peer.say(frame(b"") * 1_000)
    if fault == "header":
        assert await peer.reader.readexactly(8) == SASL_HEADER
    else:
        expected = "unauthorized-access" if fault == "refused" else "connection:framing-error"
        assert condition((await peer.expect(CLOSE))[0]) == f"amqp:{expected}"
    await peer.close()


async def test_drain_waits_for_decisions_and_then_closes(setup: Any) -> None:
    held: list[ReceivedDelivery] = []
    setup.broker.on_delivery = held.append
    connection = await setup.connect()
    producer = await connection.attach_producer("E2")
    sent = producer.send(b"x")
    await eventually(lambda: held)
    draining = asyncio.create_task(setup.server.drain(10))
    await asyncio.sleep(0.05)
    assert not draining.done()
    with pytest.raises(LinkRefused, match="amqp:connection:forced"):
        await connection.attach_producer("E3")
    held[0].accept()
    assert await draining
    assert (await sent).kind is TAKEN
    assert (await connection.lost)[0] == "amqp:connection:forced"
    with pytest.raises(LinkRefused, match="gridpost:unreachable"):
        await setup.client("E2").connect()


async def test_drain_says_when_it_had_to_cut_something(setup: Any) -> None:
    held: list[ReceivedDelivery] = []
    setup.broker.on_delivery = held.append
    connection = await setup.connect()
    producer = await connection.attach_producer("E2")
    sent = producer.send(b"x")
    await eventually(lambda: held)
    assert not await setup.server.drain(0.1)
    assert (await sent).kind is not TAKEN
    held[0].accept()


async def test_operators_see_who_is_connected(setup: Any) -> None:
    connection = await setup.connect("E7")
    await connection.attach_producer("E2")
    (view,) = setup.server.connections()
    assert view.identity == "E7"
    assert view.links == 1
    assert view.octets_in > 500
    assert view.octets_out > 500
    assert view.undecided_octets == 0


async def test_new_limits_count_for_new_connections(setup: Any) -> None:
    await setup.connect("E1")
    setup.server.limits = AmqpLimits(max_message_size=1000, close_seconds=0.5)
    producer = await (await setup.connect("E2")).attach_producer("E3")
    assert producer._max_message_size == 1000


async def test_a_client_that_closes_is_forgotten(setup: Any) -> None:
    connection = await setup.connect()
    producer = await connection.attach_producer("E2")
    connection.close()
    assert (await connection.lost)[0]
    assert (await producer.send(b"x")).kind is OutcomeKind.UNSENT
    await eventually(lambda: not setup.broker.connections)
    assert setup.server.connections() == []
    assert setup.broker.producers == []


async def test_both_sides_keep_an_idle_connection_up_with_heartbeats(setup: Any) -> None:
    setup.server.limits = AmqpLimits(idle_seconds=2, close_seconds=0.5)
    connection = await setup.connect(limits=AmqpLimits(idle_seconds=2))
    producer = await connection.attach_producer("E2")
    await asyncio.sleep(4)
    assert (await producer.send(b"x")).taken


async def test_a_client_notices_a_server_that_fell_silent(setup: Any) -> None:
    connection = await setup.connect(limits=AmqpLimits(idle_seconds=0.4, close_seconds=0.2))
    server_side = next(iter(setup.server._connections))
    server_side._timer.cancel()
    server_side._tick = lambda: None
    condition, _ = await connection.lost
    assert condition == "amqp:resource-limit-exceeded"


async def test_the_end_of_its_session_by_the_server_ends_a_client_with_the_reason(
    setup: Any,
) -> None:
    """Some brokers refuse a link by ending the session it came on."""
    connection = await setup.connect()
    server_side = next(iter(setup.server._connections))
    await eventually(lambda: server_side.sessions)
    (session,) = server_side.sessions
    set_condition(lib.pn_session_condition(session), "amqp:invalid-field", "unknown destination")
    lib.pn_session_close(session)
    server_side.touch()
    assert await connection.lost == ("amqp:invalid-field", "unknown destination")


async def test_a_broker_that_sends_a_little_more_than_its_credit_is_borne_with(
    setup: Any, closed_inbox: Any
) -> None:
    """RabbitMQ does that; our own server holds its clients to their credit."""
    for n in range(10):
        setup.broker.queues["E1"].put(b"%d" % n)
    connection = await setup.connect()
    consumer = await connection.attach_consumer("E1", closed_inbox, credit=5)
    consumer._link._credit = 3
    await eventually(lambda: len(closed_inbox.messages) == 5)
    assert consumer.attached
    for _ in range(2):
        for delivery in list(closed_inbox.deliveries):
            delivery.accept()
        await asyncio.sleep(0.05)
    await eventually(lambda: len(closed_inbox.messages) == 10)
