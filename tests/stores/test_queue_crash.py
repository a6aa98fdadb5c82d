"""The embedded queues when the process is killed: what was reported is there, nothing else is half there."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

from gridpost.core.queues import Remove
from gridpost.stores.sqlite import snapshot
from gridpost.stores.sqlite.queues import QueueSettings, SqliteQueueStore
from gridpost.stores.sqlite.queues.files import Files, Staged
from support.queues import SetClock, commit, put, queued, row
from support.soak import Soak

ROOT = Path(__file__).parents[2]
ALL = 1_000_000
SETTINGS = QueueSettings(file_threshold=4_096, min_free=0)

# Puts and removes messages for ever; says on stdout what the store has reported, and only that.
WORKER = """
import asyncio, itertools, os, random, sys
from pathlib import Path
from gridpost.core.identifiers import new_message_id
from gridpost.core.queues import Remove
from gridpost.stores.sqlite.queues import QueueSettings, SqliteQueueStore
from support.queues import SetClock, commit, put, queued, row

def say(text):
    os.write(1, (text + "\\n").encode())

async def worker(store, chance):
    while True:
        size = chance.choice((10, 10, 1000, 6000))
        name = new_message_id()
        one = put(message=queued(name.encode() * (size // 36 + 1), message_id=name))
        say("put " + name)
        await commit(store, one)
        say("stored " + name)
        if chance.random() < 0.5:
            say("remove " + name)
            await commit(store, Remove("E2", one.message, row(name)))
            say("removed " + name)

async def main():
    settings = QueueSettings(file_threshold=4096, min_free=0)
    store = SqliteQueueStore.open(Path(sys.argv[1]), "B1", SetClock(), settings)
    chance = random.Random(int(sys.argv[2]))
    await asyncio.gather(*(worker(store, chance) for _ in range(int(sys.argv[3]))))

asyncio.run(main())
"""


def start(folder: Path, seed: int, *prefix: str, workers: int = 20) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", WORKER, str(folder), str(seed), str(workers)],
        stdout=subprocess.PIPE,
        env=environment,
    )


async def test_kill_at_any_point_loses_nothing_and_invents_nothing(
    tmp_path: Path, soak: Soak
) -> None:
    chance = random.Random(soak.seed)
    folder = tmp_path / "broker"
    said: dict[str, set[str]] = {k: set() for k in ("put", "stored", "remove", "removed")}
    rounds = soak.scale(100)
    for number in range(rounds):
        process = start(folder, soak.seed + number)
        assert process.stdout is not None
        for _ in range(chance.randrange(10, 400)):
            line = process.stdout.readline().split()
            said[line[0].decode()].add(line[1].decode())
        process.send_signal(signal.SIGKILL)
        for line in (rest.split() for rest in process.stdout.read().splitlines()):
            if len(line) == 2 and len(line[1]) == 36:
                said[line[0].decode()].add(line[1].decode())
        process.wait()
        process.stdout.close()
        store = SqliteQueueStore.open(folder, "B1", SetClock(), SETTINGS)
        here = {m.message_id: m for m in await store.read("E2", 0, ALL, 1 << 40)}
        # The newest, and of the others those whose files could have been written over.
        looked_at = list(here)[-50:]
        looked_at += [n for n in here if here[n].size > SETTINGS.file_threshold][:200]
        for name in looked_at:
            content = await store.load("E2", here[name].number)
            assert content == name.encode() * (here[name].size // 36)
        rows = await store.journal(lambda journal: journal.read(0, ALL))
        await store.close()
        assert set(here) <= said["put"]
        assert said["stored"] - said["remove"] <= set(here)
        assert not said["removed"] & set(here)
        assert [r.sequence for r in rows] == list(range(1, len(rows) + 1))
        files = {p.name for p in (folder / "contents").iterdir()}
        large = [m for m in here.values() if m.size > SETTINGS.file_threshold]
        assert bool(files) == bool(large)
        assert len(files) <= len(large)
    soak.report(kills=rounds, messages=len(said["put"]), stored=len(said["stored"]))


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing")
def test_nothing_is_reported_before_it_is_on_the_disk(tmp_path: Path) -> None:
    """The order of system calls of one worker: body, its name, the log, and only then the word."""
    log = tmp_path / "calls"
    process = start(
        tmp_path / "broker",
        1,
        "strace", "-f", "-o", str(log), "-y",
        "-e", "trace=openat,fsync,fdatasync,write,pwrite64",
        workers=1,
    )  # fmt: skip
    assert process.stdout is not None
    for _ in range(150):
        process.stdout.readline()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    process.wait()
    process.stdout.close()
    log_written = names_open = False
    bodies: set[str] = set()
    synced: set[str] = set()
    checked = with_body = written_over = 0
    for line in log.read_text(errors="replace").splitlines():
        body = re.search(r"/contents/([\w-]+)>", line)
        if "sqlite3-wal>" in line:
            log_written = "pwrite64(" in line or (log_written and "sync(" not in line)
            # The log names a body only after its octets and its name are safe.
            assert not bodies
        elif body and "write(" in line:
            bodies.add(body[1])
            with_body += 1
            written_over += body[1] in synced
        elif body and "sync(" in line:
            bodies.discard(body[1])
            synced.add(body[1])
        elif "/contents>" in line and "O_CREAT" in line:
            names_open = True
        elif "/contents>" in line and "fsync(" in line:
            names_open = False
        elif "write(1<" in line and '"stored ' in line:
            assert (log_written, bodies, names_open) == (False, set(), False)
            checked += 1
    assert checked > 20
    assert with_body > 5
    assert written_over


async def test_bodies_that_arrive_together_share_a_file_that_goes_with_the_last(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "broker"
    store = SqliteQueueStore.open(folder, "B1", SetClock(), SETTINGS)
    puts = [put(message=queued(bytes([at]) * 6_000)) for at in range(3)]
    again = put(message=queued(bytes(6_000), message_id=puts[0].message.message_id))
    await asyncio.gather(*(commit(store, one) for one in [*puts, again]))
    assert again.duplicate
    (file,) = (folder / "contents").iterdir()
    for at, one in enumerate(puts):
        assert file.exists()
        assert await store.load("E2", one.message.number) == bytes([at]) * 6_000
        await commit(store, Remove("E2", one.message, row(one.message.message_id)))
    assert await store.load("E2", puts[0].message.number) is None
    following = put(message=queued(b"n" * 10_000))
    await commit(store, following)
    # Nobody's any more, it is written over.
    assert list((folder / "contents").iterdir()) == [file]
    assert await store.load("E2", following.message.number) == b"n" * 10_000
    await commit(store, Remove("E2", following.message, row(following.message.message_id)))
    await store.close()
    assert not file.exists()


async def test_a_body_whose_producer_sends_on_shares_a_file_with_the_one_that_follows(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "broker"
    settings = replace(SETTINGS, company=timedelta(seconds=30))
    store = SqliteQueueStore.open(folder, "B1", SetClock(), settings)
    first = put(message=queued(b"1" * 6_000))
    first.followed = True
    waiting = asyncio.create_task(commit(store, first))
    for _ in range(3):  # turns of the loop: they do not arrive together
        await asyncio.sleep(0)
    second = put(message=queued(b"2" * 6_000))
    await asyncio.gather(waiting, commit(store, second))
    (file,) = (folder / "contents").iterdir()
    assert file.stat().st_size == 12_000
    await store.close()


async def test_a_body_that_is_followed_by_nothing_is_safe_all_the_same(tmp_path: Path) -> None:
    store = SqliteQueueStore.open(tmp_path / "broker", "B1", SetClock(), SETTINGS)
    alone = put(message=queued(b"1" * 6_000))
    alone.followed = True
    async with asyncio.timeout(30):
        await commit(store, alone)
    assert await store.load("E2", alone.message.number) == b"1" * 6_000
    await store.close()


async def test_a_file_that_a_backup_has_linked_is_not_written_over(tmp_path: Path) -> None:
    folder, copy = tmp_path / "broker", tmp_path / "copy"
    store = SqliteQueueStore.open(folder, "B1", SetClock(), SETTINGS)
    first = put(message=queued(b"1" * 6_000))
    await commit(store, first)
    taken = snapshot.take(folder, copy)
    await commit(store, Remove("E2", first.message, row(first.message.message_id)))
    second = put(message=queued(b"2" * 6_000))
    await commit(store, second)
    (saved,) = taken.contents
    assert saved.read_bytes() == b"1" * 6_000
    assert await store.load("E2", second.message.number) == b"2" * 6_000
    assert [file.name for file in (folder / "contents").iterdir()] != [saved.name]
    await store.close()


def test_no_file_is_written_over_while_a_backup_is_taken(tmp_path: Path) -> None:
    files = Files(tmp_path)
    (first,) = files.write([b"first"])
    files.decide([first])
    assert files.spare([first.name]) == []
    backup = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(backup, fcntl.LOCK_SH)
    (second,) = files.write([b"second"])
    assert second.name != first.name
    os.close(backup)
    (third,) = files.write([b"third"])
    assert third.name == first.name
    assert files.read(third) == b"third"
    assert files.read(second) == b"second"
    files.close()


async def test_a_body_that_left_while_it_was_read_is_not_taken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteQueueStore.open(tmp_path / "broker", "B1", SetClock(), SETTINGS)
    first, second = (put(message=queued(letter * 6_000)) for letter in (b"1", b"2"))
    await commit(store, first)
    begun, go_on = Event(), Event()
    read = Files.read

    def read_late(files: Files, staged: Staged) -> bytes:
        begun.set()
        go_on.wait()
        return read(files, staged)

    monkeypatch.setattr(Files, "read", read_late)
    loading = asyncio.create_task(store.load("E2", first.message.number))
    await asyncio.to_thread(begun.wait)
    await commit(store, Remove("E2", first.message, row(first.message.message_id)))
    await commit(store, second)
    go_on.set()
    assert await loading is None
    assert await store.load("E2", second.message.number) == b"2" * 6_000
    await store.close()


def test_a_file_is_not_dropped_while_a_row_may_come_to_name_it(tmp_path: Path) -> None:
    files = Files(tmp_path)
    first, second = files.write([b"first", b"second"])
    files.decide([first])
    assert files.undecided(first.name)
    files.decide([second])
    assert not files.undecided(first.name)
    assert files.read(second) == b"second"
    assert files.octets == 11
    files.close()
