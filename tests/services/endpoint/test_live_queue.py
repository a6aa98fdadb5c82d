"""How a queue of the AMQP channel is read from the store: as seldom as it can, and never too seldom."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from gridpost.core.links import Octets, OutgoingLink
from gridpost.services.endpoint.amqp_channel_queue import Item, LiveQueue, QueueConsumer
from support.waiting import eventually


class _Kept:
    """A source with one lane."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.reads: list[int] = []
        self.during = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def lanes(self) -> Sequence[str]:
        return [""]

    async def read(self, lane: str, after: int, limit: int) -> tuple[Sequence[Item], bool]:
        self.reads.append(after)
        numbers = range(after + 1, min(self.count, after + limit) + 1)
        self.during.set()
        await self.go_on.wait()
        return [Item(n, str(n), (b"x",)) for n in numbers], len(numbers) == limit

    async def let_go(self) -> None: ...

    async def taken(self, items: Sequence[Item]) -> None: ...

    def refused(self, item: Item, user: str, reason: str) -> bool:
        return True

    def again(self, item: Item, count: int) -> tuple[Octets, ...]:
        return item.octets

    def over(self, item: Item) -> bool:
        return False


class _Link:
    """Takes everything."""

    def __init__(self) -> None:
        self.draining = False
        self.sendable = 1_000
        self.numbers: list[int] = []

    def send(self, *octets: Octets, context: Any = None) -> None:
        self.numbers.append(context.number)


def _consume(queue: LiveQueue) -> _Link:
    link = _Link()
    QueueConsumer(queue, cast(OutgoingLink, link), "user", lambda lane: True)
    return link


async def test_what_fits_into_one_answer_is_read_once() -> None:
    source = _Kept(3)
    queue = LiveQueue(source, at_once=10)
    link = _consume(queue)
    await eventually(lambda: link.numbers == [1, 2, 3])
    await asyncio.sleep(0)
    source.count = 5
    queue.arrived()
    await eventually(lambda: link.numbers == [1, 2, 3, 4, 5])
    await asyncio.sleep(0)
    assert source.reads == [0, 3]


async def test_a_full_answer_is_followed_by_another_look() -> None:
    source = _Kept(25)
    link = _consume(LiveQueue(source, at_once=10))
    await eventually(lambda: link.numbers == list(range(1, 26)))
    await asyncio.sleep(0)
    assert source.reads == [0, 10, 20]


async def test_what_arrives_during_a_look_is_looked_for_again() -> None:
    source = _Kept(1)
    source.go_on.clear()
    queue = LiveQueue(source, at_once=10)
    link = _consume(queue)
    await source.during.wait()
    # Committed after the answer was read, told before it is here.
    source.count = 2
    queue.arrived()
    source.go_on.set()
    await eventually(lambda: link.numbers == [1, 2])
    assert source.reads == [0, 1]
