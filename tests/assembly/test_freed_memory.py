"""Memory that a component has freed: kept for the next document, shared by its threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Threads take turns with a piece of 20 MiB each; what the process holds at the end, in MiB.
_TURNS = """
import threading
from pathlib import Path
from gridpost.assembly.freed_memory import share_freed_memory
print(share_freed_memory())
everybody = threading.Barrier(6)
turn = threading.Lock()
def work():
    everybody.wait()
    for _ in range(3):
        with turn:
            bytearray(b"x") * (20 * 2**20)
    everybody.wait()
threads = [threading.Thread(target=work) for _ in range(6)]
before = int(Path("/proc/self/statm").read_text().split()[1])
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
after = int(Path("/proc/self/statm").read_text().split()[1])
print((after - before) * 4096 // 2**20)
"""


def run(**environment: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    kept.pop("GLIBC_TUNABLES", None)
    found = subprocess.run(
        [sys.executable, "-c", _TURNS],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return found.stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_threads_share_what_was_freed() -> None:
    shared, held = run()
    if shared == "False":
        pytest.skip("not the allocator of glibc")
    # One piece, and what threads cost; not one for each of them.
    assert int(held) < 60


def test_an_operator_who_has_chosen_is_left_alone() -> None:
    shared, _ = run(MALLOC_ARENA_MAX="3")
    assert shared == "False"
