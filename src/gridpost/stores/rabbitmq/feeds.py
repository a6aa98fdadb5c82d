"""Of which queues an edge has messages now; a queue that nobody reads any more has no feed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from gridpost.core.amqp091 import Incoming
from gridpost.stores.rabbitmq.feed import Feed, Lease
from gridpost.stores.rabbitmq.session import Session


class Feeds:
    def __init__(
        self, session: Session, unreadable: Callable[[Incoming, Feed], None], max_octets: int
    ) -> None:
        self._session = session
        self._unreadable = unreadable
        self._max_octets = max_octets
        self._numbers = count(1)
        self._feeds: dict[str, Feed] = {}

    def __contains__(self, queue: str) -> bool:
        return queue in self._feeds

    def number(self) -> int:
        """The next number: they grow in the order in which messages came to this edge."""
        return next(self._numbers)

    def of(self, queue: str) -> Feed:
        feed = self._feeds.get(queue)
        if feed is None:
            feed = self._feeds[queue] = self.apart(queue)
        return feed

    def apart(self, queue: str) -> Feed:
        """For a look at a queue that nobody reads: whoever asks for it closes it."""
        return Feed(
            queue, self._session.delivering, self.number, self._unreadable, self._max_octets
        )

    def lease(self, queue: str, number: int) -> tuple[Feed, Lease] | None:
        """None: gone already, or void; then RabbitMQ delivers it again."""
        feed = self._feeds.get(queue)
        lease = feed.leases.get(number) if feed is not None else None
        return None if feed is None or lease is None else (feed, lease)

    def leased(self, queue: str) -> int:
        feed = self._feeds.get(queue)
        return len(feed.leases) if feed is not None else 0

    def pop(self, queue: str) -> Feed | None:
        return self._feeds.pop(queue, None)

    async def let_go(self, queue: str) -> None:
        feed = self.pop(queue)
        if feed is not None:
            await feed.close()

    async def close(self) -> None:
        for queue in list(self._feeds):
            await self.let_go(queue)

    def lost(self) -> None:
        """Their channels are gone: what they have is void."""
        for feed in self._feeds.values():
            feed.ended = True
        self._feeds.clear()
