"""A key that was reported as stored is on disk: seen in the system calls, not in the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import strace
from support.strace import Call

SCRIPT = """
import os, sys
from pathlib import Path
from gridpost.stores.keys.files import FileKeyring
ring = FileKeyring(Path(sys.argv[1]), registry=None)
ring.create_key()
os.write(1, b"stored")
"""

CALLS = "mkdir,write,fsync,fdatasync,rename,renameat,renameat2"

pytestmark = pytest.mark.skipif(not strace.available, reason="strace is not installed")


def traced(home: Path, log: Path, script: str = SCRIPT) -> list[Call]:
    """The calls of a child process, as they ended."""
    done, calls = strace.trace(["-c", script, str(home)], CALLS, log)
    assert done.returncode == 0, done.stderr
    return [call for call in calls if call.result is not None]


def position(calls: list[Call], name: str, text: str, after: int = -1) -> int:
    """Where a call on a path, or with a text, that begins like this comes first."""
    for at, call in enumerate(calls):
        said = (call.path, *call.texts)
        if at > after and call.name.startswith(name) and any(t.startswith(text) for t in said):
            assert call.result is not None, call
            assert call.result >= 0, call
            return at
    raise AssertionError(f"no {name} with {text} after call {after} of {calls}")


def test_bytes_then_name_are_on_disk_before_success_is_reported(tmp_path: Path) -> None:
    home = tmp_path / "keys"
    calls = traced(home, tmp_path / "log")
    made = position(calls, "mkdir", str(home))
    written = position(calls, "write", f"{home}/.", made)
    file_synced = position(calls, "fsync", f"{home}/.", written)
    renamed = position(calls, "rename", str(home), file_synced)
    directory_synced = position(calls, "fsync", str(home), renamed)
    assert calls[directory_synced].path == str(home)
    reported = position(calls, "write", "stored", directory_synced)
    assert reported > directory_synced
    (key,) = home.glob("*.key")
    assert key.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")


def test_the_check_itself_notices_a_missing_sync(tmp_path: Path) -> None:
    home = tmp_path / "keys"
    careless = "import os; os.fsync = lambda fd: None\n" + SCRIPT
    calls = traced(home, tmp_path / "log", careless)
    written = position(calls, "write", f"{home}/.")
    with pytest.raises(AssertionError):
        position(calls, "fsync", str(home), written)
