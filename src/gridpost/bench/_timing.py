"""How the benches of the pipeline take times."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

RUNS = int(os.environ.get("GRIDPOST_BENCH_RUNS", "3"))


WARM_S = 20.0
"""How long each engine runs before it is measured, once at least: Java compiles what has run often."""


def median(work: Callable[[], Any]) -> float:
    """Seconds, once warm."""
    started = time.perf_counter()
    work()
    while time.perf_counter() - started < WARM_S:
        work()
    return timed(work)


def timed(work: Callable[[], Any]) -> float:
    found = []
    for _ in range(RUNS):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return statistics.median(found)
