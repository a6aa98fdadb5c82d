"""What a node and an endpoint of an old network tell their operators by themselves."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from gridpost.assembly.check import check
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.node import RunningNode
from gridpost.assembly.operations_token import bearer
from gridpost.core.instant import Instant
from gridpost.core.journal import RefusalRow
from gridpost.core.refusal import Refusal
from support.directory_process import TestRoot
from support.old_endpoint import OldGridpost
from support.old_network import TestNode
from support.waiting import eventually

OFTEN = {"alerts": {"cycle": "50ms"}, "alerts.rules": {"disk_free": 0}}


async def alerts(port: int) -> dict[tuple[str, str], str]:
    """Kind and subject of what is open, with its text."""
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        told = (await client.get(f"http://127.0.0.1:{port}/health")).json()["alerts"]
    return {(alert["kind"], alert["subject"]): alert["text"] for alert in told}


async def until_alert(port: int, kind: str, subject: str = "", there: bool = True) -> str:
    async with asyncio.timeout(60):
        while True:
            found = await alerts(port)
            texts = [t for (k, s), t in found.items() if k == kind and s.startswith(subject)]
            if bool(texts) is there:
                return "".join(texts)
            await asyncio.sleep(0.05)


async def until_told(port: int, subject: str, text: str) -> None:
    async with asyncio.timeout(60):
        while text not in await until_alert(port, "certificate_expiry", subject):
            await asyncio.sleep(0.05)


async def test_a_node_tells_who_does_not_come_and_what_expired(tmp_path: Path) -> None:
    node = TestNode(
        tmp_path / "N1", "N1", TestRoot(tmp_path / "root"),
        options=OFTEN | {"messages": {"upkeep_cycle": "50ms"}},
    )  # fmt: skip
    async with node.run() as running:
        port = running.operations_port
        one, two = await node.endpoint("E1"), await node.endpoint("E2")
        ends = Instant.of(node.clock.now() + timedelta(hours=3))
        message = await one.message(two, expiration_time=ends)
        await one.session().upload([message])
        assert await alerts(port) == {}
        node.clock.forward(timedelta(hours=2))
        assert "1 messages for E2" in await until_alert(port, "queue_age", "E2")
        # What goes to the journal of refusals goes with where it came from.
        forged = one.session(home=False)
        forged._signer = lambda: two.token_signer
        for _ in range(20):
            with pytest.raises(Refusal, match="AUTHENTICATION_ERROR"):
                await forged.component("N1")
        assert "was refused 20 times" in await until_alert(port, "refused_connections", "127.0.0.1")
        rows = await running.store.read(lambda unit: unit.journal.listed(0, 1000))
        assert {r.row.peer for r in rows if isinstance(r.row, RefusalRow)} == {"127.0.0.1"}
        node.clock.forward(timedelta(hours=2))
        assert "1 messages expired" in await until_alert(port, "expired_messages")
        await until_alert(port, "queue_age", "E2", there=False)
        node.clock.forward(timedelta(hours=1))
        await until_alert(port, "expired_messages", there=False)


async def test_a_node_tells_of_other_nodes_that_are_silent(tmp_path: Path) -> None:
    root, clock = TestRoot(tmp_path / "root"), SystemClock()
    rules = {
        "alerts.rules": {"disk_free": 0, "no_synchronisation": "1s"},
        "directory": {"cycle": "200ms"},
    }
    a = TestNode(tmp_path / "A", "NA", root, clock=clock, options=OFTEN | rules)  # type: ignore[arg-type]
    b = TestNode(tmp_path / "B", "NB", root, clock=clock)  # type: ignore[arg-type]
    async with a.run() as running:
        await a.ask("import-nodes", file=f"NB {b.url}\n")
        told = await until_alert(running.operations_port, "no_synchronisation", "NB")
        assert "cannot be reached" in told
        async with b.run():
            await until_alert(running.operations_port, "no_synchronisation", there=False)


async def test_a_node_tells_of_certificates_that_end(tmp_path: Path) -> None:
    """Its own is renewed by itself; those of its endpoints, and its CA, by people."""
    node = TestNode(
        tmp_path / "N1", "N1", TestRoot(tmp_path / "root"),
        options=OFTEN | {"directory": {"certificate_validity": "40d"}},
    )  # fmt: skip
    async with node.run() as running:
        port = running.operations_port
        await node.endpoint("E1")
        assert await alerts(port) == {}
        node.clock.forward(timedelta(days=38))
        for kind in ("AUTHENTICATION", "SIGNING", "ENCRYPTION"):
            told = await until_alert(port, "certificate_expiry", f"E1 {kind}")
            assert "ends at" in told
        node.clock.forward(timedelta(days=3))
        for kind in ("AUTHENTICATION", "SIGNING", "ENCRYPTION"):
            await until_told(port, f"E1 {kind}", "has expired at")
        await running.keys.look()
        await until_alert(port, "certificate_expiry", "N1", there=False)
        await node.ask("remove", code="E1", reason="left")
        await until_alert(port, "certificate_expiry", there=False)
        # The INTEGRATED CA of the test lasts 1000 days.
        node.clock.forward(timedelta(days=955))
        await until_alert(port, "certificate_expiry", "the INTEGRATED CA")


async def test_connections_without_our_certificates_are_journalled_and_raise_an_alert(
    tmp_path: Path,
) -> None:
    node = TestNode(tmp_path / "N1", "N1", TestRoot(tmp_path / "root"), options=OFTEN)
    async with node.run() as running:
        stranger = ssl.create_default_context()
        stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
        for _ in range(20):
            with suppress(ssl.SSLError, OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=stranger)
                writer.close()
        told = await until_alert(running.operations_port, "refused_connections", "127.0.0.1")
        assert "was refused 20 times" in told
        rows = await running.store.read(lambda unit: unit.journal.listed(0, 1000))
        refusals = [r.row for r in rows if isinstance(r.row, RefusalRow)]
        assert {(r.rule, r.peer, r.security) for r in refusals} == {
            ("PEER_UNKNOWN", "127.0.0.1", True)
        }


async def test_whoever_changes_a_node_shows_the_token_of_its_home(tmp_path: Path) -> None:
    node = TestNode(tmp_path / "N1", "N1", TestRoot(tmp_path / "root"))
    async with node.run() as running, httpx.AsyncClient(trust_env=False, timeout=60) as client:
        url = f"http://127.0.0.1:{running.operations_port}"
        assert (await client.get(f"{url}/health")).is_success
        for headers in ({}, {"authorization": "Bearer guessed"}):
            refused = await client.post(f"{url}/purge", json={"by": "x"}, headers=headers)
            assert refused.status_code == 401
            assert "operations.token" in refused.text or "token" in refused.text
        shown = bearer(node.configuration.home)
        assert (await client.post(f"{url}/purge", json={"by": "x"}, headers=shown)).is_success


def test_a_node_does_not_show_its_operations_to_the_network(tmp_path: Path) -> None:
    node = TestNode(tmp_path / "N1", "N1", TestRoot(tmp_path / "root"))
    node.options = {"operations": {"host": "0.0.0.0"}}
    node.write()
    with pytest.raises(Refusal) as refused:
        check(node.file)
    told = f"{refused.value.message} {refused.value.details}"
    assert "operations.host must be a loopback address" in told
    assert "use the console" in told


async def test_the_journal_of_a_node_keeps_its_time(tmp_path: Path) -> None:
    node = TestNode(
        tmp_path / "N1", "N1", TestRoot(tmp_path / "root"),
        options={"journal": {"retention": "10d"}, "messages": {"upkeep_cycle": "50ms"}},
    )  # fmt: skip
    async with node.run() as running:
        await node.endpoint("E1")
        assert await _rows(running)
        node.clock.forward(timedelta(days=9))
        await node.ask("purge")
        kept = await _rows(running)
        assert kept
        await node.endpoint("E2")
        node.clock.forward(timedelta(days=2))
        async with asyncio.timeout(60):
            while set(kept) & set(await _rows(running)):
                await asyncio.sleep(0.05)
        assert await _rows(running)


async def _rows(running: RunningNode) -> list[int]:
    rows = await running.store.read(lambda unit: unit.journal.read(0, 100_000))
    return [row.sequence for row in rows]


async def test_an_endpoint_of_an_old_network_watches_its_home_node_and_its_papers(
    tmp_path: Path,
) -> None:
    clock: Any = SystemClock()
    options = {"directory": {"certificate_validity": "10d"}}
    node = TestNode(tmp_path / "N", "N1", TestRoot(tmp_path / "root"), clock=clock, options=options)
    rules = '[alerts]\ncycle = "50ms"\n[alerts.rules]\nno_synchronisation = "1s"\ndisk_free = 0\n'
    async with node.run():
        one = OldGridpost(tmp_path / "E1", await node.endpoint("E1"), top=rules)
    async with one.run() as running:
        port = running.operations_port
        told = await until_alert(port, "no_synchronisation", "N1")
        assert "cannot be reached" in told
        # It has no component-directory, and misses none.
        silent = [s for k, s in await alerts(port) if k == "no_synchronisation"]
        assert silent == ["N1"]
        for kind in ("AUTHENTICATION", "SIGNING", "ENCRYPTION"):
            await until_alert(port, "certificate_expiry", kind)
        async with node.run():
            await until_alert(port, "no_synchronisation", there=False)
            old = running.core.old
            assert old is not None
            await eventually(lambda: old.answered_at is not None)
