"""A port for a server that is about to start on this machine: demo, benches, tests."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_FIRST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL = 32_768


def free_port() -> int:
    """One that nobody listens on now, and that the kernel gives to no outgoing connection meanwhile."""
    end = int(_RANGE.read_text(encoding="ascii").split()[0]) if _RANGE.exists() else _USUAL
    candidates = range(_FIRST, end) if end > _FIRST else range(_FIRST, _USUAL)
    # Not the seeded one of whoever calls: two processes with one seed would take the same ports.
    for port in random.SystemRandom().sample(candidates, 1000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {_FIRST} to {end} is free")
