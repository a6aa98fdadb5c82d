"""An endpoint without what is around it: its peer, a port of its own, its directory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.free_port import free_port
from support.network import Network, Running, network, until_status
from support.waiting import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

TTL = 20
"""Seconds for which the directory grants its data."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def net(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    granted = f'[synchronisation]\ncycle = "500ms"\nttl = "{TTL}s"\n'
    async with network(tmp_path_factory.mktemp("network"), granted) as found:
        await found.broker("B1")
        await found.start("B1")
        await found.endpoint("E1", "INDIRECT:B1", "DIRECT*=DIRECT", direct=True)
        await found.endpoint("E2", "INDIRECT:B1")
        await found.start("E1", "E2")
        await found.known("E1", "E2")
        await found.known("E2", "E1")
        yield found


def listens_at(running: Running) -> set[int]:
    """TCP ports that the process and its children have open for others, as the kernel says."""
    assert running.process is not None
    ours = {running.process.pid}
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    for _ in range(3):
        ours |= {child for child, parent in parents.items() if parent in ours}
    sockets = set()
    for pid in ours:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets.add(os.readlink(descriptor))
            except OSError:
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in sockets:
                found.add(int(local.rpartition(":")[2], 16))
    return found


@pytest.mark.req("503-4.4.1-a", component="endpoint")
async def test_a_message_waits_in_its_queue_until_the_recipient_comes_for_it(net: Network) -> None:
    recipient = net.components["E2"]
    await recipient.stop()
    async with net.api("E1") as sender:
        message_id = await sender.send("E2", "A01", b"while it was away")
        async with asyncio.timeout(60):
            while "has not fetched" not in (await sender.explain(message_id)).summary:
                await asyncio.sleep(0.1)
        assert (await sender.status(message_id)).status == "ACCEPTED"
        await recipient.start()
        # Nobody could have dialled it: it has no port for AMQP.
        assert listens_at(recipient) == {net.ports["E2"], net.ports["E2 operations"]}
        await until_status(sender, message_id, "DELIVERED")
        async with net.api("E2") as api:
            found = await api.receive("A01")
            assert found is not None
            assert found.content == b"while it was away"
            await api.confirm(found.message.message_id)
        await until_status(sender, message_id, "RECEIVED")


@pytest.mark.req("503-4.5.2-a", "503-T4-e")
async def test_without_direct_transfer_nobody_is_let_in_and_messages_go_by_brokers(
    net: Network,
) -> None:
    """First with a port for peers, then without: only the configuration differs."""
    port = free_port()
    section = f'[direct]\nhost = "127.0.0.1"\nport = {port}\nurls = ["amqps://127.0.0.1:{port}"]\n'
    three = await net.endpoint("E3", "INDIRECT:B1", "DIRECT*=DIRECT", last=section)
    await net.start("E3")
    await net.known("E1", "E3")
    own = {net.ports["E3"], net.ports["E3 operations"]}
    assert listens_at(three) == {*own, port}
    async with net.api("E1") as sender:
        straight = await sender.send("E3", "DIRECT-1", b"straight")
        assert (await sender.status(straight)).route == "DIRECT"
        await until_status(sender, straight, "DELIVERED")
        await three.stop()
        three.file.write_text(three.file.read_text().replace(section, ""))
        await three.start()
        assert listens_at(three) == own
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        for here, there in (("E1", "E3"), ("E3", "E1")):
            async with net.api(here) as one, net.api(there) as other:
                message_id = await one.send(there, "A03", b"by the broker")
                await until_status(one, message_id, "DELIVERED")
                found = await other.receive("A03")
                assert found is not None
                await other.confirm(found.message.message_id)
                await until_status(one, message_id, "RECEIVED")
    await three.stop()


@pytest.mark.req("503-4.4.3-c", component="endpoint")
async def test_without_a_directory_messages_flow_until_its_data_has_lapsed(net: Network) -> None:
    await net.directory.kill()
    async with net.api("E1") as sender:
        message_id = await sender.send("E2", "A01", b"without a directory")
        await until_status(sender, message_id, "DELIVERED", seconds=TTL)

        async def refused() -> Refusal | None:
            try:
                await sender.send("E2", "A01", b"too late")
            except Refusal as refusal:
                return refusal
            return None

        async with asyncio.timeout(TTL + 60):
            while (refusal := await refused()) is None:
                await asyncio.sleep(0.2)
        assert refusal.rule is Rule.DIRECTORY_DATA_LAPSED
        assert "is no longer valid" in refusal.message
        explained = await sender.explain(message_id)
        assert not [step for step, good, _ in explained.steps if step == "route" and good]
        # What is known again is sent to again.
        await net.directory.start()
        async with asyncio.timeout(60):
            while await refused() is not None:
                await asyncio.sleep(0.2)
    await eventually(lambda: not net.directory.ended)
