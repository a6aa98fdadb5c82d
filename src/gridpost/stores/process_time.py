"""What a process has used of the processors so far, as the kernel tells it."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds(process: int | str) -> float | None:
    """Of this process alone; None: there is none, or this kernel does not tell."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    # utime and stime; the name before them may hold anything.
    ticks = sum(int(value) for value in stat.rpartition(")")[2].split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")
