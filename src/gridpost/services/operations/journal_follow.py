"""Reads a component's journal from where it was left, for whoever has to hear of every row."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from gridpost.core.journal import Recorded, RefusalRow

log = structlog.get_logger(__name__)

BATCH = 500
_MOST = 10_000


class Cursor(Protocol):
    """Where a follower was; durable, so that a restart neither skips nor repeats much."""

    def load(self) -> int | None: ...

    def save(self, sequence: int) -> None: ...


ReadJournal = Callable[[int, int], Awaitable[Sequence[Recorded]]]
"""Rows after a sequence number, at most so many."""


Streams = Callable[[], Awaitable[Mapping[str, ReadJournal]]]
"""The streams of a journal by their instance: one, or one for each process that ever wrote."""
Take = Callable[[Sequence[Recorded]], Awaitable[None]]


def one_stream(instance: str, read: ReadJournal) -> Streams:
    async def streams() -> Mapping[str, ReadJournal]:
        return {instance: read}

    return streams


class JournalFollower:
    """Hands every row of every stream to whoever takes it, in the order of its stream, at least once."""

    def __init__(
        self,
        streams: Streams,
        cursor: Callable[[str], Cursor],
        take: Callable[[str], Take],
        look: timedelta = timedelta(seconds=1),
    ) -> None:
        """`cursor` and `take` are of one instance."""
        self._streams = streams
        self._cursor = cursor
        self._take = take
        self._look = look
        self._followed: dict[str, _Followed] = {}

    async def run(self) -> None:
        """Until cancelled. What fails is tried again; nothing is skipped."""
        while True:
            try:
                more = await self.round()
            except Exception as error:
                log.warning("journal rows wait to be passed on", reason=str(error))
                more = False
            if not more:
                await asyncio.sleep(self._look.total_seconds())

    async def round(self) -> bool:
        """Passes one batch of each stream on; is there more?"""
        more = False
        streams = await self._streams()
        # Whoever gets a stream back goes on where others have left it meanwhile.
        self._followed = {i: f for i, f in self._followed.items() if i in streams}
        for instance, read in streams.items():
            if instance not in self._followed:
                self._followed[instance] = _Followed(self._cursor(instance), self._take(instance))
            more |= await self._followed[instance].round(read)
        return more


class _Followed:
    def __init__(self, cursor: Cursor, take: Take) -> None:
        self._cursor = cursor
        self._take = take
        self._at: int | None = None

    async def round(self, read: ReadJournal) -> bool:
        if self._at is None:
            self._at = await asyncio.to_thread(self._cursor.load) or 0
        rows = await read(self._at, BATCH)
        if not rows:
            return False
        await self._take(rows)
        self._at = rows[-1].sequence
        await asyncio.to_thread(self._cursor.save, self._at)
        return len(rows) == BATCH


class RecentTrouble:
    """Counts what went wrong in the last while: messages that expired, peers that were refused."""

    def __init__(self, window: timedelta) -> None:
        self._window = window
        self._expired: deque[datetime] = deque()
        self._refused: deque[tuple[datetime, str]] = deque()

    async def take(self, rows: Sequence[Recorded]) -> None:
        """Rows of the journal."""
        for row in (recorded.row for recorded in rows):
            if isinstance(row, RefusalRow) and row.security:
                self._refused.append((row.at, _host(row.peer) or "an unknown peer"))

    def expired_now(self, at: datetime, messages: int) -> None:
        self._expired.extend([at] * min(messages, _MOST))

    def expired(self, now: datetime) -> int:
        while self._expired and self._expired[0] < now - self._window:
            self._expired.popleft()
        return len(self._expired)

    def refused(self, now: datetime) -> Counter[str]:
        while self._refused and self._refused[0][0] < now - self._window:
            self._refused.popleft()
        return Counter(peer for _, peer in self._refused)


def _host(peer: str) -> str:
    """A peer comes from another port each time."""
    host, _, port = peer.rpartition(":")
    return host if port.isdigit() and host.count(".") == 3 else peer
