"""When to look into a folder: the kernel says so (inotify), or a clock where it cannot.

A signal carries no duty: whoever is woken looks at what is there. Network file systems report only
what this machine did, so the clock ticks beside the kernel as well, more slowly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from watchfiles import awatch

log = logging.getLogger("gridpost.folders")

_DEBOUNCE_MS = 50
_STEP_MS = 10


class FolderWatch:
    def __init__(
        self,
        folder: Path,
        wake: Callable[[], None],
        *,
        polling: bool = False,
        poll_seconds: float = 1.0,
        rescan_seconds: float = 60.0,
    ) -> None:
        self._folder = folder
        self._wake = wake
        self._polling = polling
        self._poll = poll_seconds
        self._rescan = rescan_seconds
        self.listening = False
        """The kernel reports changes at this moment."""

    async def run(self) -> None:
        """Until cancelled."""
        if self._polling:
            await self._tick(self._poll)
            return
        while True:
            ticking = asyncio.create_task(self._tick(self._rescan))
            try:
                await self._listen()
                reason = "the folder is gone"
            except (OSError, RuntimeError) as error:
                # No inotify left, or a folder that is not there (yet).
                reason = str(error)
            finally:
                self.listening = False
                ticking.cancel()
                with suppress(asyncio.CancelledError):
                    await ticking
            log.warning("folder is polled", extra={"folder": str(self._folder), "reason": reason})
            # By the clock for a while, then the kernel is asked again.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rescan):
                    await self._tick(self._poll)

    async def _listen(self) -> None:
        if not self._folder.is_dir():
            raise FileNotFoundError(f"{self._folder} is no folder")
        self.listening = True
        # What came before the kernel began to watch.
        self._wake()
        async for changes in awatch(
            self._folder,
            watch_filter=None,
            recursive=False,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            force_polling=False,
        ):
            self._wake()
            if any(path == str(self._folder) for _, path in changes) and not self._folder.is_dir():
                return

    async def _tick(self, seconds: float) -> None:
        while True:
            self._wake()
            await asyncio.sleep(seconds)
