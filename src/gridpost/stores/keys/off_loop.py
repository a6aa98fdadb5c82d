"""Where slow key operations run: in threads, because RSA releases the interpreter lock."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


def key_pool(threads: int | None = None) -> ThreadPoolExecutor:
    """One thread per processor: more could not compute more signatures at a time."""
    return ThreadPoolExecutor(threads or os.cpu_count() or 1, thread_name_prefix="gridpost-key")


async def run(
    pool: Executor | None, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """In the pool, or at once when there is none."""
    if pool is None:
        return function(*args, **kwargs)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(pool, lambda: function(*args, **kwargs))
