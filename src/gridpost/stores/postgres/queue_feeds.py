"""What this edge has of each queue that it reads, and when it claims more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from gridpost.core.queues import Queued
from gridpost.stores.postgres.queue_work import Claim, GiveBack, Step
from gridpost.stores.tasks import Tasks


class Feed:
    """What this edge has of one queue."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.leases: dict[int, Queued] = {}
        self.octets = 0
        self.wanted = 0
        self.deliver: Callable[[Queued], None] | None = None
        self.more = True
        """There may be messages that no edge has."""
        self.claiming = False

    def take(self, message: Queued) -> None:
        self.leases[message.number] = message
        self.octets += message.size

    def drop(self, number: int) -> None:
        message = self.leases.pop(number, None)
        if message is not None:
            self.octets -= message.size

    def after(self, number: int) -> list[Queued]:
        return [message for key, message in sorted(self.leases.items()) if key > number]


class Feeds:
    def __init__(
        self,
        add: Callable[[Step], None],
        tasks: Tasks,
        *,
        prefetch: int,
        window_octets: int,
        retry: timedelta,
    ) -> None:
        """`add` puts a claim or a give-back into the line."""
        self._add = add
        self._tasks = tasks
        self._prefetch = prefetch
        self._window_octets = window_octets
        self._retry_seconds = retry.total_seconds()
        self._feeds: dict[str, Feed] = {}

    def __contains__(self, queue: str) -> bool:
        return queue in self._feeds

    def get(self, queue: str) -> Feed | None:
        return self._feeds.get(queue)

    def of(self, queue: str) -> Feed:
        return self._feeds.setdefault(queue, Feed(queue))

    def clear(self) -> None:
        self._feeds.clear()

    def subscribe(self, queue: str, credit: int, deliver: Callable[[Queued], None]) -> None:
        feed = self.of(queue)
        feed.wanted, feed.deliver = min(credit, self._prefetch), deliver
        self._claim(feed)

    def unsubscribe(self, queue: str) -> None:
        if self._feeds.pop(queue, None) is not None:
            self._add(GiveBack(queue))

    def ready(self, queue: str) -> None:
        """Somebody put messages into the queue, or let go of some."""
        feed = self._feeds.get(queue)
        if feed is not None:
            feed.more = True
            self._claim(feed)

    def gone(self, feed: Feed, number: int) -> None:
        """A message that this edge had is out of the queue."""
        feed.drop(number)
        self._claim(feed)

    def _claim(self, feed: Feed) -> None:
        room = self._window_octets - feed.octets
        wanted = feed.wanted - len(feed.leases)
        if feed.claiming or not feed.more or feed.deliver is None or wanted <= 0:
            return
        if room > 0 or not feed.leases:
            feed.claiming, feed.more = True, False
            self._add(Claim(feed.queue, wanted, max(1, room), feed))

    def claimed(self, claim: Claim, found: Sequence[Queued], more: bool) -> None:
        feed = self._by(claim)
        if feed is None:
            # Let go of meanwhile: the give-back came behind the claim.
            return
        feed.claiming = False
        feed.more |= more
        for message in found:
            feed.take(message)
        for message in found:
            if feed.deliver is not None:
                feed.deliver(message)
        self._claim(feed)

    def not_claimed(self, claim: Claim) -> None:
        self._tasks.start(self._claim_again(claim))

    async def _claim_again(self, claim: Claim) -> None:
        await asyncio.sleep(self._retry_seconds)
        feed = self._by(claim)
        if feed is not None:
            feed.claiming, feed.more = False, True
            self._claim(feed)

    def _by(self, claim: Claim) -> Feed | None:
        """Who asked, if that is still there."""
        feed = self._feeds.get(claim.queue)
        return feed if feed is claim.by else None
