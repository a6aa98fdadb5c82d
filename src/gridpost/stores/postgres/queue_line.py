"""The one line of submissions, claims and give-backs: their order, and how many of them share a commit."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

import structlog

from gridpost.core.ports import Clock
from gridpost.core.queues import Put
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres.queue_standing import Standing
from gridpost.stores.postgres.queue_work import Answer, Step, Submission, Work
from gridpost.stores.tasks import Tasks

log = structlog.get_logger(__name__)

_AT_ONCE = 2
"""Transactions on their way: one that commits, and one that is prepared meanwhile."""


class Line:
    def __init__(
        self,
        standing: Standing,
        clock: Clock,
        tasks: Tasks,
        *,
        most: int,
        most_octets: int,
        done: Callable[[Sequence[Step], int, Answer], None],
        failed: Callable[[Sequence[Step], int, Refusal], None],
        committed: Callable[[float, int], None] | None,
    ) -> None:
        """`done` and `failed` get the steps of a transaction, and which edge we were then."""
        self._standing = standing
        self._clock = clock
        self._tasks = tasks
        self._most, self._most_octets = most, most_octets
        self._done = done
        self._failed = failed
        self._committed = committed
        self._line: deque[Step] = deque()
        self._open_puts: dict[str, int] = defaultdict(int)
        self._on_the_way = 0
        self._flushing = False
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, step: Step) -> None:
        self._count(step, 1)
        if self._standing.edge is None:
            self.void(step, self._standing.reason)
            return
        self._line.append(step)
        self._empty.clear()
        if not self._flushing and self._on_the_way < _AT_ONCE:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def has_puts(self, queue: str) -> bool:
        """Some whose outcome is not known."""
        return bool(self._open_puts.get(queue))

    def settled(self, step: Step) -> None:
        """Its outcome is known."""
        self._count(step, -1)

    def void(self, step: Step, refusal: Refusal) -> None:
        """Nobody is told of the outcome."""
        self.settled(step)
        if isinstance(step, Submission) and len(step.operations) > 1:
            # A transaction waits for its end, whatever it is.
            step.done(refusal)

    def void_all(self, refusal: Refusal) -> None:
        line, self._line = list(self._line), deque()
        for step in line:
            self.void(step, refusal)
        if not self._on_the_way:
            self._empty.set()

    async def drained(self) -> None:
        await self._empty.wait()

    def _count(self, step: Step, by: int) -> None:
        if isinstance(step, Submission):
            for operation in step.operations:
                if isinstance(operation, Put):
                    self._open_puts[operation.queue] += by

    def _flush(self) -> None:
        """Everything that came in this turn of the loop goes together."""
        self._flushing = False
        while self._line and self._on_the_way < _AT_ONCE and self._standing.edge is not None:
            self._on_the_way += 1
            self._tasks.start(self._commit(self._portion(), self._standing.edge))

    def _portion(self) -> list[Step]:
        steps: list[Step] = []
        octets = 0
        while self._line and len(steps) < self._most:
            octets += _octets(self._line[0])
            if steps and octets > self._most_octets:
                break
            steps.append(self._line.popleft())
        return steps

    async def _commit(self, steps: list[Step], edge: int) -> None:
        loop = asyncio.get_running_loop()
        now, used, started = self._clock.now(), frozenset(self._standing.joined), loop.time()
        try:
            answer = await self._standing.run(
                lambda t: Work(t, edge, self._standing.channel, now).run(steps, used)
            )
        except Exception as error:
            if not isinstance(error, Refusal):
                log.exception("commit")
                error = Refusal(Rule.INTERNAL, "the database did not take it", repr(error))
            self._failed(steps, edge, error)
        else:
            if self._committed is not None:
                self._committed(loop.time() - started, len(steps))
            self._done(steps, edge, answer)
        finally:
            self._on_the_way -= 1
            if not self._line and not self._on_the_way:
                self._empty.set()
            self._flush()


def _octets(step: Step) -> int:
    if not isinstance(step, Submission):
        return 0
    return sum(o.message.size for o in step.operations if isinstance(o, Put))
