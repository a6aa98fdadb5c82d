"""Killing a writing process at any time loses nothing that was confirmed, and halves nothing."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.sqlite import SqliteStore
from stores.crash_work import SETTINGS, Writer, check, content_of
from support import strace
from support.child import environment, run_python
from support.soak import Soak

KILLS = 300
# A store that has grown is checked from the start each time; every so often a new one is made.
LIVES_PER_STORE = 15


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.req("503-5.9-c", component="endpoint")
def test_nothing_confirmed_is_lost_when_the_writer_is_killed(tmp_path: Path, soak: Soak) -> None:
    random = Random(soak.seed)
    confirmed = rows = before_open = 0
    kills = soak.scale(KILLS)
    folder = tmp_path / "store"
    told: list[str] = []
    for kill in range(kills):
        if kill % LIVES_PER_STORE == 0:
            shutil.rmtree(folder, ignore_errors=True)
            told = []
        lines = _live_and_die(folder, random)
        before_open += "open" not in lines
        lines = [line for line in lines if line != "open"]
        told += lines
        confirmed += len(lines)
        # Sometimes the next life has to clean up after this one.
        if random.random() < 0.8:
            rows = asyncio.run(check(folder, told))
            assert rows >= len(told)
    soak.report(kills=kills, confirmed=confirmed, killed_before_open=before_open, seed=soak.seed)


def _live_and_die(folder: Path, random: Random) -> list[str]:
    """Start a writer, kill it at a random time; the lines that it managed to say."""
    seed = random.randrange(1 << 30)
    writer = subprocess.Popen(
        [sys.executable, "-m", "stores.crash_writer", str(folder), str(seed)],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert writer.stdout is not None
    if random.random() < 0.15:
        # While it starts: before, during or just after it opens the store.
        time.sleep(random.uniform(0.05, 0.5))
        said = b""
    else:
        said = writer.stdout.readline()
        time.sleep(random.choice([random.uniform(0, 0.02), random.uniform(0, 0.5)]))
    writer.kill()
    said += writer.stdout.read()
    writer.stdout.close()
    assert writer.wait() == -9, "the writer ended by itself"
    complete, _, _ = said.rpartition(b"\n")
    return complete.decode().splitlines()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.req("503-5.9-c", component="endpoint")
def test_a_crash_at_any_step_leaves_before_or_after(tmp_path: Path, soak: Soak) -> None:
    # About 400 steps; a part of them below full scale, another part each time.
    stride = max(1, 500 // soak.scale(500))
    first = 1 + soak.seed % stride
    done = run_python(
        "-m", "stores.crash_points", str(tmp_path), str(first), str(stride), timeout=3000
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["wrong"] == []
    crashes = sum(result["steps"].values())
    assert crashes >= 300 // stride
    if stride == 1:
        assert {"write", "fsync", "rename", "unlink", "resolve", "sql COMMIT"} <= set(
            result["steps"]
        )
    soak.report(crashes=crashes, kinds=len(result["steps"]))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not strace.available, reason="strace is not installed")
@pytest.mark.req("503-5.9-c", component="endpoint")
def test_a_kill_inside_a_commit_leaves_before_or_after(tmp_path: Path, soak: Soak) -> None:
    """The kernel kills the writer as it enters a system call that changes the disk."""
    random = Random(soak.seed)
    kills, confirmed = soak.scale(150), 0
    for kill in range(kills):
        folder = tmp_path / f"store-{kill}"
        call = random.choice(["pwrite64", "pwrite64", "fdatasync", "fsync", "ftruncate", "unlink"])
        nth = random.randint(1, {"pwrite64": 400, "fdatasync": 12, "fsync": 12}.get(call, 3))
        done, _ = strace.trace(
            ["-m", "stores.crash_writer", str(folder), str(random.randrange(1 << 30))],
            call,
            tmp_path / "calls",
            *("-e", f"inject={call}:signal=KILL:when={nth}"),
        )
        assert done.returncode in (-9, 137), done.stderr
        complete, _, _ = done.stdout.rpartition("\n")
        told = [line for line in complete.splitlines() if line != "open"]
        confirmed += len(told)
        asyncio.run(check(folder, told))
        shutil.rmtree(folder)
    soak.report(kills=kills, confirmed=confirmed)


@pytest.mark.req("503-5.9-c", component="endpoint")
def test_a_torn_end_of_the_log_costs_only_what_was_not_confirmed(tmp_path: Path) -> None:
    """After a power failure the log may end anywhere, with anything behind the last sync."""
    original = tmp_path / "original"
    told, ends = asyncio.run(_confirmed_one_by_one(original))
    log = (original / "gridpost.sqlite3-wal").read_bytes()
    random = Random(7)
    cuts = [cut for end in ends for cut in (end - 1, end, end + random.randrange(9_000))]
    for cut in cuts:
        survived = sum(end <= cut for end in ends)
        for tail in (b"", random.randbytes(500)):
            folder = tmp_path / "torn"
            shutil.copytree(original, folder)
            (folder / "gridpost.sqlite3-shm").unlink()
            (folder / "gridpost.sqlite3-wal").write_bytes(log[:cut] + tail)
            assert asyncio.run(check(folder, told[:survived])) == survived
            shutil.rmtree(folder)


async def _confirmed_one_by_one(folder: Path) -> tuple[list[str], list[int]]:
    """What was told, and how long the log was then; the store is left as a crash would leave it."""
    store = SqliteStore.open(folder, "E1", SETTINGS)
    told: list[str] = []
    ends: list[int] = []
    log = folder / "gridpost.sqlite3-wal"
    # What belongs to the making of the store is in the database, not in the log.
    await store.close()
    store = SqliteStore.open(folder, "E1", SETTINGS)

    def tell(line: str) -> None:
        told.append(line)
        ends.append(log.stat().st_size)

    writer = Writer(store, tell)
    for work in (writer.receive, writer.send, writer.receive, writer.confirm, writer.settle) * 3:
        await work()
    kept = folder.with_name("kept")
    shutil.copytree(folder, kept)
    await store.close()
    shutil.rmtree(folder)
    kept.rename(folder)
    return told, ends


# -- the judge convicts


async def test_the_judge_notices_what_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    told = await _written(folder)
    assert await check(folder, told) > 0
    with pytest.raises(AssertionError, match="confirmed, but missing"):
        await check(folder, [*told, "received 1234"])


@pytest.mark.parametrize(
    ("damage", "verdict"),
    [
        ("DELETE FROM journal WHERE sequence = 2", "the journal has a gap"),
        ("DELETE FROM trace WHERE line = 2", "the trace"),
        ("UPDATE message SET state = 'CONFIRMED' WHERE state = 'WAITING'", "the state"),
        ("UPDATE content SET body = X'00' WHERE body IS NOT NULL", "the content"),
        ("DELETE FROM content WHERE body IS NOT NULL", "missing before its end"),
        ("DELETE FROM outgoing", "transfers and journal differ"),
        ("DELETE FROM message WHERE side = 'received'", "messages and journal differ"),
    ],
)
async def test_the_judge_notices_what_is_half(tmp_path: Path, damage: str, verdict: str) -> None:
    folder = tmp_path / "store"
    told = await _written(folder)
    connection = sqlite3.connect(folder / "gridpost.sqlite3")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(damage)
    connection.commit()
    connection.close()
    with pytest.raises(AssertionError, match=verdict):
        await check(folder, told)


async def test_the_judge_notices_a_lost_file(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    told = await _written(folder)
    _remove_one_file(folder)
    with pytest.raises((AssertionError, Refusal)) as verdict:
        await check(folder, told)
    assert "differ" in str(verdict.value) or verdict.value.rule is Rule.STORE_DAMAGED


def _remove_one_file(folder: Path) -> None:
    next((folder / "contents").iterdir()).unlink()


async def _written(folder: Path) -> list[str]:
    store = SqliteStore.open(folder, "E1", SETTINGS)
    told: list[str] = []
    writer = Writer(store, told.append)
    for _ in range(40):
        await writer.receive()
        await writer.send()
    await writer.confirm()
    await writer.settle()
    sizes = {len(content_of(line.split()[1])) > SETTINGS.file_threshold for line in told}
    assert sizes == {True, False}
    await store.close()
    return told
