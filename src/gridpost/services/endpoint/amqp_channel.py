"""The AMQP channel for applications: who may connect, and which of the four queues a link leads to.

An application sees its own replies and events only; received documents go to whoever the binding of
their message-type names.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from gridpost.core.channels import Channel, Origin
from gridpost.core.journal import refusal_row
from gridpost.core.links import (
    Admission,
    Connection,
    ConsumerHandler,
    Coordinator,
    IncomingLink,
    OutgoingLink,
    Peer,
    ProducerHandler,
)
from gridpost.core.message_box import BoxEntry
from gridpost.core.notices import Notice
from gridpost.core.refusal import Code, Refusal, Rule
from gridpost.services.endpoint.amqp_channel_outbox import Outbox, OutboxProducer
from gridpost.services.endpoint.amqp_channel_queue import LiveQueue, QueueConsumer
from gridpost.services.endpoint.amqp_channel_sources import (
    InboxSource,
    NoticeSource,
    event_channel,
    event_of,
    reply_channel,
    reply_of,
)
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.handover import Handover
from gridpost.services.endpoint.signals import StatusChange
from gridpost.services.endpoint.submission import Submission
from gridpost.services.endpoint.users import User, Users, check_channel

log = structlog.get_logger(__name__)

_PRUNE_SECONDS = 600.0
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class AmqpChannelSettings:
    outbox: str = "ecp.endpoint.outbox"
    reply: str = "ecp.endpoint.outbox.reply"
    inbox: str = "ecp.endpoint.inbox"
    event: str = "ecp.endpoint.send.event"
    replies: bool = True
    events: bool = True
    """False: applications do not read them, so none are kept."""
    keep: timedelta = timedelta(days=7)
    """Replies and events that nobody fetched."""


class AmqpChannel:
    """core.links.Gatekeeper."""

    def __init__(
        self,
        context: EndpointContext,
        users: Users,
        submission: Submission,
        handover: Handover,
        settings: AmqpChannelSettings | None = None,
    ) -> None:
        self.context = context
        self.users = users
        self.settings = settings or AmqpChannelSettings()
        self.outbox = Outbox(
            context,
            submission,
            replied=self._replied,
            replies=self.settings.replies,
            events=self.settings.events,
        )
        self._inbox_source = InboxSource(context, users, handover)
        self.inbox = LiveQueue(self._inbox_source)
        self._replies: dict[str, LiveQueue] = {}
        self._events: dict[str, LiveQueue] = {}
        self._visitors: set[_Visitor] = set()
        self._noting: set[asyncio.Task[None]] = set()
        context.signals.on_offered(self._offered)
        context.holding.on_change(self.inbox.again)
        context.signals.on_offered_elsewhere(self._offered)
        context.signals.on_status(self._told)

    # ------------------------------------------------------------ who comes in

    async def password(self, user: str, password: str) -> bool:
        """core.links.PasswordCheck."""
        try:
            await self.users.log_in(user, password)
        except Refusal as refusal:
            await self.refused(refusal, user)
            return False
        return True

    async def admit(self, peer: Peer, connection: Connection) -> Admission:
        try:
            user = self._user(peer)
            check_channel(user, Channel.AMQP)
        except Refusal as refusal:
            await self.refused(refusal, peer.user or peer.address)
            raise
        visitor = _Visitor(self, user, connection)
        self._visitors.add(visitor)
        return Admission(user.name, visitor)

    def check(self) -> None:
        """After a change of the configuration: who has no right any more is put out."""
        for visitor in list(self._visitors):
            visitor.check()

    def left(self, visitor: _Visitor) -> None:
        self._visitors.discard(visitor)

    def _user(self, peer: Peer) -> User:
        if peer.user:
            found = self.users.named(peer.user)
        else:
            found = self.users.certified(hashlib.sha256(peer.chain[0]).hexdigest())
        if found is None:
            raise Refusal(Rule.ACCESS_DENIED, "no application is known by this certificate")
        return found

    # ------------------------------------------------------------ its queues

    def reply_queue(self, user: str) -> LiveQueue:
        return _queue(self._replies, self.context, user, reply_channel(user), reply_of)

    def event_queue(self, user: str) -> LiveQueue:
        return _queue(self._events, self.context, user, event_channel(user), event_of)

    def _queues(self) -> Iterator[LiveQueue]:
        yield self.inbox
        yield from self._replies.values()
        yield from self._events.values()

    def _offered(self, entry: BoxEntry) -> None:
        message_type = entry.metadata.message_type
        if self._inbox_source.holds(message_type):
            self.inbox.arrived(message_type)

    def noticed(self, channel: str) -> None:
        """Another process left a notice in this channel."""
        for queue in self._of_channel(channel):
            queue.arrived()

    def freed(self, held: str) -> None:
        """Another process held documents of this message-type, or notices of this channel."""
        queues = self._of_channel(held)
        for queue in queues:
            queue.freed()
        if not queues and self._inbox_source.holds(held):
            self.inbox.freed(held)

    def forget_ahead(self) -> None:
        """What was read ahead may be in other hands by now: it is read again before it goes out."""
        for queue in self._queues():
            queue.forget_ahead()

    def _of_channel(self, channel: str) -> list[LiveQueue]:
        named = {reply_channel(user): queue for user, queue in self._replies.items()}
        named |= {event_channel(user): queue for user, queue in self._events.items()}
        return [named[channel]] if channel in named else []

    def _told(self, change: StatusChange) -> None:
        origin = Origin.parse(change.application)
        if origin is not None and origin.channel is Channel.AMQP and origin.user in self._events:
            self._events[origin.user].arrived()

    def _replied(self, user: str) -> None:
        if user in self._replies:
            self._replies[user].arrived()

    # ------------------------------------------------------------ the rest

    async def tidy(self) -> None:
        """Until cancelled: what nobody fetches does not fill the disk."""
        while True:
            before = self.context.clock.now() - self.settings.keep
            for user in self.users.names():
                for channel in (reply_channel(user), event_channel(user)):
                    await self._prune(channel, before)
            await asyncio.sleep(_PRUNE_SECONDS)

    async def _prune(self, channel: str, before: datetime) -> None:
        while True:
            gone = await self.context.store.run(
                lambda work: work.notices.prune(channel, before, _BATCH)
            )
            if gone:
                log.warning("notices nobody fetched were removed", channel=channel, count=gone)
            if gone < _BATCH:
                return

    async def drain(self, seconds: float) -> None:
        for queue in self._queues():
            await queue.drain(seconds)

    def views(self) -> dict[str, int]:
        return {
            "connections": len(self._visitors),
            "inbox_consumers": self.inbox.consumers,
            "inbox_held": self.inbox.held,
            "outbox_under_way": self.outbox.under_way,
        }

    def note(self, refusal: Refusal, user: str) -> None:
        """A refusal from where nobody can wait."""
        task = asyncio.get_running_loop().create_task(self.refused(refusal, user))
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    async def refused(self, refusal: Refusal, user: str) -> None:
        log.warning(
            "application refused",
            channel=Channel.AMQP.value,
            user=user,
            rule=refusal.rule.name,
            reason=refusal.message,
            id=refusal.id,
        )
        row = refusal_row(
            refusal,
            self.context.clock.now(),
            peer=user,
            security=refusal.code is Code.AUTHENTICATION_ERROR,
        )
        await self.context.store.run(lambda work: work.journal.append(row))


class _Visitor:
    """core.links.ConnectionHandler: one connection of an application."""

    def __init__(self, channel: AmqpChannel, user: User, connection: Connection) -> None:
        self._channel = channel
        self._name = user.name
        self._connection = connection

    @property
    def user(self) -> User:
        """As the configuration has it now."""
        found = self._channel.users.named(self._name)
        if found is None:
            raise Refusal(Rule.ACCESS_DENIED, f"{self._name} is no user any more")
        check_channel(found, Channel.AMQP)
        return found

    async def attach_producer(self, link: IncomingLink) -> ProducerHandler:
        channel, names = self._channel, self._channel.settings
        address = link.attachment.address or ""
        try:
            if address != names.outbox:
                known = address in (names.reply, names.inbox, names.event)
                raise _only_consumed(address) if known else _unknown(address, names)
            _settles(link.attachment.presettled)
        except Refusal as refusal:
            await channel.refused(refusal, self._name)
            raise
        return OutboxProducer(channel.outbox, self._user_now)

    async def attach_consumer(self, link: OutgoingLink) -> ConsumerHandler:
        channel, names = self._channel, self._channel.settings
        address = link.attachment.address or ""
        try:
            _settles(link.attachment.presettled)
            user = self.user
            if address == names.inbox:
                return QueueConsumer(channel.inbox, link, user.name, self._may_have)
            if address == names.reply:
                return QueueConsumer(channel.reply_queue(user.name), link, user.name, _anything)
            if address == names.event:
                return QueueConsumer(channel.event_queue(user.name), link, user.name, _anything)
            if address == names.outbox:
                raise Refusal(
                    Rule.QUEUE_NOT_ALLOWED, f"'{address}' takes messages, it does not give any"
                )
            raise _unknown(address, names)
        except Refusal as refusal:
            await channel.refused(refusal, self._name)
            raise

    def coordinator(self) -> Coordinator | None:
        return None

    def on_closed(self) -> None:
        self._channel.left(self)

    def check(self) -> None:
        try:
            self.user  # noqa: B018
        except Refusal as refusal:
            self._connection.close(refusal)

    def _user_now(self) -> User:
        return self.user

    def _may_have(self, message_type: str) -> bool:
        users = self._channel.users
        user = users.named(self._name)
        return user is not None and users.may_receive(user, Channel.AMQP, message_type)


def _queue(
    queues: dict[str, LiveQueue],
    context: EndpointContext,
    user: str,
    channel: str,
    write: Callable[[Notice], bytes],
) -> LiveQueue:
    found = queues.get(user)
    if found is None:
        found = queues[user] = LiveQueue(NoticeSource(context, channel, write))
    return found


def _anything(lane: str) -> bool:
    return True


def _settles(presettled: bool) -> None:
    """Accepting is a confirmation here: who does not wait for outcomes cannot take part in it."""
    if presettled:
        raise Refusal(Rule.NOT_OFFERED, "transfers that are settled by the sender are not offered")


def _only_consumed(address: str) -> Refusal:
    return Refusal(Rule.QUEUE_NOT_ALLOWED, f"'{address}' gives messages, it does not take any")


def _unknown(address: str, names: AmqpChannelSettings) -> Refusal:
    return Refusal(
        Rule.QUEUE_UNKNOWN,
        f"there is no queue '{address}': this endpoint has {names.outbox}, {names.reply}, "
        f"{names.inbox} and {names.event}",
    )
