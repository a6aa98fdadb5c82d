"""A component that serves, as a process of its own: its ports, and how much memory it took."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Served:
    port: int
    administration_port: int
    """Where its operator talks to it."""
    process: int


@contextmanager
def serving(component: str, file: Path) -> Iterator[Served]:
    """`gridpost COMPONENT run` with this configuration, until the block ends."""
    command = [sys.executable, "-c", "from gridpost.cli import main; main()"]
    log = file.with_suffix(".log")
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, component, "run", "--config", str(file)],
            stderr=errors,
            env={k: v for k, v in os.environ.items() if not k.startswith("GRIDPOST_")},
        )
    try:
        said = _listening(process, log)
        administration = said.get("administration_port") or said["operations_port"]
        yield Served(int(said["port"]), int(administration), process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _listening(process: subprocess.Popen[bytes], log: Path) -> dict[str, Any]:
    while process.poll() is None:
        for line in log.read_bytes().splitlines():
            said = json.loads(line) if line.startswith(b"{") and line.endswith(b"}") else {}
            if said.get("event") == "listening":
                return dict(said)
        time.sleep(0.02)
    raise RuntimeError(f"the component did not start: {log.read_text()[-500:]}")


def peak_memory(process: int | str = "self") -> float:
    """MiB at most so far."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError("VmHWM")
