"""The order of system calls: what is confirmed has reached the disk before anybody hears of it.

Killing a process proves nothing about power failures, because the kernel keeps what was written.
Here the calls themselves are looked at, and a judge that would not notice a missing sync is caught by
being shown one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from support import strace
from support.child import run_python
from support.strace import Call

CALLS = "write,pwrite64,fsync,fdatasync,rename,renameat,renameat2"

pytestmark = pytest.mark.skipif(not strace.available, reason="strace is not installed")


def violations(calls: Iterable[Call], folder: Path) -> list[str]:
    """What is out of order between `begin` and `accepted`."""
    log, contents = f"{folder}/gridpost.sqlite3-wal", f"{folder}/contents"
    wrong: list[str] = []
    begun = False
    log_written, log_synced = 0, 0
    # Content files by name: what is still missing until they are safe.
    files: dict[str, set[str]] = {}
    syncing: dict[str, int] = {}
    for call in calls:
        ended = call.result is not None
        if call.name == "write" and "begin\\n" in call.texts:
            begun = True
        elif not begun:
            continue
        elif call.name == "write" and "accepted\\n" in call.texts and not ended:
            if log_written == 0:
                wrong.append("accepted before anything was written")
            elif log_synced < log_written:
                wrong.append("accepted before the log was synced")
            return wrong
        elif call.path == log and call.name == "pwrite64":
            if ended:
                log_written += 1
            else:
                wrong += [
                    f"the row was written before its file: {', '.join(sorted(missing))}"
                    for missing in files.values()
                    if missing
                ]
                files.clear()
        elif call.path == log and call.name in ("fsync", "fdatasync"):
            # A sync covers what was written before it began.
            if not ended:
                syncing[log] = log_written
            elif call.result == 0:
                log_synced = syncing[log]
        elif call.path.startswith(contents + "/") and call.name == "write" and ended:
            files[call.path.removesuffix(".part")] = {"sync", "name", "sync of the folder"}
        elif call.path.startswith(contents + "/") and call.name in ("fsync", "fdatasync"):
            if call.result == 0:
                files[call.path.removesuffix(".part")].discard("sync")
        elif call.name.startswith("rename") and call.result == 0:
            missing = files[call.texts[-1]]
            if "sync" in missing:
                wrong.append("a file got its name before it was synced")
            missing.discard("name")
        elif call.path == contents and call.name in ("fsync", "fdatasync") and call.result == 0:
            for missing in files.values():
                if "name" not in missing:
                    missing.discard("sync of the folder")
    return [*wrong, "never accepted"]


def _violations(tmp_path: Path, how: str, flaw: str) -> list[str]:
    folder = tmp_path / "store"
    done, calls = strace.trace(
        ["-m", "stores.durable_writer", str(folder), how, flaw], CALLS, tmp_path / "calls"
    )
    assert done.stdout.endswith("accepted\n"), done.stderr
    return violations(calls, folder)


@pytest.mark.req("503-5.9-c", component="endpoint")
@pytest.mark.parametrize("how", ["small", "staged", "direct"])
def test_a_reply_follows_the_sync_of_what_it_confirms(tmp_path: Path, how: str) -> None:
    assert _violations(tmp_path, how, "none") == []


@pytest.mark.parametrize(
    ("how", "flaw", "verdict"),
    [
        ("small", "synchronous=OFF", "accepted before the log was synced"),
        ("small", "synchronous=NORMAL", "accepted before the log was synced"),
        ("staged", "synchronous=OFF", "accepted before the log was synced"),
        ("small", "reply too early", "accepted before anything was written"),
        ("staged", "folder not synced", "the row was written before its file: sync of the folder"),
        ("direct", "folder not synced", "the row was written before its file: sync of the folder"),
        ("staged", "file not synced", "a file got its name before it was synced"),
    ],
)
def test_a_missing_sync_is_noticed(tmp_path: Path, how: str, flaw: str, verdict: str) -> None:
    assert verdict in _violations(tmp_path, how, flaw)


# -- a disk that fails


def _faulty(tmp_path: Path, injection: str, path: str) -> tuple[set[str], dict[str, str]]:
    """Let calls on a path fail while a process writes: what was accepted, what was refused and why."""
    folder = tmp_path / "store"
    prepared = run_python("-m", "stores.faulty_writer", str(folder), "0")
    assert prepared.returncode == 0, prepared.stderr
    done, _ = strace.trace(
        ["-m", "stores.faulty_writer", str(folder), "40"],
        "pwrite64,fdatasync,fsync",
        tmp_path / "calls",
        *("-P", str(folder / path), "-e", f"inject={injection}"),
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    accepted = {words[1] for words in lines if words[0] == "accepted"}
    refused = {words[1]: words[2] for words in lines if words[0] == "refused"}
    found = run_python("-m", "stores.faulty_writer", str(folder), "found")
    assert found.returncode == 0, found.stderr
    assert set(found.stdout.split()) == accepted
    assert len(accepted) + len(refused) == 40
    return accepted, refused


LOG = "gridpost.sqlite3-wal"


# Calls are counted for each thread: the committer writes the log, two threads write files.
@pytest.mark.parametrize(
    ("injection", "path", "rule"),
    [
        ("pwrite64:error=ENOSPC:when=60..70", LOG, "STORE_FULL"),
        ("pwrite64:error=EIO:when=60..70", LOG, "INTERNAL"),
        ("fdatasync:error=EIO:when=3..6", LOG, "INTERNAL"),
        ("fsync:error=ENOSPC:when=2..3", "contents", "STORE_FULL"),
        ("fsync:error=EIO:when=2..3", "contents", "INTERNAL"),
    ],
)
def test_a_failing_disk_refuses_and_the_store_goes_on_when_it_works_again(
    tmp_path: Path, injection: str, path: str, rule: str
) -> None:
    accepted, refused = _faulty(tmp_path, injection, path)
    assert accepted
    assert len(refused) >= 2
    assert set(refused.values()) == {rule}
