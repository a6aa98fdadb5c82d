"""Two edges, one broker code, one store behind them: what one takes the other delivers, whatever dies."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from pyarrow import parquet

from gridpost.assembly import journal_export
from gridpost.core.identifiers import new_message_id
from gridpost.core.journal import TransferRow
from gridpost.core.links import Attachment, LinkRefused, OutcomeKind, ReceivedDelivery
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.segment import SegmentName
from gridpost.transports.amqp10.client import ClientConnection
from gridpost.transports.amqp10.engine import lib
from gridpost.transports.amqp10.sender import Sender
from gridpost.wire.amqp.codec import decode, skip
from gridpost.wire.amqp.types import Described
from support.broker_process import BrokerNetwork, Inbox, message
from support.edges import in_postgres, in_rabbitmq, journal_of, two_edges
from support.failing_consumer import fails_again_and_again
from support.postgres import PostgresServer
from support.rabbitmq import Rabbit
from support.soak import Soak
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

Edges = tuple[BrokerNetwork, BrokerNetwork]
CREDIT = 50
WINDOW = 100


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["rabbitmq", "postgres"])
async def edges(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Edges]:
    folder = tmp_path_factory.mktemp("edges")
    if request.param == "rabbitmq":
        sections = in_rabbitmq(request.getfixturevalue("rabbitmq"))
    else:
        sections = in_postgres(request.getfixturevalue("own_postgres_server"), folder)
    async with two_edges(folder, **sections) as both:
        yield both


@pytest.fixture
def in_rabbit(edges: Edges, request: pytest.FixtureRequest) -> Rabbit:
    """For what only this store has, or has not."""
    if "rabbitmq" not in edges[0].configuration:
        pytest.skip("the queues are not in RabbitMQ")
    rabbit: Rabbit = request.getfixturevalue("rabbitmq")
    return rabbit


@pytest.fixture
def in_database(edges: Edges, request: pytest.FixtureRequest) -> PostgresServer:
    if "postgres" not in edges[0].configuration:
        pytest.skip("the queues are not in PostgreSQL")
    server: PostgresServer = request.getfixturevalue("own_postgres_server")
    return server


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def quiet(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Each test begins with empty queues and without links."""
    yield
    if "edges" in request.fixturenames:
        first, second = request.getfixturevalue("edges")
        await first.close_connections()
        await (await second.connect("E2")).attach_consumer("E2", Inbox(), credit=CREDIT)
        await depth_is(second, "E2", 0)
        await second.close_connections()


async def prepared(edges: Edges, *codes: str) -> None:
    for code in codes:
        edges[0].endpoint(code)
    for edge in edges:
        # The commands read in the file where the operations listener is.
        edge.configure()
    await edges[0].synchronised()
    await edges[1].synchronised()


def virtual_host(edges: Edges) -> str:
    return str(edges[0].configuration["rabbitmq"]["virtual_host"])


async def outcomes_of(edge: BrokerNetwork, message_id: str) -> list[str]:
    """Of one message, in the edge's own journal while the edge runs, or in that of all edges."""

    def read() -> list[str]:
        found = [row for row in journal_of(edge) if isinstance(row, TransferRow)]
        return [row.outcome for row in found if row.message_id == message_id]

    return await asyncio.to_thread(read)


async def depth_is(edge: BrokerNetwork, code: str, depth: int) -> None:
    async with asyncio.timeout(60):
        while await edge.depth(code) != depth:
            await asyncio.sleep(0.05)


def rabbit_queues(edges: Edges, rabbitmq: Rabbit) -> dict[str, dict[str, Any]]:
    rows = rabbitmq.api("GET", f"queues/{virtual_host(edges)}").json()
    return {row["name"]: row for row in rows}


async def test_what_one_edge_takes_the_other_delivers_in_order(edges: Edges) -> None:
    first, second = edges
    sent = [message(body=b"%04d" % at) for at in range(30)]
    outcomes = await first.send("E1", "E2", *sent)
    assert all(outcome.taken for outcome in outcomes)
    got = await second.receive("E2", len(sent))
    assert [octets[-4:] for octets in got] == [b"%04d" % at for at in range(30)]
    await depth_is(first, "E2", 0)


async def test_queues_survive_the_loss_of_a_node_and_never_expire(
    edges: Edges, in_rabbit: Rabbit
) -> None:
    assert (await edges[0].send("E1", "E2", message()))[0].taken
    queue = rabbit_queues(edges, in_rabbit)["queue/E2"]
    assert (queue["type"], queue["durable"]) == ("quorum", True)
    assert "x-expires" not in queue["arguments"]


