"""503 cl. 4.5.1, 6.1.2, 9 and 10 on a broker: what it publishes, how it shakes hands, what it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from gridpost.core.certificate import CertificateKind
from gridpost.core.journal import JournalRow, TransferRow
from gridpost.stores.sqlite.queues import SqliteQueueStore
from gridpost.transports.amqp10.tls import client_context
from gridpost.wire.amqp.codec import decode
from gridpost.wire.amqp.types import Described
from gridpost.wire.mades.passing import read_passing
from support.broker_process import BrokerNetwork, amqp_credentials, broker_network, message
from support.edges import journal_of
from support.queues import SetClock
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

AMQP, SASL = b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"
SASL_INIT = b"\x00\x00\x00\x19\x02\x01\x00\x00\x00\x53\x41\xc0\x0c\x02\xa3\x08EXTERNAL\x40"
OPEN = b"\x00\x00\x00\x13\x02\x00\x00\x00\x00\x53\x10\xc0\x06\x01\xa1\x03abc"


@pytest.mark.req("503-4.5.1-d", "503-9.1-a", "503-9.2-a", "503-T18-e", component="broker")
async def test_the_entry_of_a_broker_has_one_kind_of_certificate_and_its_version(
    broker: BrokerNetwork,
) -> None:
    await eventually(lambda: broker.directory.others["B1"].urls)
    entry = broker.directory.others["B1"]
    assert {c.kind for c in entry.certificates} == {CertificateKind.AUTHENTICATION}
    assert entry.implementation.mades_version == "2"
    assert entry.urls == ("amqps://b1.grid.example:5671",)
    # What is published is what a client meets: AMQP inside TLS, with that certificate.
    connection = await broker.connect("E1")
    assert connection.peer.chain[0] in {c.der for c in entry.certificates}
    # And messages of the version that is published pass, as they are.
    producer = await connection.attach_producer("E2")
    assert (await producer.send(message(body=b"of version 2"))).taken
    (got,) = await broker.receive("E2", 1)
    assert read_passing(got).mversion == int(entry.implementation.mades_version)
    await broker.close_connections()


async def frame(reader: asyncio.StreamReader) -> tuple[int, object]:
    """The type of a frame and its performative."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    rest = await reader.readexactly(size - 4)
    return rest[1], decode(rest[4 * rest[0] - 4 :])


@pytest.mark.req("503-6.1.2-b", component="broker")
async def test_a_connection_is_set_up_in_the_order_of_amqp(broker: BrokerNetwork) -> None:
    context = client_context(amqp_credentials(broker.members["E1"], broker.directory.pki.root))
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, ssl=context)
        writer.write(SASL)
        assert await reader.readexactly(8) == SASL
        kind, mechanisms = await frame(reader)
        assert isinstance(mechanisms, Described)
        assert (kind, mechanisms.descriptor) == (1, 0x40)
        writer.write(SASL_INIT)
        kind, outcome = await frame(reader)
        assert isinstance(outcome, Described)
        assert (kind, outcome.descriptor, outcome.value) == (1, 0x44, [0])
        writer.write(AMQP + OPEN)
        assert await reader.readexactly(8) == AMQP
        kind, opened = await frame(reader)
        assert isinstance(opened, Described)
        assert isinstance(opened.value, list)
        assert (kind, opened.descriptor) == (0, 0x10)
        container, _, max_frame_size, channel_max = opened.value[:4]
        assert (container, max_frame_size, channel_max) == ("B1", 128 * 1024, 15)
        writer.close()


@pytest.mark.req("503-10-c", component="broker")
async def test_the_journal_is_kept_for_its_time_and_no_longer(tmp_path: Path) -> None:
    async with broker_network(tmp_path, journal={"retention": "10s"}) as broker:
        await broker.send("E1", "E2", message(message_type="OLD"))
        await broker.kill()
        assert await kept(broker) >= {"OLD"}
        await asyncio.sleep(10.5)
        await broker.start()
        await broker.send("E1", "E2", message(message_type="NEW"))
        # The first look of the upkeep.
        await eventually(lambda: "OLD" not in types(journal_of(broker)))
        await broker.kill()
        assert await kept(broker) == {"NEW"}


async def kept(broker: BrokerNetwork) -> set[str]:
    store = SqliteQueueStore.open(broker.home / "store", "B1", SetClock())
    rows = await store.journal(lambda journal: journal.read(0, 1_000))
    await store.close()
    return types(r.row for r in rows)


def types(rows: Iterable[JournalRow]) -> set[str]:
    return {row.message_type for row in rows if isinstance(row, TransferRow)}
