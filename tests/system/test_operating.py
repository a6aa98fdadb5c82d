"""An operator at work on a real network, by commands: what is decided holds over kill -9."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gridpost.client import AsyncEndpoint
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.free_port import free_port
from support.network import API_PASSWORD, Network, cli, network, until_status
from support.socks import SocksServer, socks_server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

CHECK = """
[[checks]]
name = "scanner"
before = ["acceptance"]
command = ["sh", "-c", "if grep -q virus; then echo a virus; exit 1; fi"]
[[checks]]
name = "doorman"
before = ["hand-over"]
command = ["sh", "-c", "if grep -q contraband; then echo contraband; exit 1; fi"]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy() -> AsyncIterator[SocksServer]:
    async with socks_server("grid", "secret") as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def net(
    tmp_path_factory: pytest.TempPathFactory, proxy: SocksServer
) -> AsyncIterator[Network]:
    """E1 reaches the broker through a SOCKS proxy; of the broker's two URLs the first one is dead."""
    async with network(tmp_path_factory.mktemp("operating")) as found:
        await found.broker("B1")
        file, port = found.components["B1"].file, found.ports["B1"]
        url = f'"amqps://127.0.0.1:{port}"'
        found.ports["B1 dead"] = free_port()
        dead = f'"amqps://127.0.0.1:{found.ports["B1 dead"]}"'
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace(f"[{url}]", f"[{dead}, {url}]"), encoding="utf-8")
        await found.endpoint("E1", "INDIRECT:B1")
        await found.endpoint("E2", "INDIRECT:B1")
        file = found.components["E1"].file
        text = file.read_text(encoding="utf-8")
        file.write_text(
            text.replace("[users.app]\n", "[users.app]\noperator = true\n")
            + CHECK
            + f'[connections]\nproxy = "socks5://grid:secret@127.0.0.1:{proxy.port}"\n',
            encoding="utf-8",
        )
        await found.start("B1")
        await found.start("E1", "E2")
        await found.known("E1", "E2")
        await found.known("E2", "E1")
        yield found


async def operate(net: Network, *arguments: str, expect: int = 0) -> Any:
    url = f"http://127.0.0.1:{net.ports['E1']}"
    words = ("endpoint", *arguments, "--url", url, "--user", "app")
    return await cli(*words, expect=expect, GRIDPOST_PASSWORD=API_PASSWORD)


async def kill(net: Network, api: AsyncEndpoint | None = None) -> None:
    await net.components["E1"].kill()
    await net.start("E1")
    if api is not None:
        # The connection that it kept open is dead.
        async with asyncio.timeout(60):
            while True:
                try:
                    await api.holds()
                    return
                except Refusal:
                    await asyncio.sleep(0.1)


async def confirm(api: AsyncEndpoint, message_type: str) -> bytes:
    async with asyncio.timeout(60):
        while (found := await api.receive(message_type)) is None:
            await asyncio.sleep(0.05)
    await api.confirm(found.message.message_id)
    return found.content or b""


async def test_a_pause_outlives_kill_9_and_messages_are_cancelled_and_sent_again(
    net: Network,
) -> None:
    await operate(net, "pause", "partner", "E2", "--reason", "they move house")
    async with net.api("E1") as one, net.api("E2") as two:
        first = await one.send("E2", "A01", b"first")
        second = await one.send("E2", "A01", b"second")
        await kill(net, one)
        assert (await one.status(first)).state == "ACCEPTED"
        assert "they move house" in (await one.explain(first)).summary
        (hold,) = (await operate(net, "holds"))["holds"]
        assert (hold["kind"], hold["value"], hold["by"]) == ("partner", "E2", "json/app")
        await operate(net, "cancel", first, "--reason", "wrong day")
        assert (await one.status(first)).status == "FAILED"
        assert (await operate(net, "resume", "partner", "E2"))["changed"]
        assert await confirm(two, "A01") == b"second"
        assert await until_status(one, second, "RECEIVED") == "RECEIVED"
        new = (await operate(net, "resend", first))["messageID"]
        assert await confirm(two, "A01") == b"first"
        assert await until_status(one, new, "RECEIVED") == "RECEIVED"
        assert (await one.status(new)).resend_of == first
        assert (await one.status(first)).resent_as == (new,)
        found = {m.message_id: m for m in await one.search(side="sent", messageType="A01")}
        assert (found[new].resend_of, found[first].resent_as) == (first, (new,))


