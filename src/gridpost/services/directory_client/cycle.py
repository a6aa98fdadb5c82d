"""Work that is done again and again: after the delay that it asks for, or as soon as something changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta


class Cycle:
    def __init__(self, attempt: Callable[[], Awaitable[timedelta | None]]) -> None:
        """`attempt` answers how long to wait for the next one; None: until woken."""
        self._attempt = attempt
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            # Before the attempt: what changes during it is looked at by the next one.
            self._woken.clear()
            delay = await self._attempt()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if delay is None else delay.total_seconds()):
                    await self._woken.wait()

    def wake(self) -> None:
        """Now rather than at the end of the delay."""
        self._woken.set()
