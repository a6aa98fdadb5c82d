"""What peers cost the server's process: large messages, slow readers, many connections."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gridpost.assembly.clock import SystemClock
from gridpost.transports.amqp10 import AmqpClient, AmqpLimits, AmqpServer, ClientConnection
from gridpost.transports.amqp10.tls import client_context
from support import amqp_frames as amqp
from support.amqp_frames import RECEIVER, RawPeer
from support.server_process import ServerProcess, server_process

MIB = 1024 * 1024


@pytest.fixture
def keep() -> int:
    return 1_000_000


@pytest.fixture
def server(authority: Any, keep: int) -> Iterator[ServerProcess]:
    # Thousands of connections take a busy machine minutes, and those who wait say nothing meanwhile.
    limits = AmqpLimits(
        handshake_seconds=60,
        idle_seconds=3600,
        close_seconds=0.5,
        max_connections_per_identity=10_000,
    )
    with server_process(authority.credentials("B1"), limits, keep=keep) as process:
        yield process


def client(server: ServerProcess, authority: Any, code: str = "E1") -> AmqpClient:
    own = authority.credentials(code)
    url = f"amqps://127.0.0.1:{server.tls_port}"
    return AmqpClient([url], container=code, tls=lambda: own)


async def raw_peer(server: ServerProcess, context: Any) -> RawPeer:
    peer = RawPeer(*await asyncio.open_connection("127.0.0.1", server.tls_port, ssl=context))
    await peer.greet()
    await peer.say(amqp.open_("slow", 16_384))
    await peer.expect(amqp.OPEN)
    return peer


@pytest.fixture
async def connection(server: ServerProcess, authority: Any) -> AsyncIterator[ClientConnection]:
    connection = await client(server, authority).connect()
    yield connection
    connection.close()
    await connection.lost


@pytest.mark.parametrize("keep", [0])
async def test_a_message_of_64_mib_is_held_once(
    server: ServerProcess, connection: ClientConnection
) -> None:
    producer = await connection.attach_producer("E2")
    assert (await producer.send(b"warm-up" * 1000)).taken
    before = server.state().resident
    for _ in range(4):
        assert (await producer.send(b"header", b"x" * (64 * MIB))).taken
        assert server.state().peak - before < 1.25 * 64 * MIB + 12 * MIB
    assert server.state().resident - before < 6 * MIB


@pytest.mark.parametrize(("count", "size"), [(60, MIB), (30_000, 1024)])
async def test_a_consumer_that_does_not_read_costs_no_memory(
    server: ServerProcess,
    authority: Any,
    connection: ClientConnection,
    count: int,
    size: int,
) -> None:
    producer = await connection.attach_producer("E1")
    body = b"x" * size
    await asyncio.gather(*(producer.send(body) for _ in range(count)))
    before = server.state()
    assert before.queued == count
    peers = []
    for _ in range(4):
        peer = await raw_peer(server, client_context(authority.credentials("E1")))
        await peer.say(amqp.begin(), amqp.attach("in", 0, RECEIVER, "E1"), amqp.flow(0, 100_000))
        await peer.expect(amqp.ATTACH)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peers.append(peer)
    await asyncio.sleep(1)
    after = server.state()
    assert after.resident - before.resident < 12 * MIB
    # Somebody else is served as if the slow ones were not there.
    assert (await producer.send(b"y")).taken
    for peer in peers:
        peer.writer.transport.abort()
    async with asyncio.timeout(60):
        while server.state().queued != count + 1:
            await asyncio.sleep(0.05)


@pytest.mark.timeout(900)
async def test_thousands_of_idle_connections_cost_little(
    server: ServerProcess, authority: Any, soak: Any
) -> None:
    """2,000 of them; 5,000 in a soak."""
    count = max(2_000, soak.scale(5_000))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < count + 200:
        pytest.skip(f"only {most} descriptors are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    context = client_context(authority.credentials("E1"))
    before = server.state()
    peers: list[RawPeer] = []
    at_once = asyncio.Semaphore(20)

    async def connect() -> None:
        async with at_once:
            peers.append(await raw_peer(server, context))

    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(connect() for _ in range(count)))
    connecting = loop.time() - began
    there = server.state()
    assert there.connections == count
    each = (there.resident - before.resident) / count
    began = loop.time()
    await asyncio.sleep(2)
    rested = server.state()
    idle = (rested.cpu - there.cpu) / (loop.time() - began)

    connection = await client(server, authority).connect()
    producer = await connection.attach_producer("E2")
    began = loop.time()
    for _ in range(200):
        assert (await producer.send(b"x" * 1024)).taken
    round_trip = (loop.time() - began) / 200
    work = (server.state().cpu - rested.cpu) / 200
    connection.close()
    await connection.lost
    soak.report(
        connections=count,
        kib_each=round(each / 1024, 1),
        connects_per_second=round(count / connecting),
        idle_cpu_percent=round(idle * 100, 2),
        round_trip_ms=round(round_trip * 1000, 2),
    )
    for peer in peers:
        peer.writer.transport.abort()
    assert each < 150 * 1024
    assert idle < 0.2
    # What others cost a message; the time that it takes is a matter of the machine.
    assert work < 0.02
    async with asyncio.timeout(60):
        while server.state().connections:
            await asyncio.sleep(0.05)


async def test_a_new_limit_of_all_connections_together_counts_at_once() -> None:
    limits = AmqpLimits()
    server = AmqpServer(container="B1", clock=SystemClock(), limits=limits)
    ledger = server.ledger_for_connection()
    assert ledger.fits(100 * 1024 * 1024)
    small = 1024 * 1024
    server.limits = replace(
        limits,
        max_message_size=small,
        max_incoming_octets=small,
        max_incoming_octets_total=small,
    )
    assert not ledger.fits(2 * small)
