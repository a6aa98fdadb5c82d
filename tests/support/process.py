"""What the kernel says about a process."""

from __future__ import annotations

from pathlib import Path


def resident(process: int) -> int:
    """Octets of memory at this moment."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")
