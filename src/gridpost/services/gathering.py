"""What becomes ready in one turn of the loop leaves it in one write.

A commit answers many requests at once; a write for each would cost more than the answers themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Gathering(Generic[Item, Result]):
    def __init__(self, send: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]]) -> None:
        """`send` gives a result for each item, in their order."""
        self._send = send
        self._ready: list[tuple[Item, asyncio.Future[Result]]] = []
        self._sending: set[asyncio.Task[None]] = set()

    def add(self, item: Item) -> asyncio.Future[Result]:
        """In the order of these calls."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Result] = loop.create_future()
        if not self._ready:
            loop.call_soon(self._leave)
        self._ready.append((item, told))
        return told

    def _leave(self) -> None:
        ready, self._ready = self._ready, []
        task = asyncio.create_task(self._sent(ready))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _sent(self, ready: Sequence[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._send([item for item, _ in ready])
        except Exception as error:
            for _, told in ready:
                if not told.done():
                    told.set_exception(error)
            return
        for (_, told), result in zip(ready, results, strict=True):
            if not told.done():
                told.set_result(result)
