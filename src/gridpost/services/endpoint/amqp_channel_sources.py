"""What the queues of the AMQP channel hold: received documents, replies, status changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from gridpost.core.channels import Channel, Receiving
from gridpost.core.delivery import STATUS, State
from gridpost.core.links import Octets
from gridpost.core.notices import Notice
from gridpost.services.endpoint.amqp_channel_queue import Item
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.handover import Handover
from gridpost.services.endpoint.users import Users
from gridpost.wire.application_amqp import (
    count_deliveries,
    parse_reference,
    write_event,
    write_inbox,
    write_reply,
)

log = structlog.get_logger(__name__)

TRACED = "TRACING"
"""What a successful trace is called in a send event."""


def reply_channel(user: str) -> str:
    return f"{Channel.AMQP}.reply/{user}"


def event_channel(user: str) -> str:
    return f"{Channel.AMQP}.event/{user}"


class InboxSource:
    """Received documents that are bound to this channel; a lane is a message-type."""

    def __init__(self, context: EndpointContext, users: Users, handover: Handover) -> None:
        self._context = context
        self._users = users
        self._handover = handover

    def holds(self, message_type: str) -> bool:
        return self._users.bindings.of(message_type).channel is Receiving.AMQP

    async def lanes(self) -> Sequence[str]:
        types = await self._context.store.read(lambda work: work.box.waiting_types())
        return [found for found in types if self.holds(found)]

    async def read(self, lane: str, after: int, limit: int) -> tuple[Sequence[Item], bool]:
        if not self.holds(lane):
            return [], False
        found, more = await self._handover.waiting_or_more(lane, after, limit, Channel.AMQP)
        return [
            Item(
                entry.number,
                entry.message_id,
                write_inbox(entry.metadata, content),
                lane,
                entry.delivery.expires_at,
            )
            for entry, content in found
        ], more

    async def let_go(self) -> None:
        await self._handover.let_go()

    async def taken(self, items: Sequence[Item]) -> None:
        refusals = await self._handover.confirm_all([item.key for item in items])
        for item, refusal in zip(items, refusals, strict=True):
            if refusal is not None:
                # Expired in the hands of the application: nobody is told RECEIVED.
                log.warning(
                    "confirmation refused",
                    message_id=item.key,
                    reason=refusal.message,
                    id=refusal.id,
                )

    def refused(self, item: Item, user: str, reason: str) -> bool:
        # No standard lets an application refuse a document: it waits for a better consumer.
        log.warning("document rejected by consumer", message_id=item.key, user=user, reason=reason)
        return False

    def again(self, item: Item, count: int) -> tuple[Octets, ...]:
        head, *rest = item.octets
        return count_deliveries(bytes(head), count), *rest

    def over(self, item: Item) -> bool:
        return item.expires_at is not None and item.expires_at <= self._context.clock.now()


class NoticeSource:
    """Replies or status changes of one user; one lane."""

    def __init__(
        self, context: EndpointContext, channel: str, write: Callable[[Notice], bytes]
    ) -> None:
        self._context = context
        self._channel = channel
        self._write = write

    async def lanes(self) -> Sequence[str]:
        return [""]

    async def read(self, lane: str, after: int, limit: int) -> tuple[Sequence[Item], bool]:
        store = self._context.store
        if self._context.shared:
            notices = await store.run(lambda work: work.notices.hold(self._channel, after, limit))
        else:
            notices = await store.read(lambda work: work.notices.read(self._channel, after, limit))
        items = [Item(n.number, str(n.number), (self._write(n),)) for n in notices]
        return items, len(items) == limit

    async def let_go(self) -> None:
        if self._context.shared:
            await self._context.store.run(lambda work: work.notices.let_go(self._channel))

    async def taken(self, items: Sequence[Item]) -> None:
        numbers = [item.number for item in items]
        await self._context.store.run(lambda work: work.notices.remove(numbers))

    def refused(self, item: Item, user: str, reason: str) -> bool:
        log.warning("notice rejected by consumer", channel=self._channel, reason=reason)
        return True

    def again(self, item: Item, count: int) -> tuple[Octets, ...]:
        return item.octets

    def over(self, item: Item) -> bool:
        return False


def reply_of(notice: Notice) -> bytes:
    return write_reply(notice.message_id, parse_reference(notice.reference))


def event_of(notice: Notice) -> bytes:
    state = State.ACCEPTED if notice.line is None else notice.line.state
    status = TRACED if state is State.TRACED else STATUS[state].value
    return write_event(status, notice.message_id, parse_reference(notice.reference))
