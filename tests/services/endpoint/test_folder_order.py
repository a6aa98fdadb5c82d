"""The order of system calls around shared folders: nothing is confirmed before it is on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import strace
from support.strace import Call

pytestmark = pytest.mark.skipif(not strace.available, reason="strace is not installed")
CALLS = "write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat"
SYNCS = ("fsync", "fdatasync")


def observed(what: str, folder: Path) -> list[Call]:
    done, calls = strace.trace(
        ["-m", "support.folder_child", what, str(folder)], CALLS, folder / "strace"
    )
    assert done.returncode == 0, done.stderr
    return calls


def steps(calls: list[Call], folder: Path) -> list[str]:
    """What happened to the store and to the folders, in short words."""
    log = f"{folder}/store/gridpost.sqlite3-wal"
    short: list[str] = []
    for call in calls:
        where = call.path.removeprefix(f"{folder}/")
        ended = call.result is not None
        if call.path == log and call.name == "pwrite64" and not ended:
            short.append("store: write")
        elif call.path == log and call.name in SYNCS and call.result == 0:
            short.append("store: sync")
        elif call.name.startswith("rename") and call.result == 0:
            short.append(f"name {Path(call.texts[-1]).name}")
        elif call.name.startswith("unlink") and not ended and "/OUT/" in "".join(call.texts):
            short.append(f"delete {Path(call.texts[-1]).name}")
        elif call.path.startswith(str(folder)) and where.split("/")[0] in ("IN", "OUT", "OUT_LOG"):
            if call.name in SYNCS and call.result == 0:
                short.append(f"sync {where}")
            elif call.name == "write" and not ended:
                short.append(f"write {where}")
    return [step for at, step in enumerate(short) if at == 0 or step != short[at - 1]]


@pytest.mark.req("503-11.2.1-f")
@pytest.mark.req("503-11.2.3-b")
def test_a_received_file_is_safe_before_its_message_is_confirmed(tmp_path: Path) -> None:
    found = steps(observed("in", tmp_path), tmp_path)
    (temporary,) = {step.removeprefix("write ") for step in found if step.startswith("write IN/")}
    assert temporary.endswith(".tmp")
    final = Path(temporary).stem + ".xml"
    order = [f"write {temporary}", f"sync {temporary}", f"name {final}", "sync IN"]
    begin = found.index(order[0])
    assert found[begin : begin + 6] == [*order, "store: write", "store: sync"]


@pytest.mark.req("503-T48-b")
def test_a_sent_file_is_deleted_after_its_message_is_stored(tmp_path: Path) -> None:
    found = steps(observed("out", tmp_path), tmp_path)
    deleted = found.index("delete APP_E2_F01_id.xml")
    # Stored, deleted, the deletion on the disk; only then is the file forgotten.
    assert found[deleted - 2 : deleted + 4] == [
        "store: write", "store: sync", "delete APP_E2_F01_id.xml", "sync OUT",
        "store: write", "store: sync",
    ]  # fmt: skip
    written = found.index("write OUT_LOG/APP_E2_F01_id.xml.log")
    assert found[written + 1 : written + 3] == [
        "sync OUT_LOG/APP_E2_F01_id.xml.log",
        "sync OUT_LOG",
    ]
