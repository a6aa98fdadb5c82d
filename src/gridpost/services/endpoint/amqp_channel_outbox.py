"""The outbox: every message of an application is answered, with its message ID or with an error.

The answer is in the store before the message is accepted. Only what cannot be read at all is
rejected, and only what the store cannot keep is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from gridpost.core.channels import Channel, Origin
from gridpost.core.identifiers import MessageId
from gridpost.core.journal import refusal_row
from gridpost.core.links import ReceivedDelivery
from gridpost.core.notices import Notice, Subscription
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Code, Refusal
from gridpost.services.endpoint.amqp_channel_sources import event_channel, reply_channel
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.submission import Document, Submission
from gridpost.services.endpoint.users import User, check_send
from gridpost.wire.application_amqp import (
    OutboxMessage,
    Reference,
    error_of,
    read_outbox,
    write_reference,
)

log = structlog.get_logger(__name__)

_GIVE_BACK_SECONDS = 1.0
"""A message that is given back at once would come again at once."""


class Outbox:
    def __init__(
        self,
        context: EndpointContext,
        submission: Submission,
        *,
        replied: Callable[[str], None],
        replies: bool = True,
        events: bool = True,
    ) -> None:
        self._context = context
        self._submission = submission
        self._replied = replied
        self._replies = replies
        self._events = events
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: dict[tuple[str, str], asyncio.Task[None]] = {}

    @property
    def under_way(self) -> int:
        return len(self._tasks)

    def take(self, delivery: ReceivedDelivery, user: Callable[[], User]) -> None:
        """How many are under way is bounded by the credit of each link."""
        reference, message = read_outbox(delivery.message)
        before, key = None, None
        if isinstance(message, OutboxMessage) and self._context.settings.keeps_order(
            message.message_type
        ):
            # 503 cl. 5.11: accepted in the order in which they were sent.
            key = message.receiver_code, message.message_type
            before = self._last.get(key)
        task = asyncio.get_running_loop().create_task(
            self._take(delivery, user, message, reference, before)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if key is not None:
            self._last[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))

    def _forget(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        if self._last.get(key) is task:
            del self._last[key]

    async def _take(
        self,
        delivery: ReceivedDelivery,
        user: Callable[[], User],
        message: OutboxMessage | Refusal,
        reference: Reference,
        before: asyncio.Task[None] | None,
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        name = ""
        unanswered: Refusal | None = None
        try:
            try:
                sender = user()
                name = sender.name
                if isinstance(message, Refusal):
                    raise message
                await self._send(sender, message, reference)
            except Refusal as reason:
                await self._answer_error(name, reference, reason)
                if not (name and self._replies):
                    unanswered = reason
        except Refusal as failed:
            # The answer itself cannot be kept: the application still has its message.
            log.error("outbox message given back", reason=failed.message, id=failed.id)
            await asyncio.sleep(_GIVE_BACK_SECONDS)
            delivery.release()
        except asyncio.CancelledError:
            delivery.release()
            raise
        except Exception:
            log.exception("outbox failed")
            await asyncio.sleep(_GIVE_BACK_SECONDS)
            delivery.modify(failed=True)
        else:
            if unanswered is not None:
                delivery.reject(unanswered)
                return
            delivery.accept()
            self._replied(name)

    async def _send(self, user: User, message: OutboxMessage, reference: Reference) -> None:
        check_send(user, message.message_type)
        application = str(Origin(Channel.AMQP, user.name))
        now = self._context.clock.now()
        kept = write_reference(reference)
        new: list[str] = []

        def also(work: UnitOfWork, message_id: MessageId) -> None:
            if self._replies:
                work.notices.append(Notice(reply_channel(user.name), message_id, kept, now))
            if self._events:
                work.notices.subscribe(Subscription(message_id, event_channel(user.name), kept))
            new.append(message_id)

        if message.is_tracing:
            message_id = await self._submission.test_connectivity(
                application,
                message.receiver_code,
                message.message_type,
                message.conversation_id,
                also,
            )
        else:
            document = Document(
                message.receiver_code,
                message.message_type,
                message.content,
                message.ba_message_id,
                message.sender_application,
                conversation_id=message.conversation_id,
            )
            message_id = await self._submission.send(application, document, also)
        if self._replies and message_id not in new:
            # Sent again, because the first answer was lost on the way: it is answered alike.
            notice = Notice(reply_channel(user.name), message_id, kept, now)
            await self._context.store.run(lambda work: work.notices.append(notice))

    async def _answer_error(self, user: str, reference: Reference, refusal: Refusal) -> None:
        log.warning(
            "outbox message refused",
            user=user,
            rule=refusal.rule.name,
            reason=refusal.message,
            id=refusal.id,
        )
        now = self._context.clock.now()
        row = refusal_row(
            refusal, now, peer=user, security=refusal.code is Code.AUTHENTICATION_ERROR
        )
        kept = write_reference(
            Reference(reference.correlation_id, reference.ba_message_id, error_of(refusal))
        )

        def answer(work: UnitOfWork) -> None:
            work.journal.append(row)
            if user and self._replies:
                work.notices.append(Notice(reply_channel(user), "", kept, now))

        await self._context.store.run(answer)


class OutboxProducer:
    """core.links.ProducerHandler."""

    def __init__(self, outbox: Outbox, user: Callable[[], User]) -> None:
        self._outbox = outbox
        self._user = user

    def on_delivery(self, delivery: ReceivedDelivery) -> None:
        # A message whose properties cannot be read is refused here: rejected, there is no answer.
        self._outbox.take(delivery, self._user)

    def on_settled(self, delivery: ReceivedDelivery) -> None:
        """At least once: conversationID or message-id stop duplicates."""

    def on_detached(self) -> None:
        """Answers of what is still being stored wait in the reply queue."""
