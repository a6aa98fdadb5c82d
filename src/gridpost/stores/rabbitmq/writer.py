"""In which order RabbitMQ, the edge's journal and the submitter hear of an operation.

The order that nothing may break: a message is confirmed by a quorum, then its row is in the edge's
journal, then it is reported; a message that leaves has its row first, is acknowledged then, and is
reported last. What RabbitMQ did not answer is never reported (the law of `core.queues`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from gridpost.core.amqp091 import Incoming
from gridpost.core.journal import JournalRow
from gridpost.core.queues import CountFailure, Done, Hold, Put, QueueStore, Record, Remove
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.rabbitmq.feed import Feed
from gridpost.stores.rabbitmq.feeds import Feeds
from gridpost.stores.rabbitmq.links import Links
from gridpost.stores.rabbitmq.messages import HELD, QUEUE, UNREADABLE, encode
from gridpost.stores.rabbitmq.session import Session
from gridpost.stores.tasks import Tasks

log = structlog.get_logger(__name__)

_AGAIN: Final = 1.0
"""Seconds until a row is tried again that the journal did not take."""


class Writer:
    def __init__(
        self, local: QueueStore, session: Session, feeds: Feeds, links: Links, tasks: Tasks
    ) -> None:
        self._local = local
        self._session = session
        self._feeds = feeds
        self._links = links
        self._tasks = tasks
        self._preparing: dict[str, list[tuple[Put, Done]]] = {}

    # ------------------------------------------------------------ what comes

    def put(self, put: Put, done: Done) -> None:
        """Publications begin in the order of their tasks; before the queue is there, they line up."""
        self._links.open_puts[put.queue] += 1
        line = self._preparing.get(put.queue)
        if line is not None:
            line.append((put, done))
        elif put.queue in self._links:
            self._tasks.start(self._put(put, done))
        else:
            self._preparing[put.queue] = [(put, done)]
            self._tasks.start(self._prepare(put.queue))

    async def _prepare(self, queue: str) -> None:
        refusal: Refusal | None = None
        try:
            await self._links.join(queue)
        except Refusal as refused:
            refusal = refused
        for put, done in self._preparing.pop(queue):
            if refusal is None:
                self._tasks.start(self._put(put, done))
            else:
                self._not_put(put, done, refusal)

    async def _put(self, put: Put, done: Done) -> None:
        try:
            body, properties = encode(put.message)
            await self._session.publisher.publish(body, properties, routing_key=QUEUE + put.queue)
        except Refusal as refusal:
            self._not_put(put, done, refusal)
            return
        self._links.open_puts[put.queue] -= 1
        put.message.number = self._feeds.number()
        self._record(put.written(), partial(done, None))

    def _not_put(self, put: Put, done: Done, refusal: Refusal) -> None:
        self._links.open_puts[put.queue] -= 1
        # In doubt: the sender hears nothing, and sends it again.
        if refusal.rule is not Rule.AMQP091_UNREACHABLE:
            done(refusal)

    def _record(self, row: JournalRow, then: Callable[[], None]) -> None:
        """RabbitMQ has the message, so nobody may hear of a refusal: until the row is safe, of nothing."""
        self._local.submit((Record(row),), partial(self._recorded, row, then))

    def _recorded(self, row: JournalRow, then: Callable[[], None], refusal: Refusal | None) -> None:
        if refusal is None:
            then()
            return
        log.error("not written down yet", refusal=refusal.id, why=refusal.message)
        self._tasks.start(self._record_later(row, then))

    async def _record_later(self, row: JournalRow, then: Callable[[], None]) -> None:
        await asyncio.sleep(_AGAIN)
        self._record(row, then)

    # ------------------------------------------------------------ what leaves

    def remove(self, remove: Remove, done: Done) -> None:
        found = self._feeds.lease(remove.queue, remove.message.number)
        if found is None:
            self._local.submit((Record(remove.row),), done)
            return
        feed, lease = found
        feed.begin()
        self._local.submit(
            (Record(remove.row),),
            partial(self._row_written, feed, lease.tag, remove.message.number, done),
        )

    def _row_written(
        self, feed: Feed, tag: int, number: int, done: Done, refusal: Refusal | None
    ) -> None:
        if refusal is not None:
            feed.finish()
            done(refusal)
        else:
            self._tasks.start(self._acknowledge(feed, tag, number, done))

    async def _acknowledge(self, feed: Feed, tag: int, number: int, done: Done) -> None:
        try:
            await feed.acknowledge(tag, number)
        except Refusal as refusal:
            log.info("not acknowledged", why=refusal.message)
            return
        finally:
            feed.finish()
        done(None)

    def hold(self, hold: Hold, done: Done) -> None:
        self._tasks.start(self._hold(hold, done))

    async def _hold(self, hold: Hold, done: Done) -> None:
        found = self._feeds.lease(hold.queue, hold.message.number)
        if found is None:
            self._local.submit((Record(hold.row),), done)
            return
        feed, lease = found
        feed.begin()
        try:
            body, properties = encode(lease.message, reason=hold.reason)
            await self._session.publisher.publish(body, properties, routing_key=HELD + hold.queue)
        except Refusal as refusal:
            feed.finish()
            if refusal.rule is not Rule.AMQP091_UNREACHABLE:
                done(refusal)
            return
        self._record(
            hold.row,
            partial(self._row_written, feed, lease.tag, hold.message.number, done, None),
        )

    def count_failure(self, failure: CountFailure, done: Done) -> None:
        """Counted by RabbitMQ when the message goes back, by us as long as it is here."""
        found = self._feeds.lease(failure.queue, failure.message.number)
        if found is not None:
            found[1].message.deliveries = failure.message.deliveries
        if failure.row is None:
            asyncio.get_running_loop().call_soon(done, None)
        else:
            self._local.submit((Record(failure.row),), done)

    def set_aside(self, incoming: Incoming, feed: Feed) -> None:
        """What no edge wrote, for the operator."""
        feed.begin()
        self._tasks.start(self._keep_unreadable(incoming, feed))

    async def _keep_unreadable(self, incoming: Incoming, feed: Feed) -> None:
        try:
            await self._session.publisher.publish(
                incoming.body, incoming.properties, routing_key=UNREADABLE
            )
            await feed.acknowledge(incoming.tag)
        except Refusal as refusal:
            log.error("unreadable message not set aside", why=refusal.message)
        finally:
            feed.finish()

    async def written(self, row: JournalRow) -> None:
        """A row by itself is in the journal."""
        written: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        self._local.submit((Record(row),), written.set_result)
        refusal = await written
        if refusal is not None:
            raise refusal
