"""Ports for servers that are about to start: nobody gets one that somebody else was given."""

from __future__ import annotations

import subprocess
import sys

from gridpost.transports.free_port import free_port
from support.network import environment

# Only one port to choose from.
TAKE = """
from gridpost.transports import free_port as module
module._FIRST, module._RANGE, module._USUAL = {port}, module.Path("/nowhere"), {port} + 1
try:
    print(module.free_port())
except OSError:
    print("none")
"""


def test_no_port_is_given_twice() -> None:
    found = [free_port() for _ in range(300)]
    assert len(set(found)) == 300


def test_what_one_process_was_given_another_is_not() -> None:
    def asked(port: int) -> str:
        code = TAKE.format(port=port)
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, env=environment(), capture_output=True, text=True, check=True
        ).stdout.strip()

    mine = free_port()
    assert asked(mine) == "none"
    # A process that has ended keeps nothing.
    gone = subprocess.run(
        [sys.executable, "-c", "from gridpost.transports.free_port import free_port as f; print(f())"],
        env=environment(), capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert asked(int(gone)) == gone