async def test_the_broker_is_reached_through_the_proxy_and_by_its_second_url(
    net: Network, proxy: SocksServer
) -> None:
    async with net.api("E1") as one:
        message_id = await one.test("E2", "A01")
        assert await until_status(one, message_id, "DELIVERED") == "DELIVERED"
    assert set(proxy.led_to) == {net.ports["B1"]}
    assert set(proxy.failed) == {net.ports["B1 dead"]}
    assert proxy.refused == 0


async def test_maintenance_holds_over_kill_9_and_health_says_so(net: Network) -> None:
    await operate(net, "maintenance", "on", "--reason", "new disks")
    await kill(net)
    url = f"http://127.0.0.1:{net.ports['E1 operations']}/health"
    async with net.api("E1") as one, httpx.AsyncClient(trust_env=False, timeout=60) as client:
        with pytest.raises(Refusal) as refused:
            await one.send("E2", "A01", b"document")
        assert refused.value.rule is Rule.MAINTENANCE
        assert "new disks" in refused.value.message
        health = (await client.get(url)).json()
        assert (health["ok"], health["maintenance"]) == (True, True)
        await operate(net, "maintenance", "off")
        assert not (await client.get(url)).json()["maintenance"]


async def test_a_check_refuses_what_is_sent_and_holds_back_what_came(net: Network) -> None:
    async with net.api("E1") as one, net.api("E2") as two:
        with pytest.raises(Refusal) as refused:
            await one.send("E2", "A01", b"a virus")
        assert refused.value.rule is Rule.DOCUMENT_REFUSED
        sent = await two.send("E1", "B01", b"contraband")
        await until_status(two, sent, "DELIVERED")
        (held,) = (await operate(net, "held-back"))["messages"]
        assert held["messageID"] == sent
        assert "contraband" in held["reason"]
        await kill(net, one)
        assert await one.receive("B01") is None
        await operate(net, "drop", sent, "--reason", "not here")
        assert await until_status(two, sent, "FAILED") == "FAILED"
        again = await two.send("E1", "B01", b"contraband, with papers")
        await until_status(two, again, "DELIVERED")
        await operate(net, "release", again)
        assert await confirm(one, "B01") == b"contraband, with papers"
        assert await until_status(two, again, "RECEIVED") == "RECEIVED"


async def test_a_proof_is_exported_and_verified_after_the_peer_was_revoked(
    net: Network, tmp_path: Path
) -> None:
    async with net.api("E1") as one, net.api("E2") as two:
        message_id = await one.send("E2", "P01", b"the document")
        assert await confirm(two, "P01") == b"the document"
        await until_status(one, message_id, "RECEIVED")
        await net.components["E2"].stop()
        await net.administer("revoke", "E2", "--reason", "left the market")
        async with asyncio.timeout(60):
            while True:
                try:
                    await one.test("E2", "P01")
                except Refusal as refusal:
                    if refusal.rule is Rule.RECIPIENT_UNKNOWN:
                        break
                await asyncio.sleep(0.1)
    await kill(net)
    out = tmp_path / "proof.zip"
    url = f"http://127.0.0.1:{net.ports['E1']}"
    words = ("proof", "export", message_id, "--out", str(out), "--url", url, "--user", "app")
    await cli(*words, GRIDPOST_PASSWORD=API_PASSWORD)
    (root,) = (net.folder / "root").glob("*.pem")
    verdict = await cli("proof", "verify", str(out), "--root", str(root))
    assert verdict["origin"]["standing"] == "proven"
    assert verdict["receipt"]["standing"] == "proven"
