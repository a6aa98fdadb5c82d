"""The exporter that a broker starts beside itself: low priority, back after a crash, gone with the broker."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gridpost.assembly.exporter_process import next_pause
from gridpost.core.segment import SegmentName
from gridpost.stores.sqlite.database import DATABASE
from support.broker_process import BrokerNetwork, broker_network
from support.waiting import eventually

PATIENCE = 120.0
"""An exporter has a lot to load, at the lowest priority."""


def segments(broker: BrokerNetwork) -> list[SegmentName]:
    found = (SegmentName.parse(file.name) for file in (broker.folder / "landed").glob("*.json"))
    return sorted(name for name in found if name is not None)


def exported(broker: BrokerNetwork) -> int:
    """The last row, if all before it are there, each once."""
    last = 0
    for name in segments(broker):
        assert name.first == last + 1
        last = name.last
    return last


def journalled(broker: BrokerNetwork) -> int:
    with closing(sqlite3.connect(broker.home / "store" / DATABASE)) as connection:
        (last,) = connection.execute("SELECT max(sequence) FROM journal").fetchone()
    return int(last)


def exporter(broker: BrokerNetwork) -> int:
    started = broker.logged("journal exporter started")
    return int(started[-1]["pid"]) if started else 0


def is_there(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def figure(broker: BrokerNetwork, name: str) -> float:
    text = (await broker.ask("/metrics")).text
    lines = [line.split() for line in text.splitlines()]
    (value,) = [line[1] for line in lines if line[0] == f"gridpost_journal_exporter_{name}"]
    return float(value)


@pytest.mark.timeout(300)
async def test_a_broker_exports_its_journal_by_itself(tmp_path):
    journal = {"landing": "landed", "export_every": "100ms"}
    async with broker_network(tmp_path, start=False, journal=journal) as broker:
        await broker.start()
        await eventually(lambda: exported(broker) == journalled(broker) > 0, PATIENCE)
        first = exporter(broker)
        # The broker comes first, whatever there is to export.
        assert os.getpriority(os.PRIO_PROCESS, first) == 19
        assert os.sched_getscheduler(first) == os.SCHED_BATCH
        assert await figure(broker, "running") == 1
        assert await figure(broker, "starts") == 1
        assert await figure(broker, "cpu_seconds") > 0
        assert await figure(broker, "cpu_share") > 0

        # Without its exporter the broker goes on, and soon it has another one.
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: exporter(broker) not in (0, first), PATIENCE)
        assert broker.logged("journal exporter ended")[0]["code"] == -signal.SIGKILL
        second = exporter(broker)
        used = await figure(broker, "cpu_seconds")
        assert await figure(broker, "starts") == 2
        before = journalled(broker)
        broker.configure(queues={"upkeep": "400ms"})
        await eventually(lambda: journalled(broker) > before)
        await eventually(lambda: exported(broker) == journalled(broker), PATIENCE)
        assert await figure(broker, "cpu_seconds") >= used

        # Nobody leaves an exporter behind, however it ends.
        await broker.kill()
        await eventually(lambda: not is_there(second))
        await broker.start()
        assert (await broker.stop()) == 0
        third = exporter(broker)
        assert third not in (0, second)
        assert not is_there(third)
        assert exported(broker) == journalled(broker) > before


@pytest.mark.timeout(300)
async def test_an_exporter_that_cannot_work_is_tried_again_later_and_the_broker_serves(tmp_path):
    (tmp_path / "landed").write_text("not a folder")
    journal = {"landing": "landed", "export_every": "100ms"}
    async with broker_network(tmp_path, start=False, journal=journal) as broker:
        await broker.start()
        await eventually(lambda: len(broker.logged("journal exporter ended")) >= 2, PATIENCE)
        assert "landed" in broker.logged("journal exporter ended")[0]["reason"]
        assert (await broker.ask("/health")).status_code == 200
        (tmp_path / "landed").unlink()
        await eventually(lambda: exported(broker) == journalled(broker) > 0, PATIENCE)
        assert await broker.stop() == 0


def test_pauses_grow_while_it_ends_at_once_and_begin_anew_after_a_good_time():
    pauses = [0.0]
    for lasted in (0, 0, 0, 0, 0, 0, 0, 0, 3600, 0):
        pauses.append(next_pause(pauses[-1], lasted))
    assert pauses[1:] == [1, 2, 4, 8, 16, 32, 60, 60, 1, 2]
