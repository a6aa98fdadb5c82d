"""`[journal] landing` of any component: an exporter beside it that writes every row and ends with it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx

from gridpost.core.segment import SegmentName
from gridpost.stores.sqlite.database import DATABASE
from support.network import Running
from support.waiting import eventually

PATIENCE = 240.0
"""An exporter has a lot to load, at the lowest priority."""
JOURNAL = '\n[journal]\nlanding = "{}"\nexport_every = "100ms"\n'


def exported(landing: Path) -> int:
    """The last row, if all before it are there, each once."""
    last = 0
    found = (SegmentName.parse(file.name) for file in landing.glob("*.json"))
    for name in sorted(name for name in found if name is not None):
        assert name.first == last + 1
        last = name.last
    return last


def journalled(home: Path) -> int:
    with closing(sqlite3.connect(home / "store" / DATABASE)) as connection:
        (last,) = connection.execute("SELECT max(sequence) FROM journal").fetchone()
    return int(last or 0)


def is_there(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def follows(running: Running, home: Path, landing: Path, port: int, token: str = "") -> None:
    """What a component that runs commits lands, and nobody is left behind when it stops."""
    await eventually(lambda: exported(landing) == journalled(home) > 0, PATIENCE)
    (started,) = running.logged("journal exporter started")
    exporter = int(started["pid"])
    assert os.getpriority(os.PRIO_PROCESS, exporter) == 19
    shown = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        answer = await client.get(f"http://127.0.0.1:{port}/metrics", headers=shown)
    assert answer.is_success, answer.text
    lines = [line for line in answer.text.splitlines() if "journal_exporter" in line]
    figures = dict(line.rsplit(" ", 1) for line in lines)
    assert float(figures["gridpost_journal_exporter_running"]) == 1
    assert float(figures["gridpost_journal_exporter_cpu_share"]) > 0
    assert await running.stop() == 0
    assert not is_there(exporter)
    assert not running.logged("journal exporter ended")
    assert exported(landing) == journalled(home)


@asynccontextmanager
async def started(running: Running) -> AsyncIterator[Running]:
    try:
        await running.start()
        yield running
    finally:
        if not running.ended:
            await running.kill()
