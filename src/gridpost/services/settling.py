"""When the broker hears that it may forget: what is done at the same time is told in one frame.

Each acknowledgement by itself costs a write here and an entry in the log of a quorum queue there.
"""

from __future__ import annotations

import asyncio

from gridpost.core.amqp091 import Channel


class Settling:
    """The messages of one channel that are not settled yet: `took` is told of every one of them."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._open: dict[int, None] = {}
        """In the order in which they came."""
        self._done: list[int] = []

    @property
    def closed(self) -> bool:
        return self._channel.closed

    def took(self, tag: int) -> None:
        self._open[tag] = None

    async def ack(self, *tags: int) -> None:
        first = not self._done
        self._done += tags
        if not first:
            return  # the first one writes it for all
        await asyncio.sleep(0)
        done, self._done = set(self._done), []
        together = self._without_gap(done)
        if len(together) > 1:
            done.difference_update(together)
            await self._channel.ack(together[-1], multiple=True)
            self._gone(together)
        for single in sorted(done):
            # One before it is still under way: "and all before" would settle that one too.
            await self._channel.ack(single)
        self._gone(done)

    async def nack(self, tag: int, *, requeue: bool) -> None:
        await self._channel.nack(tag, requeue=requeue)
        # Not before it is written: an acknowledgement of all before must not overtake it.
        self._gone((tag,))

    def _without_gap(self, done: set[int]) -> list[int]:
        found = []
        for tag in self._open:
            if tag not in done:
                break
            found.append(tag)
        return found

    def _gone(self, tags: set[int] | list[int] | tuple[int, ...]) -> None:
        for tag in tags:
            self._open.pop(tag, None)
