"""How the outcome of a work gets from the thread that commits to the loop that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any


class Job:
    """One work on its way."""

    __slots__ = ("error", "future", "loop", "result", "work")

    def __init__(self, work: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def resolve(self) -> None:
        """In the caller's loop."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


def resolve(group: Iterable[Job]) -> None:
    """From any thread: each caller hears of it in its own loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in group:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve_all, jobs)
        except RuntimeError:
            # The loop was closed: nobody waits any more, and the work is safe.
            continue


def deliverable(error: BaseException) -> BaseException:
    """What a future can carry to the caller of the work."""
    if isinstance(error, StopIteration):
        return RuntimeError("the work raised StopIteration")
    return error


def _resolve_all(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job.resolve()
