"""The AMQP server against two independent clients: proton's reactor and rhea."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gridpost.core.links import Outcome, OutcomeKind, ReceivedDelivery
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10 import AmqpLimits, AmqpServer, TlsCredentials
from support.authority import Authority, Clock
from support.memory_broker import MemoryBroker
from support.waiting import eventually

HERE = Path(__file__).parent
MIB = 1024 * 1024

needs_rhea = pytest.mark.skipif(
    shutil.which("node") is None or not (HERE / "node_modules" / "rhea").is_dir(),
    reason="node or the npm package rhea is missing (npm ci in tests/interop)",
)
needs_proton_tls = pytest.mark.skipif(
    importlib.util.find_spec("proton") is None, reason="proton's Python binding is missing"
)
both = pytest.mark.parametrize(
    "library",
    [pytest.param("proton", marks=needs_proton_tls), pytest.param("rhea", marks=needs_rhea)],
)
only_proton = pytest.mark.parametrize("library", [pytest.param("proton", marks=needs_proton_tls)])
only_rhea = pytest.mark.parametrize("library", [pytest.param("rhea", marks=needs_rhea)])

Run = Callable[..., Any]


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
async def run(broker: MemoryBroker, library: str, tmp_path: Path) -> AsyncIterator[Run]:
    authority = Authority()
    server = AmqpServer(container="B1", clock=Clock(), limits=AmqpLimits(close_seconds=1))
    own = authority.credentials("B1")
    port = await server.listen("127.0.0.1", 0, broker, tls=lambda: own)
    _write(tmp_path, authority.credentials("E1"))

    async def run(task: str, address: str = "E1", number: int = 1) -> dict[str, Any]:
        program = (
            [sys.executable, str(HERE / "proton_client.py")]
            if library == "proton"
            else ["node", str(HERE / "rhea_client.js")]
        )
        process = await asyncio.create_subprocess_exec(
            *program, str(port), str(tmp_path), task, address, str(number),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(60):
                out, err = await process.communicate()
        except TimeoutError:
            process.kill()
            out, err = await process.communicate()
            pytest.fail(f"{library} did not finish: {out.decode()} {err.decode()}")
        assert process.returncode == 0, err.decode()
        result: dict[str, Any] = json.loads(out)
        return result

    yield run
    await server.close()


def _write(folder: Path, own: TlsCredentials) -> None:
    (folder / "chain.pem").write_bytes(own.chain_pem)
    (folder / "key.pem").write_bytes(own.key_pem)
    (folder / "roots.pem").write_bytes(own.roots_pem)


@both
async def test_messages_arrive_in_order_and_both_sides_know(run: Run, broker: MemoryBroker) -> None:
    produced = await run("produce", number=1_000)
    assert produced["error"] is None
    assert produced["outcomes"] == [["accepted", None]] * 1_000
    consumed = await run("consume", number=1_000)
    assert consumed["messages"] == [f"message {n}" for n in range(1_000)]
    await eventually(lambda: broker.outcomes == [Outcome(OutcomeKind.ACCEPTED)] * 1_000)
    assert {peer.chain[0] for peer in broker.peers} == {broker.peers[0].chain[0]}


@both
async def test_the_maximum_message_size_is_announced(run: Run) -> None:
    assert (await run("produce"))["max_message_size"] == AmqpLimits().max_message_size


@both
@pytest.mark.parametrize(
    ("rule", "condition"),
    [
        (Rule.QUEUE_UNKNOWN, "amqp:not-found"),
        (Rule.CONSUMER_NOT_OWN_QUEUE, "amqp:unauthorized-access"),
        (Rule.CONSUMER_ON_ENDPOINT, "amqp:not-allowed"),
    ],
)
@pytest.mark.parametrize("task", ["produce", "consume"])
async def test_a_refused_attach_is_understood(
    run: Run, broker: MemoryBroker, task: str, rule: Rule, condition: str
) -> None:
    refusal = Refusal(rule, "not here")
    broker.refused = {("producer", "E9"): refusal, ("consumer", "E9"): refusal}
    name, description = (await run(task, "E9"))["error"]
    assert name == condition
    assert refusal.id in description


@only_rhea
@pytest.mark.parametrize("task", ["anonymous", "dynamic"])
async def test_links_without_a_name_are_refused(run: Run, task: str) -> None:
    assert (await run(task))["error"][0] == "amqp:not-allowed"


@both
async def test_a_peer_that_is_turned_away_learns_why(run: Run, broker: MemoryBroker) -> None:
    async def refuse(peer: object) -> None:
        raise Refusal(Rule.PEER_NOT_ALLOWED, "not you")

    broker.on_admit = refuse
    assert (await run("produce"))["error"][0] == "amqp:unauthorized-access"


@both
async def test_a_rejected_message_is_rejected_with_a_condition(
    run: Run, broker: MemoryBroker
) -> None:
    def refuse(delivery: ReceivedDelivery) -> None:
        raise Refusal(Rule.MESSAGE_TYPE_NOT_ALLOWED, "not this type")

    broker.on_delivery = refuse
    assert (await run("produce", number=3))["outcomes"] == [["rejected", "amqp:not-allowed"]] * 3


@both
async def test_a_message_that_a_consumer_rejects_is_reported(
    run: Run, broker: MemoryBroker
) -> None:
    await run("produce")
    await run("reject")
    await eventually(lambda: broker.outcomes)
    assert broker.outcomes[0].kind is OutcomeKind.REJECTED


@both
async def test_a_large_message_goes_both_ways(run: Run) -> None:
    assert (await run("produce-large", number=20 * MIB))["outcomes"] == [["accepted", None]]
    assert (await run("consume"))["messages"] == [20 * MIB]


@both
async def test_a_producer_settles_after_our_outcome_when_it_asks_for_that(
    run: Run, broker: MemoryBroker
) -> None:
    result = await run("produce-exactly-once", number=10)
    assert result["outcomes"] == [["accepted", None]] * 10
    await eventually(lambda: len(broker.settled_by_sender) == 10)


@both
async def test_a_consumer_gets_our_settlement_after_its_outcome_when_it_asks_for_that(
    run: Run, broker: MemoryBroker
) -> None:
    await run("produce", number=5)
    result = await run("consume-exactly-once", number=5)
    assert result["outcomes"] == ["settled"] * 5
    assert [outcome.settled for outcome in broker.outcomes] == [False] * 5


@both
async def test_credit_that_is_not_needed_comes_back_on_drain(run: Run) -> None:
    await run("produce", number=3)
    result = await run("drain", number=10)
    assert result["messages"] == [f"message {n}" for n in range(3)]
    assert result["drained"] == 7


class TestTransactions:
    """AMQP part 4, by proton's transaction support."""

    @only_proton
    async def test_a_committed_transaction_puts_all_its_messages(
        self, run: Run, broker: MemoryBroker
    ) -> None:
        result = await run("transact", number=5)
        assert result["transaction"] == "committed"
        assert result["outcomes"] == [True] * 5
        assert len(broker.queues["E1"].messages) == 5
        assert broker.abandoned == []

    @only_proton
    async def test_an_aborted_transaction_puts_nothing(
        self, run: Run, broker: MemoryBroker
    ) -> None:
        result = await run("transact-aborted", number=5)
        assert result["transaction"] == "aborted"
        assert broker.deliveries == 5
        assert len(broker.queues["E1"].messages) == 0

    @only_proton
    async def test_a_commit_that_fails_is_said_to_be_rolled_back(
        self, run: Run, broker: MemoryBroker
    ) -> None:
        broker.commits_fail = True
        result = await run("transact", number=2)
        assert result["transaction"] == "failed amqp:transaction:rollback"

    @only_proton
    async def test_messages_are_consumed_in_a_transaction(
        self, run: Run, broker: MemoryBroker
    ) -> None:
        await run("produce", number=3)
        result = await run("transact-consume", number=3)
        assert result["transaction"] == "committed"
        assert len(result["messages"]) == 3
        provisional = [outcome for outcome in broker.outcomes if outcome.transaction is not None]
        assert [outcome.kind for outcome in provisional] == [OutcomeKind.ACCEPTED] * 3

    @only_proton
    async def test_a_transaction_that_nobody_declared_is_unknown(self, run: Run) -> None:
        result = await run("transact-foreign")
        assert result["outcomes"] == [["rejected", "amqp:transaction:unknown-id"]]

    @only_proton
    async def test_without_transactions_the_coordinator_is_refused(
        self, run: Run, broker: MemoryBroker
    ) -> None:
        broker.offers_transactions = False
        assert (await run("transact-foreign"))["error"][0] == "amqp:not-implemented"
