"""A broker process and two independent clients, proton's reactor and rhea: Table 4 both ways."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gridpost.core.certificate import CertificateKind
from gridpost.transports.amqp10 import TlsCredentials
from gridpost.wire.x509 import Validity
from support.broker_process import BrokerNetwork, amqp_credentials
from support.pki import TestPki
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

HERE = Path(__file__).parent
both = pytest.mark.parametrize(
    "library",
    [
        "proton",
        pytest.param(
            "rhea",
            marks=pytest.mark.skipif(
                shutil.which("node") is None or not (HERE / "node_modules" / "rhea").is_dir(),
                reason="node or the npm package rhea is missing (npm ci in tests/interop)",
            ),
        ),
    ],
)
REJECTED = "rejected"


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def members(broker: BrokerNetwork) -> AsyncIterator[None]:
    for code in ("E1", "E2"):
        if code not in broker.directory.others:
            broker.endpoint(code)
    yield


def fields(**changes: Any) -> dict[str, Any]:
    from gridpost.core.identifiers import new_message_id

    base = {
        "id": new_message_id(),
        "sender": "E1",
        "receiver": "E2",
        "subject": "BP1-A",
        "ttl": 60_000,
        "body": "sealed",
    }
    return base | changes


async def run(
    broker: BrokerNetwork,
    library: str,
    folder: Path,
    own: TlsCredentials | str,
    **task: Any,
) -> dict[str, Any]:
    if isinstance(own, str):
        own = amqp_credentials(broker.members[own], broker.directory.pki.root)
    (folder / "chain.pem").write_bytes(own.chain_pem)
    (folder / "key.pem").write_bytes(own.key_pem)
    (folder / "roots.pem").write_bytes(own.roots_pem)
    program = (
        [sys.executable, str(HERE / "broker_proton.py")]
        if library == "proton"
        else ["node", str(HERE / "broker_rhea.js")]
    )
    process = await asyncio.create_subprocess_exec(
        *program, str(broker.port), str(folder), json.dumps(task),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    result: dict[str, Any] = json.loads(out)
    return result


@both
@pytest.mark.req("503-2-a", "503-T3-a", "503-T3-b", "503-T3-c", component="broker")
@pytest.mark.req("503-6.3-a")
async def test_a_foreign_client_produces_and_another_consumes(
    broker: BrokerNetwork, library: str, tmp_path: Path
) -> None:
    sent = [fields(body=f"message {at}") for at in range(200)]
    produced = await run(broker, library, tmp_path, "E1", produce="E2", messages=sent)
    assert produced["error"] is None
    assert produced["outcomes"] == [["accepted", None]] * 200
    consumed = await run(broker, library, tmp_path, "E2", consume="E2", count=200)
    assert [m[:2] for m in consumed["messages"]] == [[s["id"], s["body"]] for s in sent]


@both
@pytest.mark.req("503-6.2-c")
async def test_what_a_foreign_client_leaves_unsettled_comes_again_with_a_count(
    broker: BrokerNetwork, library: str, tmp_path: Path
) -> None:
    one = fields(body="again")
    await run(broker, library, tmp_path, "E1", produce="E2", messages=[one])
    first = await run(broker, library, tmp_path, "E2", consume="E2", count=1, accept=False)
    assert first["messages"] == [[one["id"], "again", 0]]
    second = await run(broker, library, tmp_path, "E2", consume="E2", count=1)
    assert second["messages"] == [[one["id"], "again", 1]]


@both
@pytest.mark.req("503-T4-f")
async def test_a_foreign_client_consumes_from_its_own_queue_only(
    broker: BrokerNetwork, library: str, tmp_path: Path
) -> None:
    own = await run(broker, library, tmp_path, "E1", consume="E1", count=0)
    assert own["error"] is None
    other = await run(broker, library, tmp_path, "E1", consume="E2", count=0)
    assert other["error"][0] == "amqp:unauthorized-access"


@both
@pytest.mark.req("503-T4-h")
async def test_a_foreign_client_produces_to_endpoints_only(
    broker: BrokerNetwork, library: str, tmp_path: Path
) -> None:
    for queue in ("nobody", "B1", "CD-1"):
        refused = await run(broker, library, tmp_path, "E1", produce=queue, messages=[])
        assert refused["error"][0] == "amqp:not-found"


@both
@pytest.mark.req("503-T4-j", "503-T4-l", "503-6.3-g", component="broker")
async def test_each_message_of_a_foreign_client_is_judged(
    broker: BrokerNetwork, library: str, tmp_path: Path
) -> None:
    before = await broker.depth("E2")
    result = await run(
        broker,
        library,
        tmp_path,
        "E1",
        produce="E2",
        messages=[
            fields(receiver="E9"),
            fields(sender="E2"),
            fields(drop=["senderCode"]),
            fields(drop=["receiverCode"]),
            fields(drop=["subject"]),
            fields(drop=["ttl"]),
            fields(drop=["absolute_expiry_time"]),
            fields(drop=["internalType"]),
        ],
    )
    assert result["outcomes"] == [
        [REJECTED, "amqp:invalid-field"],
        [REJECTED, "amqp:unauthorized-access"],
        *[[REJECTED, "amqp:invalid-field"]] * 6,
    ]
    assert await broker.depth("E2") == max(before, 0)


@both
@pytest.mark.req("503-T4-m")
@pytest.mark.req("503-5.4-g")
async def test_a_foreign_client_sends_allowed_message_types_only(
    broker: BrokerNetwork, library: str, tmp_path: Path
) -> None:
    await _restrict(broker, message_types=["BP1*"])
    result = await run(
        broker,
        library,
        tmp_path,
        "E1",
        produce="E2",
        messages=[fields(subject="BP1-B"), fields(subject="BP2-B")],
    )
    # A refusal needs no disk, so it may come first.
    assert sorted(result["outcomes"]) == [["accepted", None], [REJECTED, "amqp:not-allowed"]]
    await _restrict(broker)
    await run(broker, library, tmp_path, "E2", consume="E2", count=1)


@both
@pytest.mark.req("503-T4-d")
async def test_a_foreign_client_that_is_not_allowed_is_told_so(
    broker: BrokerNetwork, library: str, tmp_path: Path
) -> None:
    await _restrict(broker, components=["E2"])
    result = await run(broker, library, tmp_path, "E1", consume="E1", count=1)
    assert result["error"][0] == "amqp:unauthorized-access"
    await _restrict(broker)


@both
@pytest.mark.req("503-T4-b", component="broker")
async def test_a_foreign_client_without_tls_is_not_served(
    broker: BrokerNetwork, library: str, tmp_path: Path
) -> None:
    result = await run(broker, library, tmp_path, "E1", consume="E1", count=1, tls=False)
    assert result["error"] is not None
    assert result["messages"] == []


@both
@pytest.mark.req("503-T4-c", component="broker")
@pytest.mark.parametrize(
    "shown", ["nothing", "signing", "encryption", "expired", "directory", "foreign root"]
)
async def test_a_foreign_client_with_a_wrong_certificate_does_not_get_in(
    broker: BrokerNetwork, library: str, tmp_path: Path, shown: str
) -> None:
    pki, now = broker.directory.pki, datetime.now(UTC)
    member, kind = broker.members["E1"], CertificateKind.AUTHENTICATION
    if shown in ("signing", "encryption"):
        kind = CertificateKind(shown.upper())
    elif shown == "expired":
        past = Validity(now - timedelta(days=20), now - timedelta(days=10))
        member = pki.component("E1", validity=past)
    elif shown == "directory":
        member = broker.directory.me
    elif shown == "foreign root":
        member = TestPki("CD-1", "ANOTHER ROOT", now=now).component("E1")
    own = amqp_credentials(member, pki.root, kind)
    task = {"consume": "E1", "count": 1, "shown": shown != "nothing"}
    result = await run(broker, library, tmp_path, own, **task)
    assert result["error"] is not None
    assert result["messages"] == []


@both
@pytest.mark.req("503-T4-h")
async def test_a_foreign_client_does_not_attach_to_a_recipient_that_is_not_allowed(
    broker: BrokerNetwork, library: str, tmp_path: Path
) -> None:
    await _restrict(broker, components=["E1"])
    refused = await run(broker, library, tmp_path, "E1", produce="E2", messages=[])
    assert refused["error"][0] == "amqp:unauthorized-access"
    await _restrict(broker)
    assert (await run(broker, library, tmp_path, "E1", produce="E2", messages=[]))["error"] is None


async def links(broker: BrokerNetwork, code: str, kind: str) -> None:
    async with asyncio.timeout(60):
        while not (await broker.queue(code) or {}).get(kind):
            await asyncio.sleep(0.02)


@both
@pytest.mark.req("503-T4-a", "503-T4-k", component="broker")
async def test_a_revocation_counts_for_foreign_clients_that_are_connected(
    broker: BrokerNetwork, library: str, tmp_path: Path
) -> None:
    code, go_on = f"R-{library}", tmp_path / "go on"
    broker.endpoint(code)
    await broker.synchronised()
    for folder in ("producer", "consumer"):
        (tmp_path / folder).mkdir()
    messages = [fields(receiver=code)]
    task = {"produce": code, "messages": messages, "after": str(go_on)}
    producing = asyncio.create_task(run(broker, library, tmp_path / "producer", "E1", **task))
    task = {"consume": code, "count": 1}
    consuming = asyncio.create_task(run(broker, library, tmp_path / "consumer", code, **task))
    await links(broker, code, "producers")
    await links(broker, code, "consumers")
    broker.revoke(code)
    assert (await consuming)["error"][0] == "amqp:unauthorized-access"
    go_on.touch()
    assert (await producing)["outcomes"] == [[REJECTED, "amqp:not-found"]]


@both
@pytest.mark.req("503-T4-a", "503-T4-k", component="broker")
@pytest.mark.req("503-8.6-f")
@pytest.mark.req("503-8.6-g")
async def test_a_revoked_component_can_neither_send_nor_be_sent_to(
    broker: BrokerNetwork, library: str, tmp_path: Path
) -> None:
    broker.endpoint("E9")
    await broker.synchronised()
    assert (await run(broker, library, tmp_path, "E9", consume="E9", count=0))["error"] is None
    broker.revoke("E9")
    await broker.synchronised()
    gone = await run(broker, library, tmp_path, "E9", consume="E9", count=1)
    assert gone["error"][0] == "amqp:unauthorized-access"
    lost = await run(broker, library, tmp_path, "E1", produce="E9", messages=[])
    assert lost["error"][0] == "amqp:not-found"


async def _restrict(broker: BrokerNetwork, **restriction: Any) -> None:
    before = len(broker.logged("configuration reloaded"))
    broker.configure(restriction=restriction)
    await eventually(lambda: len(broker.logged("configuration reloaded")) > before)
