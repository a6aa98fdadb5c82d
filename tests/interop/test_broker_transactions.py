"""Local transactions of AMQP part 4 on a broker process, by proton's own transaction support."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gridpost.core.identifiers import new_message_id
from support.broker_process import BrokerNetwork, amqp_credentials

pytestmark = pytest.mark.asyncio(loop_scope="module")

HERE = Path(__file__).parent
ACCEPTED = 0x24


def fields(body: str = "sealed") -> dict[str, Any]:
    return {
        "id": new_message_id(),
        "sender": "E1",
        "receiver": "E2",
        "subject": "BP1-A",
        "ttl": 60_000,
        "body": body,
    }


async def run(broker: BrokerNetwork, folder: Path, code: str, **task: Any) -> dict[str, Any]:
    own = amqp_credentials(broker.members[code], broker.directory.pki.root)
    (folder / "chain.pem").write_bytes(own.chain_pem)
    (folder / "key.pem").write_bytes(own.key_pem)
    (folder / "roots.pem").write_bytes(own.roots_pem)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / "broker_transactions.py"), str(broker.port), str(folder),
        json.dumps(task), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    result: dict[str, Any] = json.loads(out)
    return result


async def depth_is(broker: BrokerNetwork, wanted: int) -> None:
    async with asyncio.timeout(60):
        while await broker.depth("E2") != wanted:
            await asyncio.sleep(0.02)


async def test_what_is_produced_in_a_transaction_appears_when_it_succeeds(
    broker: BrokerNetwork, tmp_path: Path
) -> None:
    sent = [fields() for _ in range(5)]
    result = await run(broker, tmp_path, "E1", produce="E2", messages=sent)
    assert result["error"] is None
    assert result["outcomes"] == [ACCEPTED] * 5
    assert result["transaction"] == "committed"
    await depth_is(broker, 5)
    got = await run(broker, tmp_path, "E2", consume="E2", count=5)
    assert got["messages"] == [message["id"] for message in sent]
    assert got["transaction"] == "committed"
    await depth_is(broker, 0)


async def test_what_is_produced_in_a_transaction_that_is_rolled_back_never_was(
    broker: BrokerNetwork, tmp_path: Path
) -> None:
    sent = [fields() for _ in range(3)]
    result = await run(broker, tmp_path, "E1", produce="E2", messages=sent, fail=True)
    assert result["transaction"] == "aborted"
    assert await broker.depth("E2") <= 0
    # Not even their ids are known.
    again = await run(broker, tmp_path, "E1", produce="E2", messages=sent)
    assert again["transaction"] == "committed"
    await depth_is(broker, 3)
    await broker.receive("E2", 3)


async def test_what_is_consumed_in_a_transaction_that_is_rolled_back_comes_again(
    broker: BrokerNetwork, tmp_path: Path
) -> None:
    sent = [fields() for _ in range(3)]
    await run(broker, tmp_path, "E1", produce="E2", messages=sent)
    await depth_is(broker, 3)
    result = await run(broker, tmp_path, "E2", consume="E2", count=3, fail=True)
    assert result["transaction"] == "aborted"
    await depth_is(broker, 3)
    got = await run(broker, tmp_path, "E2", consume="E2", count=3)
    assert sorted(got["messages"]) == sorted(message["id"] for message in sent)
    await depth_is(broker, 0)


async def test_a_connection_takes_its_open_transactions_with_it(
    broker: BrokerNetwork, tmp_path: Path
) -> None:
    await run(broker, tmp_path, "E1", produce="E2", messages=[fields()], vanish=True)
    assert await broker.depth("E2") <= 0
