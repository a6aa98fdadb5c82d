"""Where slow key operations run: in threads, because RSA releases the interpreter lock.

To hand work to a thread and its outcome back wakes a thread and the loop each time. So what was
asked for in one turn of the loop is divided among the threads and handed over in a few pieces.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from gridpost.stores.job import Job, deliverable, resolve

_P = ParamSpec("_P")
_T = TypeVar("_T")

_PIECE = 4
"""Operations that one thread does in a row before their callers hear of them: a few milliseconds."""


class KeyPool(ThreadPoolExecutor):
    def __init__(self, threads: int, name: str, piece: int = _PIECE) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._width = threads
        self._piece = piece
        self._asked: list[Job] = []
        """In this turn of the loop."""

    def ask(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        loop = asyncio.get_running_loop()
        job = Job(work, loop)
        # What a loop that was closed in the meantime asked for does not count.
        if not self._asked or self._asked[-1].loop is not loop:
            loop.call_soon(self._hand_over)
        self._asked.append(job)
        return job.future

    def _hand_over(self) -> None:
        asked, self._asked = self._asked, []
        size = min(self._piece, -(-len(asked) // self._width))
        for at in range(0, len(asked), size):
            piece = asked[at : at + size]
            try:
                self.submit(_do, piece)
            except RuntimeError as error:
                # Shut down meanwhile.
                for job in piece:
                    job.error = error
                    job.resolve()


def key_pool(threads: int | None = None) -> KeyPool:
    """One thread per processor: more could not compute more signatures at a time."""
    return KeyPool(threads or os.cpu_count() or 1, "gridpost-key")


async def run(
    pool: KeyPool | None, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """In the pool, or at once when there is none."""
    if pool is None:
        return function(*args, **kwargs)
    return await pool.ask(lambda: function(*args, **kwargs))


def _do(jobs: Sequence[Job]) -> None:
    for job in jobs:
        # A caller that has gone away needs nothing.
        if not job.future.cancelled():
            _attempt(job)
    resolve(jobs)


def _attempt(job: Job) -> None:
    try:
        job.result = job.work()
    except BaseException as error:
        job.error = deliverable(error)