async def test_an_accepted_message_is_in_the_journal_of_its_edge(edges: Edges) -> None:
    first, second = edges
    name = new_message_id()
    assert (await first.send("E1", "E2", message(message_id=name)))[0].taken
    assert await outcomes_of(first, name) == ["accepted"]
    await second.receive("E2", 1)
    both = ["accepted"] if "rabbitmq" in second.configuration else ["accepted"] * 2
    assert await outcomes_of(second, name) == both


async def test_journal_export_covers_transfers_and_refusals_of_every_edge(
    edges: Edges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever an edge keeps which rows: every number of every journal lands, none of them twice."""
    first, second = edges
    names = {new_message_id(): edge for edge in edges}
    landing = tmp_path / "landing"
    # It would stay with the process of the tests.
    monkeypatch.setattr(journal_export, "lower_priority", lambda: None)

    async def export() -> None:
        for edge in edges:
            await asyncio.to_thread(journal_export.export_job(edge.file, landing, 1_000).once)

    for name, edge in names.items():
        assert (await edge.send("E1", "E2", message(message_id=name)))[0].taken
        assert not (await edge.send("E1", "E2", message(sender="E9")))[0].taken
    await export()
    await second.receive("E2", len(names))
    await depth_is(first, "E2", 0)
    await export()
    files = sorted(landing.glob("*.parquet"))
    found = [SegmentName.parse(file.name) for file in files]
    by_journal: dict[str, list[int]] = {}
    for one in sorted(name for name in found if name is not None):
        assert one.component == "B1"
        by_journal.setdefault(one.instance, []).extend(range(one.first, one.last + 1))
    rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
    assert len(rows) == sum(map(len, by_journal.values()))
    for numbers in by_journal.values():
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    transfers = [row["transfer"] for row in rows if row["kind"] == "transfer"]
    for name in names:
        outcomes = [one["outcome"] for one in transfers if one["message_id"] == name]
        assert outcomes == ["accepted"] * 2
    assert sum(row["kind"] == "refusal" for row in rows) >= len(names)


async def test_a_message_that_fails_again_and_again_steps_aside(edges: Edges) -> None:
    name = await fails_again_and_again(*edges)
    await depth_is(edges[0], "E2", 0)
    tried = ["not settled"] * 3
    found = await outcomes_of(edges[1], name)
    assert [outcome for outcome in found if outcome == "not settled"] == tried


async def test_only_edges_reach_the_queues(edges: Edges, in_rabbit: Rabbit) -> None:
    in_rabbit.user("E1")
    with pytest.raises(Refusal):
        await in_rabbit.client("E1", virtual_host(edges)).connect()


def delivery_count(octets: bytes) -> int:
    """AMQP 3.2.1: the fifth field of the header, which is the first section."""
    header = decode(octets[: skip(octets, 0, len(octets))])
    assert isinstance(header, Described)
    assert header.descriptor == 0x70
    assert isinstance(header.value, list)
    count = header.value[4] if len(header.value) > 4 else 0
    assert isinstance(count, int | None)
    return count or 0


async def test_what_a_lost_consumer_had_goes_to_the_other_edge_with_its_count(
    edges: Edges,
) -> None:
    first, second = edges
    await first.send("E1", "E2", *(message(body=b"%d" % at) for at in range(3)))
    silent = Inbox(accept=False)
    connection = await first.connect("E2")
    await connection.attach_consumer("E2", silent, credit=10)
    await eventually(lambda: len(silent.messages) == 3)
    connection.abort()
    await connection.lost
    again = await second.receive("E2", 3)
    assert [octets[-1:] for octets in again] == [b"0", b"1", b"2"]
    for octets in again:
        assert delivery_count(octets) >= 1
    assert {delivery_count(octets) for octets in silent.messages} == {0}


async def test_credit_of_one_edge_leaves_messages_for_the_other(edges: Edges) -> None:
    first, second = edges
    await first.send("E1", "E2", *(message(body=b"%d" % at) for at in range(5)))
    silent = Inbox(accept=False)
    connection = await first.connect("E2")
    await connection.attach_consumer("E2", silent, credit=2)
    await eventually(lambda: len(silent.messages) == 2)
    others = await second.receive("E2", 3)
    assert [octets[-1:] for octets in others] == [b"2", b"3", b"4"]
    for delivery in silent.deliveries:
        delivery.accept()
    await depth_is(first, "E2", 0)
    assert len(silent.messages) == 2


async def test_expired_messages_are_dropped_by_the_edge_that_reads_them(edges: Edges) -> None:
    first, second = edges
    name = new_message_id()
    short = message(message_id=name, lives=timedelta(seconds=6))
    await first.send("E1", "E2", short, message(body=b"lives on"))
    await asyncio.sleep(6.2)
    got = await second.receive("E2", 1)
    assert [octets[-8:] for octets in got] == [b"lives on"]
    await depth_is(second, "E2", 0)
    assert (await outcomes_of(second, name))[-1] == "expired"


async def test_a_rejected_message_is_held_until_it_is_released(edges: Edges) -> None:
    first, second = edges
    await prepared(edges)
    await first.send("E1", "E2", message(body=b"refuse me"))
    connection = await first.connect("E2")

    def refuse(delivery: ReceivedDelivery) -> None:
        delivery.reject(Refusal(Rule.SCHEMA_INVALID, "unreadable"))

    await connection.attach_consumer("E2", refuse, credit=10)
    await depth_is(first, "E2", 0)
    connection.close()
    await connection.lost
    row = await second.queue("E2")
    async with asyncio.timeout(60):
        while row is None or row["held"] != 1:
            await asyncio.sleep(0.1)
            row = await second.queue("E2")
    result = await second.cli("broker", "release", "E2", "--config", str(second.file))
    assert result == {"released": 1}
    (got,) = await first.receive("E2", 1)
    assert got.endswith(b"refuse me")


async def test_the_coordinator_is_refused_where_the_store_has_no_transactions(
    edges: Edges, in_rabbit: Rabbit
) -> None:
    first, _ = edges
    connection = await first.connect("E1")
    pn = lib.pn_sender(connection._live_session(), b"coordinator")
    lib.pn_terminus_set_type(lib.pn_link_target(pn), lib.PN_COORDINATOR)
    with pytest.raises(LinkRefused, match="amqp:not-implemented"):
        await connection._attach(Sender(connection, pn, Attachment("", None)), pn)


async def test_an_id_that_comes_to_both_edges_is_stored_once(
    edges: Edges, in_database: PostgresServer
) -> None:
    first, second = edges
    name = new_message_id()
    for edge in (first, second, first):
        assert (await edge.send("E1", "E2", message(message_id=name)))[0].taken
    assert len(await second.receive("E2", 1)) == 1
    await depth_is(first, "E2", 0)
    # Remembered until it expires, also after it was consumed.
    assert (await second.send("E1", "E2", message(message_id=name)))[0].taken
    await depth_is(first, "E2", 0)
    outcomes = Counter(await outcomes_of(first, name))
    assert outcomes == {"accepted": 2, "duplicate": 3}


async def test_a_large_message_passes_through_the_store(edges: Edges) -> None:
    first, second = edges
    body = random.Random(1).randbytes(4 * 1024 * 1024)
    assert (await first.send("E1", "E2", message(body=body)))[0].taken
    (got,) = await second.receive("E2", 1)
    assert got.endswith(body)


async def test_a_queue_goes_by_command_when_empty_and_with_everybody_locked_out(
    edges: Edges,
) -> None:
    first, second = edges
    await prepared(edges, "E7")
    producer = await (await first.connect("E1")).attach_producer("E7")
    assert (await producer.send(message(receiver="E7"))).taken
    consuming = await second.connect("E7")
    command = ("broker", "remove-queue", "E7", "--config", str(first.file))
    refused = await first.cli(*command, expect=1, read=False)
    assert "not empty" in refused
    # Its producer was locked out before, and may come back.
    assert not producer.attached
    await depth_is(first, "E7", 1)
    inbox = Inbox()
    await consuming.attach_consumer("E7", inbox, credit=5)
    await eventually(lambda: len(inbox.messages) == 1)
    await depth_is(second, "E7", 0)
    assert await first.cli(*command) == {"removed": "E7"}
    await depth_is(first, "E7", -1)
    # A valid reference makes it anew.
    assert (await first.send("E1", "E7", message(receiver="E7")))[0].taken


class Traffic:
    """Sends each message until it is accepted and takes all that comes, by whichever edge answers."""

    def __init__(self, edges: Edges, bodies: dict[str, bytes]) -> None:
        self._edges = edges
        self.open = bodies
        self.accepted: set[str] = set()
        self.got: Counter[str] = Counter()

    async def connect(self, code: str) -> ClientConnection:
        ports = [edge.port for edge in self._edges]
        random.shuffle(ports)
        return await self._edges[0].connect(code, ports=ports)

    async def send(self) -> None:
        while self.open:
            try:
                connection = await self.connect("E1")
                producer = await connection.attach_producer("E2")
            except (LinkRefused, OSError, TimeoutError):
                await asyncio.sleep(0.1)
                continue
            while self.open and not connection.lost.done():
                batch = list(self.open.items())[:WINDOW]
                outcomes = await asyncio.gather(*(producer.send(body) for _, body in batch))
                for (name, _), outcome in zip(batch, outcomes, strict=True):
                    if outcome.taken:
                        self.accepted.add(name)
                        del self.open[name]
                    else:
                        assert outcome.kind is not OutcomeKind.REJECTED, outcome
            connection.close()
            await connection.lost

    def take(self, delivery: ReceivedDelivery) -> None:
        self.got[bytes(delivery.message)[-36:].decode()] += 1
        delivery.accept()

    async def receive(self) -> None:
        while True:
            try:
                connection = await self.connect("E2")
                await connection.attach_consumer("E2", self.take, credit=CREDIT)
                await asyncio.shield(connection.lost)
            except (LinkRefused, OSError, TimeoutError):
                await asyncio.sleep(0.1)


@pytest.mark.timeout(1800)
@pytest.mark.req("503-10-e", component="broker")
async def test_nothing_is_lost_while_edges_are_killed_under_load(edges: Edges, soak: Soak) -> None:
    count, kills = soak.scale(10_000), max(2, soak.scale(20))
    chance = random.Random(soak.seed)
    names = [str(new_message_id()) for _ in range(count)]
    traffic = Traffic(edges, {n: message(message_id=n, body=n.encode()) for n in names})
    receiving = [asyncio.create_task(traffic.receive()) for _ in range(2)]
    sending = asyncio.create_task(traffic.send())
    for number in range(kills):
        goal = (number + chance.random()) * count / kills
        while len(traffic.accepted) < goal and not sending.done():
            await asyncio.sleep(0.001)
        victim = edges[number % 2]
        await victim.kill()
        # The other serves meanwhile.
        before = len(traffic.accepted)
        await eventually(lambda before=before: len(traffic.accepted) > before or sending.done(), 60)
        await victim.start()
    await sending
    await eventually(lambda: len(traffic.got) >= count, 120)
    await depth_is(edges[0], "E2", 0)
    for task in receiving:
        task.cancel()
    await asyncio.gather(*receiving, return_exceptions=True)
    duplicates = sum(n - 1 for n in traffic.got.values())
    lost = traffic.accepted - set(traffic.got)
    soak.report(
        messages=count,
        kills=kills,
        accepted=len(traffic.accepted),
        delivered=len(traffic.got),
        duplicated=duplicates,
        lost=len(lost),
    )
    assert not lost
    assert set(traffic.got) == set(names)
    # Only what was under way at a kill can come twice.
    assert duplicates <= kills * (2 * CREDIT + WINDOW)


@contextmanager
def store_away(edges: Edges, request: pytest.FixtureRequest) -> Iterator[str]:
    """What the operator calls it."""
    if "rabbitmq" in edges[0].configuration:
        node = request.getfixturevalue("rabbitmq").node
        node.kill()
        yield "RabbitMQ"
        node.start()
    else:
        server: PostgresServer = request.getfixturevalue("own_postgres_server")
        # A crash: it recovers what it has committed.
        server.stop(signal.SIGQUIT)
        yield "database"
        server.start()


async def test_without_its_store_nothing_is_settled_and_work_resumes_by_itself(
    edges: Edges, request: pytest.FixtureRequest
) -> None:
    first, second = edges
    connection = await first.connect("E1")
    producer = await connection.attach_producer("E2")
    assert (await producer.send(message(body=b"before"))).taken
    with store_away(edges, request) as store:
        outcome = await producer.send(message(body=b"during"))
        # Neither accepted nor rejected: the sender still has it and sends it again.
        assert outcome.kind in (OutcomeKind.LOST, OutcomeKind.UNSENT, OutcomeKind.RELEASED)
        health = await first.ask("/health")
        assert health.status_code == 503
        assert store in health.json()["reason"]
        with pytest.raises(LinkRefused):
            await first.connect("E1")
    for edge in edges:
        async with asyncio.timeout(60):
            while (await edge.ask("/health")).status_code != 200:
                await asyncio.sleep(0.2)
    got = await second.receive("E2", 1)
    assert got[0].endswith(b"before")
