"""A disk or store that is full: nothing new is taken, what is there still goes out, nothing is lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gridpost.core.links import OutcomeKind
from support.broker_process import BrokerNetwork, Inbox, broker_network, message
from support.waiting import eventually

FULL = "amqp:resource-limit-exceeded"
MIB = 1024 * 1024


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of this many octets."""
    folder.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
            capture_output=True,
            check=False,
        ).returncode
    )
    if not mounted:
        pytest.skip("only root may mount a small file system; the page limit is tested anyway")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def occupy(file: Path) -> None:
    """Take all that is left of a file system."""
    with open(file, "wb", buffering=0) as filler:
        for piece in (MIB, 4096, 1):
            with suppress(OSError):
                while True:
                    filler.write(bytes(piece))


async def fill(broker: BrokerNetwork, size: int = 20_000) -> int:
    """Send until the broker refuses; how many it took."""
    connection = await broker.connect("E1")
    producer = await connection.attach_producer("E2")
    for count in range(2_000):
        outcome = await producer.send(message(body=b"%06d" % count + bytes(size)))
        if not outcome.taken:
            assert outcome.kind is OutcomeKind.REJECTED
            assert outcome.condition == FULL
            connection.close()
            await connection.lost
            return count
    raise AssertionError("the broker was never full")


async def test_above_the_mark_new_messages_are_refused_and_delivery_goes_on(
    tmp_path: Path,
) -> None:
    async with broker_network(tmp_path, store={"min_free": 0, "max_used": 2 * MIB}) as broker:
        taken = await fill(broker)
        assert taken > 10
        health = await broker.ask("/health")
        assert health.status_code == 503
        assert "mark" in health.json()["reason"]
        got = await broker.receive("E2", taken)
        assert len(got) == taken
        # Room is back: the broker takes messages again by itself.
        async with asyncio.timeout(60):
            while True:
                (outcome,) = await broker.send("E1", "E2", message())
                if outcome.taken:
                    break
                await asyncio.sleep(0.1)
        assert (await broker.ask("/health")).status_code == 200


async def test_a_database_that_cannot_grow_loses_nothing(tmp_path: Path) -> None:
    async with broker_network(tmp_path, store={"min_free": 0, "hard_limit": 3 * MIB}) as broker:
        taken = await fill(broker)
        assert taken > 10
        assert await broker.depth("E2") == taken
        inbox = Inbox()
        connection = await broker.connect("E2")
        await connection.attach_consumer("E2", inbox, credit=50)
        async with asyncio.timeout(60):
            while await broker.depth("E2") > 0:
                await asyncio.sleep(0.05)
        assert len(inbox.messages) == taken
        (outcome,) = await broker.send("E1", "E2", message(body=b"room again"))
        assert outcome.taken


async def test_what_was_taken_before_the_disk_was_full_survives_a_kill(tmp_path: Path) -> None:
    async with broker_network(tmp_path, store={"min_free": 0, "hard_limit": 3 * MIB}) as broker:
        taken = await fill(broker)
        await broker.kill()
        await broker.start()
        got = await broker.receive("E2", taken, 60)
        assert len(set(got)) == taken


def free(disk: Path) -> int:
    room = os.statvfs(disk)
    return room.f_bavail * room.f_frsize


# Rows of which the log holds most pages many times, rows of which it holds most once, and files;
# and what several producers have on its way at the same time.
@pytest.mark.parametrize(
    ("size", "producers"), [(20_000, 1), (100_000, 1), (400_000, 1), (400_000, 6)]
)
async def test_a_small_disk_that_fills_up_entirely_loses_nothing_and_work_resumes(
    tmp_path: Path, size: int, producers: int
) -> None:
    """The mark first, then the end of the reserve, then room again, without a restart.

    A disk that has as much room as before is enough only because new messages leave the reserve alone,
    however fast they come, and because it holds what copying the log back takes (`queues.space`).
    """
    store = {"min_free": 24 * MIB}
    with small_disk(tmp_path / "disk", 48 * MIB) as disk:
        async with broker_network(disk, store=store) as broker:
            taken = sum(await asyncio.gather(*(fill(broker, size) for _ in range(producers))))
            # When the log has been copied back there may be room again, all of which may be used.
            await asyncio.sleep(0.3)
            taken += await fill(broker, 400_000)
            assert taken > 20
            assert free(disk) > 20 * MIB
            filler = disk / "filler"
            occupy(filler)
            inbox = Inbox()
            connection = await broker.connect("E2")
            await connection.attach_consumer("E2", inbox, credit=taken)
            await eventually(lambda: len(inbox.messages) == taken, 60)
            await eventually(lambda: broker.logged("not removed"), 60)
            # Delivered, but not safely gone: nothing is settled and everything is still there.
            assert await broker.depth("E2") > 0
            health = await broker.ask("/health")
            assert health.status_code == 503
            filler.unlink()
            async with asyncio.timeout(60):
                while await broker.depth("E2") > 0:
                    await asyncio.sleep(0.05)
            assert len(inbox.messages) == taken
            async with asyncio.timeout(60):
                while not (await broker.send("E1", "E2", message(body=b"room")))[0].taken:
                    await asyncio.sleep(0.1)
                while len(inbox.messages) <= taken or await broker.depth("E2") > 0:
                    await asyncio.sleep(0.05)
            assert len(inbox.messages) == taken + 1
            # What is in the store is the same.
            await broker.kill()
            await broker.start()
            assert await broker.depth("E2") == 0
