"""A node in operation: changed settings count without a restart, and a backup brings it back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from gridpost.assembly import file_watch
from gridpost.assembly.backup import back_up, restore
from gridpost.assembly.node import RunningNode, running_node
from support.directory_process import TestRoot
from support.old_network import OldEndpoint, TestNode
from support.waiting import eventually


def node(tmp_path: Path) -> TestNode:
    return TestNode(tmp_path / "N1", "N1", TestRoot(tmp_path / "root"))


async def test_changed_settings_count_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "LOOK_SECONDS", 0.05)
    one = node(tmp_path)
    async with running_node(one.configuration, clock=one.clock, file=one.file) as running:
        before = running.directory.dversion
        one.options = {
            "transfers": {"max_messages": 3},
            "directory": {"ttl": "7s", "token_validity": "9m"},
            "messages": {"default_priority": 4},
            "contact": {"organization": "Another name"},
        }
        await asyncio.to_thread(one.write)
        await eventually(lambda: running.directory.settings.max_messages == 3)
        await eventually(lambda: running.directory.dversion > before)
        settings = running.directory.settings
        assert (settings.ttl.total_seconds(), settings.priorities.default) == (7, 4)
        assert settings.token_validity.total_seconds() == 540
        assert running.upkeep.settings is running.api.settings is settings
        # Other nodes are told who this one is now.
        assert running.directory.components["N1"].contact.organization == "Another name"
        # A mistake changes nothing.
        one.options = {"transfers": {"max_messages": 0}}
        await asyncio.to_thread(one.write)
        await asyncio.sleep(0.2)  # time enough to make a mistake of it
        one.options = {"transfers": {"max_messages": 5}}
        assert running.directory.settings is settings
        await asyncio.to_thread(one.write)
        await eventually(lambda: running.directory.settings.max_messages == 5)


async def test_what_is_written_before_the_first_look_at_the_file_counts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "LOOK_SECONDS", 0.01)
    file, taken = tmp_path / "node.toml", list[str]()
    file.write_text("as it was read")

    async def changed() -> None:
        taken.append(file.read_text())

    watching = file_watch.watch_file(file, changed)
    file.write_text("as it is when somebody first looks")
    task = asyncio.create_task(watching)
    await eventually(lambda: taken)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert taken == ["as it is when somebody first looks"]


async def test_a_backup_of_a_running_node_brings_back_what_was_saved(tmp_path: Path) -> None:
    one = node(tmp_path)
    async with one.run():
        sender, receiver = await one.endpoint("E1"), await one.endpoint("E2")
        small, large = [await sender.message(receiver, b"x" * n) for n in (10, 200_000)]
        await sender.session().upload([small, large])
        now, archive = datetime.now(UTC), tmp_path / "node.tar"
        saved = await asyncio.to_thread(back_up, one.file, archive, now, _quiet)
        assert (saved.component, saved.code) == ("node", "N1")
    await asyncio.to_thread((one.home / "data").rename, tmp_path / "lost")
    await asyncio.to_thread(restore, archive, one.file, now, _quiet)
    async with one.run() as running:
        url = f"http://127.0.0.1:{running.operations_port}/health"
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            told = (await client.get(url)).json()["restored"]
        assert told["taken_at"] == now.isoformat()
        assert "uploaded between these two times" in told["missing"]
        assert set(running.directory.components) == {"N1", "E1", "E2"}
        found = await _all(receiver, running)
        assert found == {m.message_id: body for m, body in (small, large)}
        actions = await running.store.read(lambda unit: unit.journal.read(0, 100_000))
        assert any(getattr(r.row, "action", "") == "restored from a backup" for r in actions)


async def _all(receiver: OldEndpoint, running: RunningNode) -> dict[str, bytes]:
    messages, waiting = await receiver.session().download()
    assert waiting == 0
    return {m.message_id: body for m, body in messages}


def _quiet(*_: Any) -> None: ...
