"""A key that was reported as stored is on disk: seen in the system calls, not in the code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
from pathlib import Path
from gridpost.stores.keys.files import FileKeyring
ring = FileKeyring(Path(sys.argv[1]), registry=None)
ring.create_key()
os.write(1, b"stored")
"""

CALL = re.compile(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")


def traced(home: Path, log: Path, script: str = SCRIPT) -> list[tuple[str, str, int]]:
    """The calls of a child process that touch its key directory or say that it is done."""
    strace = ["strace", "-f", "-y", "-o", str(log)]
    strace += ["-e", "trace=openat,mkdir,write,fsync,fdatasync,rename,renameat,renameat2"]
    environment = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    subprocess.run(
        [*strace, sys.executable, "-c", script, str(home)],
        check=True,
        capture_output=True,
        env=environment,
    )
    calls = [match.groups() for match in map(CALL.match, log.read_text().splitlines()) if match]
    return [
        (name, arguments, int(result))
        for name, arguments, result in calls
        if str(home) in arguments or '"stored"' in arguments
    ]


def position(calls: list[tuple[str, str, int]], name: str, text: str, after: int = -1) -> int:
    for at, (called, arguments, result) in enumerate(calls):
        if at > after and called.startswith(name) and text in arguments:
            assert result >= 0, calls[at]
            return at
    raise AssertionError(f"no {name} with {text} after call {after} of {calls}")


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace here")
def test_bytes_then_name_are_on_disk_before_success_is_reported(tmp_path: Path) -> None:
    home = tmp_path / "keys"
    calls = traced(home, tmp_path / "log")
    made = position(calls, "mkdir", f'"{home}"')
    written = position(calls, "write", f"{home}/.", made)
    file_synced = position(calls, "fsync", f"{home}/.", written)
    renamed = position(calls, "rename", str(home), file_synced)
    directory_synced = position(calls, "fsync", f"{home}>", renamed)
    reported = position(calls, "write", '"stored"', directory_synced)
    assert reported > directory_synced
    (key,) = home.glob("*.key")
    assert key.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace here")
def test_the_check_itself_notices_a_missing_sync(tmp_path: Path) -> None:
    home = tmp_path / "keys"
    careless = "import os; os.fsync = lambda fd: None\n" + SCRIPT
    calls = traced(home, tmp_path / "log", careless)
    written = position(calls, "write", f"{home}/.")
    with pytest.raises(AssertionError):
        position(calls, "fsync", str(home), written)
