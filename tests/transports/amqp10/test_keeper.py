"""Keeping a connection up: back-off, several addresses, SOCKS, and what has to be repeated."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gridpost.core.links import LinkRefused, Outcome, OutcomeKind, ReceivedDelivery
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10 import AmqpLimits, AmqpServer, Backoff, SessionKeeper, SocksProxy
from support.waiting import eventually

QUICK = Backoff(first=0.02, most=0.1)


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
async def keeper(setup: Any) -> AsyncIterator[SessionKeeper]:
    kept = SessionKeeper(setup.client("E1"), backoff=QUICK)
    yield kept
    await kept.close()


def test_waits_grow_to_a_limit_and_differ() -> None:
    backoff = Backoff(first=1, most=60)
    for failures, full in ((0, 1), (3, 8), (6, 60), (1_000, 60)):
        waits = [backoff.wait(failures) for _ in range(100)]
        assert full / 2 <= min(waits) < max(waits) <= full


async def test_a_producer_and_a_consumer_come_back_after_a_loss(
    setup: Any, keeper: SessionKeeper, inbox: Any
) -> None:
    producer = keeper.producer("E1")
    consumer = keeper.consumer("E1", inbox, credit=10)
    await producer.ready()
    await consumer.ready()
    assert (await producer.send(b"one")).taken
    await eventually(lambda: setup.broker.outcomes)
    next(iter(setup.server._connections)).abort()
    await eventually(lambda: not producer.attached)
    assert (await producer.send(b"two")).kind is OutcomeKind.UNSENT
    await producer.ready()
    assert (await producer.send(b"two")).taken
    await eventually(lambda: inbox.messages == [b"one", b"two"])
    await consumer.ready()


async def test_a_send_whose_outcome_was_to_come_is_reported_as_lost(
    setup: Any, keeper: SessionKeeper
) -> None:
    held: list[ReceivedDelivery] = []
    setup.broker.on_delivery = held.append
    producer = keeper.producer("E2")
    await producer.ready()
    sent = [producer.send(b"%d" % n) for n in range(setup.server.limits.credit + 10)]
    await eventually(lambda: len(held) == setup.server.limits.credit)
    next(iter(setup.server._connections)).abort()
    outcomes = await asyncio.gather(*sent)
    kinds = [outcome.kind for outcome in outcomes]
    assert kinds == [OutcomeKind.LOST] * 500 + [OutcomeKind.UNSENT] * 10


async def test_a_refused_link_is_tried_again_while_the_connection_stays(
    setup: Any, keeper: SessionKeeper
) -> None:
    setup.broker.refused = {("producer", "E9"): Refusal(Rule.QUEUE_UNKNOWN, "not yet")}
    other = keeper.producer("E2")
    await other.ready()
    producer = keeper.producer("E9")
    with pytest.raises(LinkRefused, match="amqp:not-found"):
        await producer.ready()
    setup.broker.refused = {}
    await eventually(lambda: producer.attached)
    assert (await producer.send(b"x")).taken
    assert other.attached


async def test_a_link_that_the_peer_detaches_is_attached_again(
    setup: Any, keeper: SessionKeeper
) -> None:
    producer = keeper.producer("E2")
    await producer.ready()
    setup.broker.producers[0].link.close(Refusal(Rule.BUSY, "later"))
    await eventually(lambda: not producer.attached)
    await producer.ready()
    assert (await producer.send(b"x")).taken


async def test_a_link_that_is_not_wanted_any_more_is_closed(
    setup: Any, keeper: SessionKeeper, inbox: Any
) -> None:
    consumer = keeper.consumer("E1", inbox, credit=10)
    await consumer.ready()
    await consumer.close()
    await eventually(lambda: not setup.broker.queues["E1"].consumers)
    with pytest.raises(LinkRefused):
        await consumer.ready()


async def test_a_peer_that_is_down_is_tried_until_it_is_there(
    setup: Any, clock: Any, authority: Any
) -> None:
    states: list[tuple[bool, str]] = []
    client = setup.client("E1")
    port = unused_port()
    client.urls = [f"amqps://127.0.0.1:{port}"]
    keeper = SessionKeeper(client, backoff=QUICK, on_state=lambda *said: states.append(said))
    producer = keeper.producer("E2")
    await eventually(lambda: len(states) > 3)
    assert not any(connected for connected, _ in states)
    assert "gridpost:unreachable" in states[0][1]
    server = AmqpServer(container="B2", clock=clock, limits=AmqpLimits(close_seconds=0.5))
    own = authority.credentials("B2")
    await server.listen("127.0.0.1", port, setup.broker, tls=lambda: own)
    await producer.ready()
    assert states[-1][0]
    assert (await producer.send(b"x")).taken
    await keeper.close()
    await server.close()


async def test_the_first_address_that_works_is_used(setup: Any) -> None:
    client = setup.client("E1")
    client.urls = [f"amqps://127.0.0.1:{unused_port()}", setup.url]
    connection = await client.connect()
    assert connection.peer.address.endswith(f":{setup.port}")
    connection.close()
    await connection.lost


async def test_a_silent_primary_does_not_keep_the_secondary_waiting(setup: Any) -> None:
    writers: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    client = setup.client("E1", limits=AmqpLimits(handshake_seconds=3))
    client.urls = [f"amqps://127.0.0.1:{port}", setup.url]
    connection = await client.connect()
    assert connection.peer.address.endswith(f":{setup.port}")
    connection.close()
    await connection.lost
    silent.close()
    for writer in writers:
        writer.close()
        await writer.wait_closed()


async def test_an_address_that_is_none_is_a_mistake_of_the_caller(setup: Any) -> None:
    client = setup.client("E1")
    for url in ("ftp://somewhere", "amqps://", "amqp://127.0.0.1:5672"):
        client.urls = [url]
        with pytest.raises(ValueError, match=r"AMQP address|needs TLS"):
            await client.connect()


async def test_thousands_of_sends_may_be_under_way(setup: Any, keeper: SessionKeeper) -> None:
    producer = keeper.producer("E2")
    await producer.ready()
    outcomes = await asyncio.gather(*(producer.send(b"h", b"%d" % n) for n in range(5_000)))
    assert set(outcomes) == {Outcome(OutcomeKind.ACCEPTED)}
    queue = setup.broker.queues["E2"].messages
    assert [body for _, body in queue] == [b"h%d" % n for n in range(5_000)]


class Socks:
    """A SOCKS 5 server as RFC 1928 and 1929 describe it, for one kind of request."""

    def __init__(self, *, password: tuple[str, str] | None = None, reply: int = 0) -> None:
        self.targets: list[tuple[str, int]] = []
        self._password = password
        self._reply = reply
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> SocksProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return SocksProxy("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        method = 2 if self._password else 0
        writer.write(bytes((5, method if method in methods else 255)))
        if method not in methods:
            writer.close()
            return
        if self._password:
            _, size = await reader.readexactly(2)
            user = (await reader.readexactly(size)).decode()
            (size,) = await reader.readexactly(1)
            good = (user, (await reader.readexactly(size)).decode()) == self._password
            writer.write(bytes((1, 0 if good else 1)))
            if not good:
                writer.close()
                return
        _, _, _, kind = await reader.readexactly(4)
        size = (await reader.readexactly(1))[0] if kind == 3 else 4 if kind == 1 else 16
        name = await reader.readexactly(size)
        port = int.from_bytes(await reader.readexactly(2), "big")
        host = name.decode() if kind == 3 else socket.inet_ntop(
            socket.AF_INET if kind == 1 else socket.AF_INET6, name
        )  # fmt: skip
        self.targets.append((host, port))
        writer.write(bytes((5, self._reply, 0, 3, 1)) + b"x\0\0")
        if self._reply:
            writer.close()
            return
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            self._tasks.append(asyncio.create_task(self._copy(source, sink)))

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while octets := await source.read(65536):
            sink.write(octets)
            await sink.drain()
        sink.close()

    async def stop(self) -> None:
        self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "broker.inside.example"])
async def test_amqps_goes_through_a_socks_proxy(setup: Any, host: str) -> None:
    socks = Socks()
    client = setup.client("E1", proxy=await socks.start())
    client.urls = [f"amqps://{host}:{setup.port}"]
    connection = await client.connect()
    assert socks.targets == [(host, setup.port)]
    assert (await (await connection.attach_producer("E2")).send(b"x" * 500_000)).taken
    connection.close()
    await connection.lost
    await socks.stop()


async def test_a_proxy_may_ask_for_a_password(setup: Any) -> None:
    socks = Socks(password=("gridpost", "s3cret"))
    proxy = await socks.start()
    right = SocksProxy(proxy.host, proxy.port, "gridpost", "s3cret")
    connection = await setup.client("E1", proxy=right).connect()
    connection.close()
    await connection.lost
    for wrong in (proxy, SocksProxy(proxy.host, proxy.port, "gridpost", "wrong")):
        with pytest.raises(LinkRefused, match="gridpost:unreachable"):
            await setup.client("E1", proxy=wrong).connect()
    await socks.stop()


async def test_a_proxy_that_does_not_get_there_says_why(setup: Any) -> None:
    socks = Socks(reply=4)
    with pytest.raises(LinkRefused, match="host unreachable"):
        await setup.client("E1", proxy=await socks.start()).connect()
    await socks.stop()
