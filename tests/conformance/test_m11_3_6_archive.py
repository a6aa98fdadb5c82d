"""MADES 1.1 cl. 3.6, 3.14.1, 3.15.1: an administrator archives and purges messages and logs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import httpx
import pytest
from typer.testing import CliRunner

from gridpost.assembly import journal_export
from gridpost.assembly.operations_token import bearer
from gridpost.cli.endpoint import app as endpoint_command
from gridpost.core.delivery import Side
from gridpost.core.message_box import Retention
from gridpost.core.node import PurgeStrategy
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint import archive as archiving
from gridpost.services.endpoint.old_network.arrival import OldArrival
from gridpost.wire import proof_file
from gridpost.wire.seal.proof import verify_proof
from support.directory_process import TestRoot
from support.old_network import TestNode
from support.old_site import OldSite

pytestmark = pytest.mark.asyncio(loop_scope="session")


def exported(file: Path, landing: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Rows that `gridpost journal export` has put into the landing folder."""
    monkeypatch.setattr(journal_export, "lower_priority", lambda: None)
    (done,) = journal_export.export_job(file, str(landing), 100).once()
    assert done.lost == ()
    assert list(landing.rglob("*.parquet"))
    return done.rows


@pytest.mark.req("m11-3.6-f", component="endpoint")
@pytest.mark.req("m11-3.14.1-d", component="endpoint")
async def test_an_endpoint_archives_what_is_finished_and_then_forgets_it(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = await old_site.gridpost(0, f"A{uuid4().hex[:8]}")
    peer = await old_site.peer(1)
    sent = [await one.send("E2", b"%d" % n, "ARCHIVE") for n in range(3)]
    for message_id in sent:
        assert (await old_site.two.receive("ARCHIVE"))[0] == message_id
        await one.until(message_id, "RECEIVED")
    metadata, body = await peer.message(one.endpoint, b"came", message_type="ARCHIVE")
    await peer.session(old_site.nodes[0]).upload([(metadata, body)])
    await one.receive("ARCHIVE")
    # Of one retention has taken the document before.
    bare = await one.send("E2", b"bare", "BARE")
    await old_site.two.receive("BARE")
    await one.until(bare, "RECEIVED")
    assert one.running is not None
    store, clock = one.running.core.context.store, one.running.core.context.clock
    keep = Retention(sent_content=timedelta(0), by_type={"ARCHIVE": PurgeStrategy.NEVER})
    purged = await store.run(lambda work: work.box.purge(keep, clock.now(), 100))
    assert (purged.contents, purged.entries) == (1, 0)
    waiting = await one.send(peer.code, b"not yet", "ARCHIVE")
    await one.until(waiting, "DELIVERING")
    running = one.running
    assert running is not None
    core = running.core
    real, fails = archiving.write_archive, [False, True]

    def full(file: Path, parts: Any) -> None:
        if fails.pop(0):
            raise OSError(28, "No space left on device")
        real(file, parts)

    with monkeypatch.context() as broken:
        broken.setattr(archiving, "write_archive", full)
        broken.setattr(archiving, "_AT_ONCE", 2)
        with pytest.raises(Refusal) as refused:
            await core.archive.run(core.context.clock.now(), "operator:test")
        assert refused.value.rule is Rule.STORE_FULL
    left = await core.context.store.read(
        lambda work: work.box.finished(core.context.clock.now(), 100)
    )
    assert len(left) == 3
    # The rest by the listener, for whoever can read the token in the home folder.
    url = f"http://127.0.0.1:{running.operations_port}/archive"
    home = core.configuration.home
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        assert (await client.post(url, json={})).status_code == 401
        wrong = {"authorization": "Bearer guessed"}
        assert (await client.post(url, json={}, headers=wrong)).status_code == 401
        # As the command line does it, which asks for older ones than there are.
        command = ["archive", "--config", str(one.file), "--older-than", "1h", "--json"]
        done = await asyncio.to_thread(CliRunner().invoke, endpoint_command, command)
        assert json.loads(done.stdout) == {"files": [], "messages": 0}
        token = await asyncio.to_thread(bearer, home)
        told = (await client.post(url, json={"by": "alice"}, headers=token)).json()
    assert told["messages"] == 3
    kept: dict[str, bytes] = {}
    for file in (home / "archive").glob("*.zip"):
        with ZipFile(file) as archive:
            kept |= {name: archive.read(name) for name in archive.namelist()}
    assert set(map(str, (home / "archive").glob("*.zip"))) >= set(told["files"])
    everything = [("sent", i) for i in sent] + [("received", metadata.message_id)]
    for side, message_id in everything:
        described = json.loads(kept[f"{side}-{message_id}.json"])
        assert described["messageType"] == "ARCHIVE"
        assert described["trace"]
        proof = proof_file.decode(kept[f"{side}-{message_id}.proof"]).proof
        verdict = verify_proof(proof, [old_site.root.certificate], [])
        assert verdict.origin.proven
        assert verdict.receipt.proven is (side == "sent")
        with pytest.raises(Refusal):
            await one.entry(message_id, Side(side))
    assert f"sent-{bare}.content" not in kept
    assert b"<messageID>" + bare.encode() in kept[f"sent-{bare}.xml"]
    assert bare.encode() in kept[f"sent-{bare}.acknowledgement-0.xml"]
    assert (await one.entry(waiting)).delivery.state == "DELIVERING"
    # What was archived does not come again as something new.
    assert core.old is not None
    await OldArrival(core.old).take(metadata, body)
    assert (await core.handover.receive("ARCHIVE")).entry is None
    # And the log.
    rows = await store.read(lambda work: work.journal.read(0, 100_000))
    found = await asyncio.to_thread(exported, one.file, tmp_path / "landing", monkeypatch)
    assert found >= len(rows) > 0
    monkeypatch.setattr(
        core.upkeep, "settings", replace(core.upkeep.settings, journal_retention=timedelta(0))
    )
    await core.upkeep.tidy_once()
    after = await store.read(lambda work: work.journal.read(0, 100_000))
    assert not {r.sequence for r in rows} & {r.sequence for r in after}


@pytest.mark.req("m11-3.14.1-d", component="node")
async def test_a_node_archives_and_purges_its_messages_and_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    node = TestNode(
        tmp_path / "N1", "N1", TestRoot(tmp_path / "root"),
        options={"messages": {"purge_after": "1h"}, "journal": {"retention": "10d"}},
    )  # fmt: skip
    async with node.run() as running:
        one, two = (
            await node.endpoint("E1", key_name="E0"),
            await node.endpoint("E2", key_name="E1"),
        )
        messages = [await one.message(two, b"x" * 100_000) for _ in range(3)]
        await one.session().upload(messages)
        ids = [m.message_id for m, _ in messages]
        await two.session().confirm(ids[:2])
        node.clock.forward(timedelta(seconds=1))
        from gridpost.services.node import archive as node_archiving

        monkeypatch.setattr(node_archiving, "_BYTES", 150_000)
        told = await node.ask("archive")
        assert (told["messages"], len(told["files"])) == (2, 2)
        for file, (metadata, content) in zip(told["files"], messages, strict=False):
            with ZipFile(file) as archive:
                assert archive.read(f"{metadata.message_id}.content") == content
        assert await node.states() == {ids[2]: "ACCEPTED"}
        before = await running.store.read(lambda unit: unit.journal.read(0, 100_000))
        rows = await asyncio.to_thread(exported, node.file, tmp_path / "landing", monkeypatch)
        assert rows >= len(before) > 0
        node.clock.forward(timedelta(days=11))
        told = await node.ask("purge")
        assert told["journal"] >= len(before)
        after = await running.store.read(lambda unit: unit.journal.read(0, 100_000))
        assert not {r.sequence for r in before} & {r.sequence for r in after}
