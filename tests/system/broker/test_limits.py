"""A slow, silent or hostile client costs bounded memory and time, and nobody else notices."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from gridpost.core.links import LinkRefused
from gridpost.transports.amqp10.tls import client_context
from gridpost.wire.amqp.codec import encode
from gridpost.wire.amqp.types import Described, ULong
from support import amqp_frames as amqp
from support.amqp_frames import RawPeer
from support.broker_process import BrokerNetwork, Inbox, amqp_credentials, broker_network, message
from support.process import resident
from support.soak import Soak
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
MIB = 1024 * 1024
# AMQP 4.5.2, 4.5.6 and 3.4.3
DECLARE = encode(Described(ULong(0x77), Described(ULong(0x31), [])))
DECLARED, REJECTED = 0x33, 0x25


async def works(broker: BrokerNetwork) -> None:
    (outcome,) = await broker.send("E1", "E2", message(body=b"still here"))
    assert outcome.taken
    got = await broker.receive("E2", 1)
    assert got[-1].endswith(b"still here")


async def test_noise_before_and_after_sasl_is_survived(broker: BrokerNetwork, soak: Soak) -> None:
    chance = random.Random(soak.seed)
    context = client_context(amqp_credentials(broker.members["E1"], broker.directory.pki.root))
    starts = (b"", amqp.SASL_HEADER, amqp.SASL_HEADER + amqp.sasl_init("EXTERNAL", b""))
    tries, past_sasl = soak.scale(300), 0
    for number in range(tries):
        secure = number % 2 == 0
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", broker.port, ssl=context if secure else None
            )
            start = starts[number // 2 % 3]
            if secure and start is starts[-1] and (not past_sasl or chance.random() < 0.7):
                # The outcome of SASL and the header of AMQP have come: the noise is behind them.
                await asyncio.wait_for(RawPeer(reader, writer).greet(), 10)
                start = b""
                past_sasl += 1
            size = chance.randrange(1, 400)
            noise = chance.randbytes(size)
            if chance.random() < 0.5:
                noise = (8 + size).to_bytes(4, "big") + b"\x02\x00\x00\x00" + noise
            writer.write(start + noise)
            await writer.drain()
            await asyncio.wait_for(reader.read(200), 0.2)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
    assert not broker.ended
    await works(broker)
    assert past_sasl > 0
    soak.report(connections=tries, past_sasl=past_sasl)


async def test_a_slow_reader_holds_up_nobody_and_costs_little(tmp_path: Path) -> None:
    async with broker_network(tmp_path, endpoints=("E1", "E2", "E3")) as broker:
        connection = await broker.connect("E1")
        producer = await connection.attach_producer("E2")
        body = bytes(MIB)
        for _ in range(80):
            assert (await producer.send(message(body=body))).taken
        assert broker.process is not None
        before = resident(broker.process.pid)
        # Grants credit for everything and then reads nothing: the kernel's buffers fill up.
        inbox = Inbox(accept=False)
        slow = await broker.connect("E2")
        await slow.attach_consumer("E2", inbox, credit=100)
        assert slow.stream is not None
        slow.stream.pause_reading()
        (outcome,) = await broker.send("E1", "E3", message(receiver="E3"))
        assert outcome.taken
        assert len(await broker.receive("E3", 1)) == 1
        await asyncio.sleep(1)
        assert resident(broker.process.pid) - before < 64 * MIB
        slow.stream.resume_reading()
        await eventually(lambda: len(inbox.messages) == 80, 60)


async def test_a_silent_client_is_dropped_before_it_has_said_anything(tmp_path: Path) -> None:
    limits = {"handshake": "5s", "max_connections_per_component": 2, "max_links": 3}
    async with broker_network(tmp_path, limits=limits) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
        first = await broker.connect("E1")
        await broker.connect("E1")
        with pytest.raises(LinkRefused, match="amqp:resource-limit-exceeded"):
            await broker.connect("E1")
        for _ in range(3):
            await first.attach_producer("E2")
        with pytest.raises(LinkRefused, match="amqp:resource-limit-exceeded"):
            await first.attach_producer("E2")


async def test_a_client_that_keeps_to_its_credit_gets_everything_through(
    broker: BrokerNetwork,
) -> None:
    connection = await broker.connect("E1")
    producer = await connection.attach_producer("E2")
    outcomes = await asyncio.gather(*(producer.send(message()) for _ in range(2_000)))
    assert all(outcome.taken for outcome in outcomes)
    got = await broker.receive("E2", 2_000)
    assert len(got) == 2_000


async def test_a_client_that_sends_more_than_its_credit_is_cut_off_alone(tmp_path: Path) -> None:
    async with broker_network(tmp_path, limits={"credit": 10}) as broker:
        context = client_context(amqp_credentials(broker.members["E1"], broker.directory.pki.root))
        peer = RawPeer(*await asyncio.open_connection("127.0.0.1", broker.port, ssl=context))
        await peer.greet()
        await peer.say(amqp.open_(), amqp.begin(), amqp.attach("one", 0, amqp.SENDER, "E2"))
        credit = (await peer.expect(amqp.ATTACH, amqp.FLOW))[6]
        assert credit == 10
        # In one TLS record, which is read at once: no credit comes back in between.
        await peer.say(*(amqp.transfer(0, number, b"x") for number in range(100)))
        gone = await peer.expect(amqp.DETACH)
        assert amqp.condition(gone[2]) == "amqp:link:transfer-limit-exceeded"
        await peer.close()
        await works(broker)


async def test_a_connection_has_as_many_open_transactions_as_the_configuration_says(
    tmp_path: Path,
) -> None:
    async with broker_network(tmp_path, queues={"open_transactions": 2}) as broker:
        if "rabbitmq" in broker.configuration:
            pytest.skip("this store has no transactions")
        context = client_context(amqp_credentials(broker.members["E1"], broker.directory.pki.root))
        peer = RawPeer(*await asyncio.open_connection("127.0.0.1", broker.port, ssl=context))
        await peer.greet()
        control = amqp.attach("control", 9, amqp.SENDER, None, coordinator=True)
        await peer.say(amqp.open_(), amqp.begin(), control)
        await peer.expect(amqp.ATTACH, amqp.FLOW)
        for number in range(2):
            await peer.say(amqp.transfer(9, number, DECLARE))
            assert (await peer.expect(amqp.DISPOSITION))[4].descriptor == DECLARED
        await peer.say(amqp.transfer(9, 2, DECLARE))
        refused = (await peer.expect(amqp.DISPOSITION))[4]
        assert refused.descriptor == REJECTED
        assert refused.value[0].value[0] == "amqp:resource-limit-exceeded"
        await peer.close()
