"""Many connections to a running broker, and one that tries to come back without its certificate."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gridpost.transports.amqp10.sasl import AMQP_HEADER, SASL_HEADER
from gridpost.transports.amqp10.tls import client_context
from support import amqp_frames as amqp
from support.amqp_frames import RawPeer
from support.broker_process import BrokerNetwork, amqp_credentials, broker_network, message
from support.process import resident
from support.soak import Soak

KIB = 1024
HEARTBEAT = amqp.frame(b"")
UNAUTHORISED = b"amqp:unauthorized-access"


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """As many as this, for the test's own ends of the connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"only {hard} descriptors are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.timeout(600)
async def test_thousands_of_idle_connections_are_fine(tmp_path: Path, soak: Soak) -> None:
    """5,000 in a soak. The broker itself starts with the few descriptors that a shell has."""
    count = soak.scale(5_000)
    limits = {"max_connections_per_component": 10_000}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with descriptors(count + 300):
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        async with broker_network(tmp_path, start=False, limits=limits) as broker:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
            try:
                await broker.start()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
            await _idle(broker, count, soak)


async def _idle(broker: BrokerNetwork, count: int, soak: Soak) -> None:
    assert broker.process is not None
    root = broker.directory.pki.root
    context = client_context(amqp_credentials(broker.members["E1"], root))
    peers: list[RawPeer] = []
    at_once = asyncio.Semaphore(20)

    async def connect() -> None:
        async with at_once:
            peer = RawPeer(*await asyncio.open_connection("127.0.0.1", broker.port, ssl=context))
            await peer.greet()
            await peer.say(amqp.open_("idle", 16_384))
            await peer.expect(amqp.OPEN)
            peers.append(peer)

    async def stay_alive() -> None:
        """An idle peer is not a silent one: AMQP 2.4.5 asks for empty frames."""
        while True:
            await asyncio.sleep(5)
            for peer in peers:
                peer.writer.write(HEARTBEAT)

    alive = asyncio.create_task(stay_alive())
    before = resident(broker.process.pid)
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(connect() for _ in range(count)))
    seconds = asyncio.get_running_loop().time() - began
    assert len((await broker.ask("/connections")).json()) == count
    grown = resident(broker.process.pid) - before
    # The others are served as if nobody else were there.
    (outcome,) = await broker.send("E2", "E1", message("E2", "E1", body=b"still here"))
    assert outcome.taken
    (got,) = await broker.receive("E1", 1)
    assert got.endswith(b"still here")
    assert (await broker.ask("/health")).status_code == 200
    soak.report(
        connections=count,
        kib_each=round(grown / count / KIB, 1),
        connects_per_second=round(count / seconds),
        resident_mb=round(resident(broker.process.pid) / 1e6, 1),
    )
    assert grown < count * 200 * KIB + 16 * KIB * KIB
    alive.cancel()
    for peer in peers:
        peer.writer.transport.abort()
    async with asyncio.timeout(60):
        while (await broker.ask("/connections")).json():
            await asyncio.sleep(0.1)


def greet(
    context: ssl.SSLContext, port: int, session: ssl.SSLSession | None = None
) -> ssl.SSLSocket:
    """TLS, SASL EXTERNAL and OPEN; the broker has taken the certificate."""
    tls = context.wrap_socket(socket.create_connection(("127.0.0.1", port), 60), session=session)
    tls.sendall(SASL_HEADER + amqp.sasl_init("EXTERNAL", b"") + AMQP_HEADER + amqp.open_("E3"))
    assert tls.recv(8) == SASL_HEADER
    return tls


def heard_to_the_end(tls: ssl.SSLSocket) -> bytes:
    """Everything until the broker hangs up; a timeout is an error."""
    said = b""
    while more := tls.recv(4096):
        said += more
    return said


@pytest.mark.req("503-8.6-f", component="broker")
async def test_a_revoked_client_does_not_come_back_by_resuming_its_tls_session(
    tmp_path: Path,
) -> None:
    versions = {"E3": ssl.TLSVersion.TLSv1_2, "E4": ssl.TLSVersion.TLSv1_3}
    async with broker_network(tmp_path, endpoints=("E1", "E2", *versions)) as broker:
        contexts, opened = {}, {}
        for code, version in versions.items():
            context = client_context(
                amqp_credentials(broker.members[code], broker.directory.pki.root)
            )
            context.minimum_version = context.maximum_version = version
            first = await asyncio.to_thread(greet, context, broker.port)
            assert first.session is not None
            second = await asyncio.to_thread(greet, context, broker.port, first.session)
            contexts[code], opened[code] = context, [first, second]
            broker.revoke(code)
        await broker.synchronised()
        for code, (first, second) in opened.items():
            third = await asyncio.to_thread(greet, contexts[code], broker.port, first.session)
            # What is open is closed at the synchronisation, and the session opens nothing new.
            for tls in (first, second, third):
                assert UNAUTHORISED in await asyncio.to_thread(heard_to_the_end, tls)
                assert not tls.session_reused
                tls.close()
        (taken,) = await broker.send("E1", "E2", message())
        assert taken.taken
