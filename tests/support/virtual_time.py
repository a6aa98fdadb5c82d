"""An event loop whose waiting takes no time: its clock jumps to the next thing that is due."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Selector(selectors.DefaultSelector):
    loop: _Loop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout:
            self.loop.ahead += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.ahead = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.ahead


def run_in_virtual_time(work: Coroutine[Any, Any, None]) -> None:
    """For work without threads and without a network."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(work)
