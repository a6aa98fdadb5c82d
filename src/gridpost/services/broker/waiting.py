"""The messages of a queue that wait: which of them are in memory, and how the others come there.

In memory is a window at the head of the queue, and beside it what consumers gave back. What is
behind the window stays in the store until the window has room.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import Any, Final

import structlog

from gridpost.core.queues import Queued, QueueState
from gridpost.services.broker.context import BrokerContext
from gridpost.services.broker.served_queue import PutOff

log = structlog.get_logger(__name__)

_BATCH: Final = 256
_AHEAD: Final = 4
"""Bodies that are loaded before it is their turn."""


class Memory:
    """Octets of bodies that are in memory, of all queues together."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class Waiting:
    """`news` is called when messages or bodies came from the store, `gone` when one was not there.

    `under_way` are the messages that consumers have: a body that comes for one of them is too late.
    """

    def __init__(
        self,
        context: BrokerContext,
        memory: Memory,
        state: QueueState,
        under_way: Mapping[int, Queued],
        news: Callable[[], None],
        gone: Callable[[Mapping[int, int]], None],
    ) -> None:
        self._code = state.code
        self._context = context
        self._memory = memory
        self._under_way = under_way
        self._news = news
        self._gone = gone
        self._window: deque[Queued] = deque()
        self._octets = 0
        self._end = 0
        """The highest number that is or was in the window."""
        self._last = state.last_number
        self._returned: list[tuple[int, Queued]] = []
        self.put_off = PutOff(context, self._due)
        self._reading = False
        self._loading: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def behind(self) -> bool:
        """There is more in the store."""
        return self._last > self._end

    def heads(self) -> list[datetime]:
        """When the first of the window and the first of those given back came."""
        found = [self._returned[0][1].stored_at] if self._returned else []
        found += [message.stored_at for message in self.put_off.messages.values()]
        return found + ([self._window[0].stored_at] if self._window else [])

    # ------------------------------------------------------------ coming and going

    def arrived(self, message: Queued) -> bool:
        """It is safe in the store. False: it was read from there already."""
        behind = self.behind
        self._last = max(self._last, message.number)
        if message.number <= self._end:
            return False
        if not behind and self._fits(message.size):
            self._end = message.number
            self._append(message)
        else:
            message.content = None
        return True

    def head(self) -> Queued | None:
        returned, window = self._returned, self._window
        if returned and (not window or returned[0][0] < window[0].number):
            return returned[0][1]
        return window[0] if window else None

    def pop(self, message: Queued) -> None:
        """Take out what `head` gave. Its body still counts, until `drop_content`."""
        if self._window and self._window[0] is message:
            self._window.popleft()
        else:
            heapq.heappop(self._returned)

    def give_back(self, message: Queued) -> None:
        heapq.heappush(self._returned, (message.number, message))

    def _due(self, message: Queued) -> None:
        self.give_back(message)
        self._news()

    def take_out(self, numbers: set[int]) -> list[Queued]:
        """Those of them that are here, which are here no longer."""
        found = [message for message in self._window if message.number in numbers]
        for message in found:
            self._window.remove(message)
        found += self.put_off.take_out(numbers)
        kept = []
        for number, message in self._returned:
            if number in numbers:
                found.append(message)
            else:
                kept.append((number, message))
        heapq.heapify(kept)
        self._returned = kept
        for message in found:
            self.drop_content(message)
        return found

    def rewind(self) -> None:
        """The window begins again from the store."""
        for message in self._window:
            self.drop_content(message)
        self._window.clear()
        self._end = 0
        self._last = max(self._last, 1)

    # ------------------------------------------------------------ memory

    def drop_content(self, message: Queued) -> None:
        if message.content is not None:
            message.content = None
            self._octets -= message.size
            self._memory.used -= message.size

    def _fits(self, size: int) -> bool:
        settings = self._context.settings
        return (
            len(self._window) < settings.window_messages
            and self._octets + size <= max(settings.window_octets, size)
            and self._memory.used + size <= self._memory.limit
        )

    def _append(self, message: Queued) -> None:
        self._window.append(message)
        self._hold(message)

    def _hold(self, message: Queued) -> None:
        if message.content is not None:
            self._octets += message.size
            self._memory.used += message.size

    # ------------------------------------------------------------ from the store

    def fill(self) -> bool:
        """Read on if the window runs low; False: there is no need to."""
        if len(self._window) >= _BATCH // 2 or not self.behind:
            return False
        if not self._reading:
            self._reading = True
            self._start(self._read_behind())
        return True

    async def _read_behind(self) -> None:
        last, after = self._last, self._end
        room = max(0, self._context.settings.window_octets - self._octets)
        try:
            found = await self._context.store.read(self._code, after, _BATCH, room)
        finally:
            self._reading = False
        if self._end != after:
            # Rewound meanwhile: this is not what comes next.
            self._news()
            return
        # Only after a rewind can something be read that is elsewhere already.
        elsewhere = self._under_way.keys() | self.put_off.messages.keys()
        elsewhere |= {number for number, _ in self._returned}
        for message in found:
            self._end = message.number
            if message.number not in elsewhere:
                self._append(message)
        if not found:
            # Everything up to what was the last number has left meanwhile.
            self._end = max(self._end, last)
        self._news()

    def load_ahead(self) -> None:
        """Large bodies, and those that were dropped while their message was under way."""
        wanted = [message for _, message in heapq.nsmallest(_AHEAD, self._returned)]
        for message in self._window:
            if len(wanted) >= _AHEAD:
                break
            wanted.append(message)
        for at, message in enumerate(wanted):
            if message.content is None and message.number not in self._loading:
                # The first has to come whatever it costs, or nothing would move.
                if at and self._memory.used + message.size > self._memory.limit:
                    break
                self._loading.add(message.number)
                self._start(self._load(message))

    async def _load(self, message: Queued) -> None:
        try:
            content = await self._context.store.load(self._code, message.number)
        finally:
            self._loading.discard(message.number)
        if content is None:
            self._gone({message.number: message.size})
        elif message.content is None and message.number not in self._under_way:
            message.content = content
            self._hold(message)
        self._news()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("queue could not be read", queue=self._code, error=repr(error))
        asyncio.get_running_loop().call_later(
            self._context.settings.retry.total_seconds(), self._news
        )
