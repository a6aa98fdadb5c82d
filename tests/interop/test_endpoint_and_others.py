"""Endpoints and AMQP 1.0 that was built elsewhere: a broker and a peer on rhea.

Our engine is proton's, so proton would be no independent partner here.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gridpost.core.delivery import Status
from gridpost.core.journal import RefusalRow
from gridpost.services.endpoint.submission import Document
from gridpost.transports.amqp10 import TlsCredentials
from support.amqp_world import AmqpWorld, BrokerPlace, LiveEndpoint, authentication
from support.application import HERE, needs_rhea
from support.builders import path
from support.post import START
from support.waiting import eventually

pytestmark = [needs_rhea, pytest.mark.timeout(180)]
DAY = timedelta(days=1)


def write(folder: Path, own: TlsCredentials) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "chain.pem").write_bytes(own.chain_pem)
    (folder / "key.pem").write_bytes(own.key_pem)
    (folder / "roots.pem").write_bytes(own.roots_pem)


class ForeignBroker(BrokerPlace):
    """B1, in a process and on a library of its own."""

    facts: list[dict[str, Any]]

    @property
    def listeners(self) -> list[str]:
        return sorted({f["address"] for f in self.facts if f.get("attached") == "consumer"})


@asynccontextmanager
async def foreign_broker(folder: Path) -> AsyncIterator[ForeignBroker]:
    write(folder, authentication("B1")[1])
    process = await asyncio.create_subprocess_exec(
        "node",
        str(HERE / "queues_rhea.js"),
        str(folder),
        stdout=asyncio.subprocess.PIPE,
    )
    place = ForeignBroker("B1")
    place.facts = []
    assert process.stdout is not None

    async def hear(stream: asyncio.StreamReader) -> None:
        async for line in stream:
            place.facts.append(json.loads(line))

    hearing = asyncio.create_task(hear(process.stdout))
    try:
        await eventually(lambda: place.facts)
        place.port = place.facts[0]["port"]
        yield place
    finally:
        process.kill()
        await process.wait()
        await hearing


async def reaches(one: LiveEndpoint, message_id: str, status: Status) -> None:
    async with asyncio.timeout(60):
        while await one.enquiry.status(message_id) is not status:
            await asyncio.sleep(0.01)


@pytest.mark.req("503-2-a", component="endpoint")
@pytest.mark.req("503-6.3-b")
async def test_endpoints_exchange_messages_by_a_broker_of_another_make(tmp_path: Path) -> None:
    by_b1 = path("*", "INDIRECT:B1", start=START - DAY)
    async with foreign_broker(tmp_path / "B1") as place, AmqpWorld() as world:
        world.brokers["B1"] = place
        try:
            one = await world.endpoint("E1", by_b1)
            two = await world.endpoint("E2", by_b1)
            await eventually(lambda: place.listeners == ["E1", "E2"])
            large = b"x" * 500_000
            for sender, recipient, content in ((one, two, b"document"), (two, one, large)):
                message_id = await sender.submission.send(
                    "app", Document(recipient.code, "A01", content)
                )
                await reaches(sender, message_id, Status.DELIVERED)
                assert (await recipient.handover.receive("A01")).content == content
                await recipient.handover.confirm(message_id)
                await reaches(sender, message_id, Status.RECEIVED)
            assert not [fact for fact in place.facts if "error" in fact]
            taken = [(f["from"], f["taken"]) for f in place.facts if "taken" in f]
            # A message and its two acknowledgements, each way.
            assert sorted(taken) == sorted([("E1", "E2"), ("E2", "E1")] * 3)
        finally:
            del world.brokers["B1"]


async def rhea(port: int, folder: Path, task: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """What it says, and the frames that it saw."""
    process = await asyncio.create_subprocess_exec(
        "node",
        str(HERE / "broker_rhea.js"),
        str(port),
        str(folder),
        json.dumps(task),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "DEBUG": "rhea:frames", "DEBUG_COLORS": "no"},
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert out, err.decode()
    return json.loads(out.splitlines()[-1]), err.decode()


@pytest.mark.req("503-2-a", "503-6.1.2-b", component="endpoint")
async def test_a_peer_of_another_make_connects_in_the_order_of_amqp_and_hands_a_message_over(
    tmp_path: Path,
) -> None:
    direct = path("*", "DIRECT", start=START - DAY)
    async with AmqpWorld() as world:
        one = await world.endpoint("E1", direct, direct=True)
        await world.endpoint("E2", direct, direct=True)
        write(tmp_path / "E2", authentication("E2")[1])
        message = {
            "id": "5f0c5ef1-4c7a-4f44-8b5c-3a6f0f1f0001",
            "sender": "E2",
            "receiver": "E1",
            "type": "A01",
            "subject": "A01",
            "ttl": 60_000,
            "body": "not sealed",
        }
        told, trace = await rhea(
            one.port, tmp_path / "E2", {"produce": "E1", "messages": [message]}
        )
        assert told["error"] is None, told
        assert told["outcomes"] == [["accepted", None]]
        # It was read, and refused for what it is: its metadata are empty.
        rows = await one.store.read(lambda work: work.journal.read(0, 1000))
        rules = [r.row.rule for r in rows if isinstance(r.row, RefusalRow)]
        assert rules == ["SCHEMA_INVALID"]
    # The peer need not wait between OPEN and its first transfer: each side's order stands for itself.
    in_turn(
        trace,
        "<- sasl_mechanisms.*EXTERNAL",
        "-> sasl_init.*EXTERNAL",
        "<- sasl_outcome",
        "-> open",
    )
    in_turn(trace, "-> open", "-> begin", "-> attach", "-> transfer")
    answered = "<- open.*max_frame_size.*channel_max"
    in_turn(trace, "<- sasl_outcome", answered, "<- begin", "<- attach", "<- disposition")


def in_turn(trace: str, *steps: str) -> None:
    lines = iter(trace.splitlines())
    for step in steps:
        assert any(re.search(step, line) for line in lines), (step, trace)
