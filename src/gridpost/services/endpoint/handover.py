"""Received documents are handed to applications, one message-type at a time (503 cl. 5.8.4, 11.1.3)."""

from __future__ import annotations

from dataclasses import dataclass

from gridpost.core.acknowledgement import compose
from gridpost.core.delivery import Effect, Event, Occurrence, Side, State
from gridpost.core.identifiers import message_type, new_message_id
from gridpost.core.message import InternalType
from gridpost.core.message_box import BoxEntry
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.tracking import acknowledgement_row, happen

# 503 Table 1 event 3: any content, but at least one character.
RECEIVED_CONTENT = b"received"


@dataclass(frozen=True, slots=True)
class HandedOver:
    """503 Table 33: the first waiting message, and how many more there are.

    `content` is None when it was not asked for; then the message itself counts as remaining.
    """

    entry: BoxEntry | None
    content: bytes | None
    remaining: int


class Handover:
    def __init__(self, context: EndpointContext) -> None:
        self._context = context

    async def receive(self, type_: str, *, download: bool = True) -> HandedOver:
        """The same message comes again until it is confirmed."""
        now = self._context.clock.now()
        wanted = message_type(type_, strict=self._context.settings.strict_patterns)

        def look(work: UnitOfWork) -> HandedOver:
            first = next(iter(work.box.waiting(wanted, now, 1)), None)
            count = work.box.count_waiting(wanted, now)
            if first is None or not download:
                return HandedOver(first, None, count)
            content = work.box.content(Side.RECEIVED, first.message_id)
            return HandedOver(first, content, count - 1)

        return await self._context.store.read(look)

    async def content(self, message_id: str) -> bytes:
        """The document of a message that was offered, as long as retention keeps it."""

        def look(work: UnitOfWork) -> bytes | None:
            entry = work.box.find(Side.RECEIVED, message_id)
            if entry is None or entry.delivery.state not in (State.WAITING, State.CONFIRMED):
                return None
            return work.box.content(Side.RECEIVED, message_id)

        found = await self._context.store.read(look)
        if found is None:
            raise Refusal(Rule.MESSAGE_UNKNOWN, f"no document of message {message_id} is here")
        return found

    async def confirm(self, message_id: str) -> None:
        """The application has it: RECEIVED is stored, and its acknowledgement is on its way."""
        now = self._context.clock.now()

        def confirm(work: UnitOfWork) -> BoxEntry:
            entry = work.box.find(Side.RECEIVED, message_id)
            # Nothing that was never offered exists for an application (503 cl. 4.3, 5.12).
            if entry is None or entry.delivery.state in (State.REFUSED, State.TRACE_ANSWERED):
                raise Refusal(Rule.MESSAGE_UNKNOWN, f"no message {message_id} was received")
            if entry.delivery.state is State.WAITING and entry.delivery.expires_at <= now:
                raise Refusal(
                    Rule.MESSAGE_EXPIRED,
                    f"message {message_id} expired at {entry.delivery.expires_at:%Y-%m-%dT%H:%M:%SZ}",
                )
            decision = happen(work, entry, Occurrence(Event.CONFIRM), now)
            if Effect.ACKNOWLEDGE_RECEIVE in decision.effects:
                acknowledgement = compose(
                    InternalType.RECEIVE_ACKNOWLEDGEMENT,
                    entry.metadata,
                    RECEIVED_CONTENT,
                    message_id=new_message_id(),
                    now=now,
                )
                work.box.enqueue(
                    acknowledgement,
                    entry.route,
                    entry.delivery.expires_at,
                    self._context.settings.priority(entry.metadata.message_type),
                )
                work.journal.append(
                    acknowledgement_row(Side.SENT, acknowledgement, entry.route, now)
                )
            return entry

        entry = await self._context.store.run(confirm)
        self._context.signals.enqueued(entry.route, entry.metadata.sender_code)
