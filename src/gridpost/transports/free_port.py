"""A port for a server that is about to start on this machine: demo, benches, tests."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

_FIRST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL = 32_768
_given: set[int] = set()


def free_port() -> int:
    """One that nobody listens on now, and that the kernel gives to no outgoing connection meanwhile.

    Nor is it given a second time, here or in another process of this user, while this process lives:
    some time passes before the server binds it.
    """
    end = int(_RANGE.read_text(encoding="ascii").split()[0]) if _RANGE.exists() else _USUAL
    candidates = range(_FIRST, end) if end > _FIRST else range(_FIRST, _USUAL)
    # Not the seeded one of whoever calls: two processes with one seed would take the same ports.
    for port in random.SystemRandom().sample(candidates, len(candidates)):
        if _taken(port):
            return port
    raise OSError(f"no port from {_FIRST} to {end} is free")


def _taken(port: int) -> bool:
    """Whether it was free, and is given to whoever asked."""
    if port in _given or not _reserved(port):
        return False
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    _given.add(port)
    return True


def _reserved(port: int) -> bool:
    """An octet of a file that all share, locked until this process ends."""
    try:
        fcntl.lockf(_shared(os.getpid()), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _shared(process: int) -> int:
    """Open in each process by itself: a fork has none of the locks of its parent."""
    path = Path(tempfile.gettempdir(), f"gridpost-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
