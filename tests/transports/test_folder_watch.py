"""A folder is looked at when the kernel says so, and by the clock where it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from gridpost.transports.folder_watch import FolderWatch
from support.waiting import eventually


class Woken:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@asynccontextmanager
async def watched(folder: Path, woken: Woken, **settings: Any) -> AsyncIterator[FolderWatch]:
    watch = FolderWatch(folder, woken, **settings)
    task = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_the_kernel_reports_a_file_that_got_its_name(tmp_path: Path) -> None:
    woken = Woken()
    (tmp_path / "a.tmp").write_text("x")
    async with watched(tmp_path, woken, rescan_seconds=3600) as watch:
        await eventually(lambda: watch.listening and woken.times >= 1)
        # Whatever came before it began to listen has been reported by now.
        await asyncio.sleep(0.3)
        before = woken.times
        (tmp_path / "a.tmp").rename(tmp_path / "a.xml")
        await eventually(lambda: woken.times > before)


async def test_beside_the_kernel_the_clock_ticks(tmp_path: Path) -> None:
    woken = Woken()
    async with watched(tmp_path, woken, rescan_seconds=0.01) as watch:
        await eventually(lambda: woken.times > 5)
        assert watch.listening


async def test_where_the_kernel_says_nothing_the_clock_does(tmp_path: Path) -> None:
    woken = Woken()
    async with watched(tmp_path, woken, polling=True, poll_seconds=0.01) as watch:
        await eventually(lambda: woken.times > 5)
        assert not watch.listening


async def test_a_folder_that_is_missing_is_polled_until_it_is_there(tmp_path: Path) -> None:
    woken, folder = Woken(), tmp_path / "later"
    async with watched(folder, woken, poll_seconds=0.01, rescan_seconds=0.05) as watch:
        await eventually(lambda: woken.times > 3)
        assert not watch.listening
        folder.mkdir()
        await eventually(lambda: watch.listening)
