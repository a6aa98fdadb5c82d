"""Every refusal can be found again (503 cl. 5.6.2, 10): in the journal, and in the figures by its rule."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from gridpost.core.journal import RefusalRow
from gridpost.core.links import LinkRefused
from support import amqp_frames as amqp
from support.broker_process import BrokerNetwork, amqp_credentials, broker_network, message
from support.edges import journal_of
from support.pki import TestPki
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
MOST = 8


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BrokerNetwork]:
    limits = {
        "max_links": 2,
        "max_connections": MOST,
        "max_connections_per_component": 3,
        "max_message_size": 20_000,
        "credit": 10,
        "handshake": "4s",
    }
    async with broker_network(tmp_path_factory.mktemp("broker"), limits=limits) as network:
        yield network


class Written:
    """The refusals of one rule, before and after something happened."""

    def __init__(self, broker: BrokerNetwork, rule: str) -> None:
        self._broker = broker
        self._rule = rule
        self._before = len(self.rows())

    def rows(self) -> list[RefusalRow]:
        rows = journal_of(self._broker)
        return [row for row in rows if isinstance(row, RefusalRow) and row.rule == self._rule]

    async def one_more(self) -> RefusalRow:
        """Counted as often as written down."""
        await eventually(lambda: len(self.rows()) > self._before, 30)
        rows = self.rows()
        assert len(rows) == self._before + 1
        figures = (await self._broker.ask("/metrics")).text.splitlines()
        name = f'gridpost_broker_refused_total{{rule="{self._rule}"}}'
        assert f"{name} {float(len(rows))}" in figures
        return rows[-1]


async def test_a_link_above_the_limit(broker: BrokerNetwork) -> None:
    written = Written(broker, "LIMIT_EXCEEDED")
    connection = await broker.connect("E1")
    for _ in range(2):
        await connection.attach_producer("E2")
    with pytest.raises(LinkRefused) as refused:
        await connection.attach_producer("E2")
    row = await written.one_more()
    assert row.peer == "E1"
    assert row.refusal_id in refused.value.description
    await broker.close_connections()


async def test_a_connection_above_the_limit_of_its_component(broker: BrokerNetwork) -> None:
    written = Written(broker, "LIMIT_EXCEEDED")
    for _ in range(3):
        await broker.connect("E1")
    with pytest.raises(LinkRefused, match="amqp:resource-limit-exceeded"):
        await broker.connect("E1")
    assert (await written.one_more()).peer == "E1"
    await broker.close_connections()


@pytest.mark.req("503-T4-h")
@pytest.mark.req("503-6.3-g", component="broker")
@pytest.mark.parametrize("role", [amqp.SENDER, amqp.RECEIVER])
@pytest.mark.parametrize(("address", "dynamic"), [(None, False), (None, True), ("E1", True)])
async def test_an_anonymous_or_dynamic_terminus_also_where_it_has_an_address(
    broker: BrokerNetwork, role: bool, address: str | None, dynamic: bool
) -> None:
    written = Written(broker, "LINK_UNNAMED")
    peer = await broker.raw("E1")
    await peer.say(amqp.attach("one", 0, role, address, dynamic=dynamic))
    answer = await peer.expect(amqp.ATTACH)
    assert answer[5 if role is amqp.RECEIVER else 6] is None
    gone = await peer.expect(amqp.DETACH)
    assert amqp.condition(gone[2]) == "amqp:not-allowed"
    assert (await written.one_more()).peer == "E1"
    await peer.close()


@pytest.mark.req("503-6.3-h", component="broker")
async def test_a_message_above_the_announced_size(broker: BrokerNetwork) -> None:
    written = Written(broker, "CONTENT_TOO_LARGE")
    peer = await broker.raw("E1")
    await peer.say(amqp.attach("one", 0, amqp.SENDER, "E2"))
    assert (await peer.expect(amqp.ATTACH))[10] == 20_000
    await peer.expect(amqp.FLOW)
    # A client of ours reads the announcement and does not even try.
    await peer.say(amqp.transfer(0, 0, message(body=bytes(30_000))))
    gone = await peer.expect(amqp.DETACH)
    assert amqp.condition(gone[2]) == "amqp:link:message-size-exceeded"
    assert (await written.one_more()).peer == "E1"
    assert await broker.depth("E2") == 0
    await peer.close()


async def test_a_transfer_above_the_credit(broker: BrokerNetwork) -> None:
    written = Written(broker, "TRANSFER_LIMIT")
    peer = await broker.raw("E1")
    await peer.say(amqp.attach("one", 0, amqp.SENDER, "E2"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    await peer.say(*(amqp.transfer(0, number, b"x") for number in range(50)))
    gone = await peer.expect(amqp.DETACH)
    assert amqp.condition(gone[2]) == "amqp:link:transfer-limit-exceeded"
    assert (await written.one_more()).peer == "E1"
    await peer.close()


@pytest.mark.req("503-5.8.3-b", component="broker")
async def test_a_transfer_that_its_sender_has_settled(broker: BrokerNetwork) -> None:
    """At most once is not offered, also where the link was attached for both kinds of transfer."""
    written = Written(broker, "NOT_OFFERED")
    peer = await broker.raw("E1")
    await peer.say(amqp.attach("one", 0, amqp.SENDER, "E2"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    await peer.say(amqp.transfer(0, 0, message(), settled=True))
    gone = await peer.expect(amqp.DETACH)
    assert amqp.condition(gone[2]) == "amqp:not-implemented"
    assert (await written.one_more()).peer == "E1"
    assert await broker.depth("E2") == 0
    await peer.close()


async def test_a_frame_that_is_not_amqp(broker: BrokerNetwork) -> None:
    written = Written(broker, "AMQP_PROTOCOL")
    peer = await broker.raw("E1")
    await peer.say(amqp.frame(b"\x00\x53\x7f\x45"))
    await peer.expect(amqp.CLOSE)
    assert (await written.one_more()).peer == "E1"
    await peer.close()


@pytest.mark.req("503-8.4.1-a", component="broker")
async def test_a_certificate_of_another_root(broker: BrokerNetwork) -> None:
    written = Written(broker, "CHAIN_NOT_TRUSTED")
    stranger = TestPki("CD-1", "ANOTHER ROOT", now=datetime.now(UTC)).component("E1")
    broker.lines.clear()
    with pytest.raises((LinkRefused, OSError)):
        await broker.connect("E1", amqp_credentials(stranger, broker.directory.pki.root))
    row = await written.one_more()
    assert row.peer.startswith("127.0.0.1:")
    assert row.security
    (line,) = broker.logged("connection refused")
    assert (line["peer"], line["rule"], line["refusal"]) == (row.peer, row.rule, row.refusal_id)


async def test_no_certificate_at_all(broker: BrokerNetwork) -> None:
    written = Written(broker, "PEER_UNKNOWN")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with pytest.raises(OSError):  # noqa: PT011 (TLS 1.3 tells it with the first read)
        reader, _ = await asyncio.open_connection("127.0.0.1", broker.port, ssl=context)
        await reader.readexactly(1)
    assert (await written.one_more()).peer.startswith("127.0.0.1:")


async def test_a_peer_that_says_nothing(broker: BrokerNetwork) -> None:
    written = Written(broker, "TLS_HANDSHAKE")
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()
    assert (await written.one_more()).peer.startswith("127.0.0.1:")


async def test_a_connection_above_the_limit_of_all_together(broker: BrokerNetwork) -> None:
    async with asyncio.timeout(30):
        while (await broker.ask("/connections")).json():
            await asyncio.sleep(0.02)
    written = Written(broker, "BUSY")
    silent = [await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(MOST + 1)]
    assert (await written.one_more()).peer.startswith("127.0.0.1:")
    for _, writer in silent:
        writer.close()
