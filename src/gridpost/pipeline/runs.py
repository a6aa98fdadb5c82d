"""What the commands of the pipeline cost: wall time and processor time, summed up per command.

Processor time is that of this process and everything below it: the driver, and with a local master
all of Spark and its Python workers. What a cluster uses elsewhere, its own records tell.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from gridpost.pipeline.lake import Lake

LAYER, TABLE = "bronze", "runs"
_SCHEMA = pa.schema(
    [
        ("command", pa.string()),
        ("runs", pa.int64()),
        ("seconds", pa.float64()),
        ("cpu_seconds", pa.float64()),
        ("rows", pa.int64()),
    ]
)


def totals(lake: Lake) -> dict[str, dict[str, Any]]:
    rows = lake.table(LAYER, TABLE).read()
    return {row["command"]: row for row in ([] if rows is None else rows.to_pylist())}


@contextmanager
def counting(lake: Lake, command: str) -> Iterator[dict[str, Any]]:
    """Adds a run to its command; `rows` of what is yielded says how much there was to do."""
    wall, cpu = time.monotonic(), cpu_seconds()
    done: dict[str, Any] = {"rows": 0}
    yield done
    known = totals(lake)
    old = known.get(command, dict.fromkeys(_SCHEMA.names, 0))
    known[command] = {
        "command": command,
        "runs": old["runs"] + 1,
        "seconds": old["seconds"] + time.monotonic() - wall,
        "cpu_seconds": old["cpu_seconds"] + max(0.0, cpu_seconds() - cpu),
        "rows": old["rows"] + done["rows"],
    }
    table = lake.table(LAYER, TABLE)
    rows = pa.Table.from_pylist([known[name] for name in sorted(known)], schema=_SCHEMA)
    table.overwrite(table.stage_arrow(rows))
    table.vacuum()


def cpu_seconds(process: int | None = None) -> float:
    """Of a process and everything below it, with children that have ended."""
    ticks = os.sysconf("SC_CLK_TCK")
    return sum(_ticks(pid) for pid in _tree(process or os.getpid())) / ticks


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            below = file.read_text(encoding="ascii").split()
        except OSError:
            continue
        for child in below:
            yield from _tree(int(child))


def _ticks(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0
    # utime, stime, cutime, cstime; the name before them may hold anything.
    return sum(int(value) for value in stat.rpartition(")")[2].split()[11:15])
