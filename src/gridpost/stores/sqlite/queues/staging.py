"""Large bodies on their way to the disk: which of them share a file, and what waits behind them.

The law of this file: what follows a large body in its queue goes to the committer after it. A body
that somebody waits for is written with the turn in which it came; one whose producer sends on waits
a moment for the next, to share its file, its flush and its commit (ADR 4).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from gridpost.core.queues import Put
from gridpost.stores.sqlite.faults import refusal_of
from gridpost.stores.sqlite.queues.committer import Submission
from gridpost.stores.sqlite.queues.files import Files


class Staging:
    """Used by the loop; one thread of its own writes."""

    def __init__(
        self,
        files: Files,
        *,
        threshold: int,
        max_octets: int,
        company: float,
        forward: Callable[[Submission], None],
    ) -> None:
        """`company`: seconds that a body waits for another; `forward`: written, or refused."""
        self._files = files
        self._threshold = threshold
        self._max_octets = max_octets
        self._company = company
        self._forward = forward
        self._loop = asyncio.get_running_loop()
        self._lines: dict[str, deque[Submission]] = {}
        self._staging: set[Submission] = set()
        self._staged = asyncio.Event()
        self._staged.set()
        self._next: deque[Submission] = deque()
        self._due: asyncio.Handle | None = None
        self._busy = False
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="gridpost-bodies")

    def __bool__(self) -> bool:
        """Whether anything has to wait for a body."""
        return bool(self._lines)

    def holds(self, queue: str) -> bool:
        return queue in self._lines

    async def done(self) -> None:
        await self._staged.wait()

    def shutdown(self) -> None:
        """Blocks."""
        self._writer.shutdown()

    def park(self, submission: Submission, *, large: bool) -> None:
        """While a large body is on its way to the disk, what follows in its queue waits behind it.

        A submission with several operations is a transaction: its place among others is free.
        """
        if large:
            self._staged.clear()
            self._staging.add(submission)
            self._next.append(submission)
            self._stage_soon()
        if len(submission.operations) > 1:
            if not large:
                self._forward(submission)
            return
        (put,) = submission.operations
        assert isinstance(put, Put)
        line = self._lines.get(put.queue)
        if line is not None:
            line.append(submission)
        elif large:
            self._lines[put.queue] = deque([submission])
        else:
            self._forward(submission)

    def _stage_soon(self) -> None:
        """With this turn if somebody waits for the last that came, or enough has; else in a moment."""
        if self._busy:
            return
        waits = not self._next[-1].followed
        if waits or sum(one.octets for one in self._next) >= self._max_octets:
            if self._due is not None:
                self._due.cancel()
            self._due = self._loop.call_soon(self._stage_next)
        elif self._due is None:
            self._due = self._loop.call_later(self._company, self._stage_next)

    def _stage_next(self) -> None:
        """What has gathered meanwhile goes into one file."""
        self._due = None
        self._busy = True
        batch: list[Submission] = []
        octets = 0
        while self._next and (not batch or octets < self._max_octets):
            batch.append(self._next.popleft())
            octets += batch[-1].octets
        self._writer.submit(self._stage, batch)

    def _were_staged(self, batch: list[Submission]) -> None:
        self._staging.difference_update(batch)
        self._busy = False
        if self._next:
            self._stage_soon()
        for submission in batch:
            if len(submission.operations) > 1:
                self._forward(submission)
        for queue, line in list(self._lines.items()):
            while line and line[0] not in self._staging:
                self._forward(line.popleft())
            if not line:
                del self._lines[queue]
        if not self._staging:
            self._staged.set()

    # ------------------------------------------------------------ in the thread

    def _stage(self, batch: list[Submission]) -> None:
        self._write(batch)
        self._loop.call_soon_threadsafe(self._were_staged, batch)

    def _write(self, batch: list[Submission]) -> None:
        places, contents = [], []
        for submission in batch:
            for at, operation in enumerate(submission.operations):
                if type(operation) is Put and operation.message.size > self._threshold:
                    assert operation.message.content is not None
                    places.append((submission, at))
                    contents.append(operation.message.content)
        try:
            written = self._files.write(contents)
        except OSError as error:
            if len(batch) == 1:
                batch[0].refusal = refusal_of(error)
                return
            # One that does not fit must not take others with it.
            for submission in batch:
                self._write([submission])
            return
        for (submission, at), staged in zip(places, written, strict=True):
            submission.staged[at] = staged
