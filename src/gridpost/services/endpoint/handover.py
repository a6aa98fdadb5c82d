"""Received documents are handed to applications, one message-type at a time (503 cl. 5.8.4, 11.1.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from gridpost.core.acknowledgement import compose
from gridpost.core.channels import Channel
from gridpost.core.delivery import Effect, Event, Occurrence, Side, State
from gridpost.core.identifiers import message_type, new_message_id
from gridpost.core.message import InternalMessage, InternalType
from gridpost.core.message_box import BoxEntry
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.tracking import acknowledgement_row, happen
from gridpost.wire.mades11.compression import expand

# 503 Table 1 event 3: any content, but at least one character.
RECEIVED_CONTENT = b"received"

WAITING_BYTES = 8 * 1024 * 1024

LookAt = Callable[[str, datetime, int, int], Sequence[BoxEntry]]
"""`waiting` of the box, or `hold` where processes share it."""
"""How much one look at waiting documents may hold in memory; a larger one comes alone."""


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

    async def receive(
        self, type_: str, *, download: bool = True, channel: Channel | None = None
    ) -> HandedOver:
        """The same message comes again until it is confirmed. What is paused is not there."""
        now = self._context.clock.now()
        wanted = message_type(type_, strict=self._context.settings.strict_patterns)

        def look(work: UnitOfWork) -> HandedOver:
            if self._stopped(wanted, channel):
                return HandedOver(None, None, 0)
            if self._context.holding.current.by_partner:
                offered = list(self._offered(work.box.waiting, wanted, now))
                first, count = next(iter(offered), None), len(offered)
            else:
                first = next(iter(work.box.waiting(wanted, now, 1)), None)
                count = work.box.count_waiting(wanted, now)
            if first is None or not download:
                return HandedOver(first, None, count)
            content = work.box.content(Side.RECEIVED, first.message_id)
            return HandedOver(first, self._document(first, content), count - 1)

        return await self._context.store.read(look)

    async def waiting(
        self, message_type: str, after: int, limit: int, channel: Channel | None = None
    ) -> list[tuple[BoxEntry, bytes]]:
        """Documents for a channel that hands over by itself, oldest first, from a number on.

        Where processes share the store, they are held by this one.
        """
        found, _ = await self.waiting_or_more(message_type, after, limit, channel)
        return found

    async def waiting_or_more(
        self, message_type: str, after: int, limit: int, channel: Channel | None = None
    ) -> tuple[list[tuple[BoxEntry, bytes]], bool]:
        """As `waiting`, and whether more may wait behind them: False saves another look."""
        now = self._context.clock.now()
        store, shared = self._context.store, self._context.shared

        def look(work: UnitOfWork) -> tuple[list[tuple[BoxEntry, bytes]], bool]:
            found: list[tuple[BoxEntry, bytes]] = []
            size = 0
            if self._stopped(message_type, channel):
                return found, False
            look_at = work.box.hold if shared else work.box.waiting
            for entry in islice(self._offered(look_at, message_type, now, after, limit), limit):
                size += entry.size
                if found and size > WAITING_BYTES:
                    return found, True
                content = work.box.content(Side.RECEIVED, entry.message_id)
                found.append((entry, self._document(entry, content) or b""))
            return found, len(found) == limit

        return await (store.run(look) if shared else store.read(look))

    async def let_go(self) -> None:
        """Nobody takes documents here at the moment: other processes may hand them over."""
        if self._context.shared:
            await self._context.store.run(lambda work: work.box.let_go())

    def _document(self, entry: BoxEntry, content: bytes | None) -> bytes | None:
        """MADES 1.1 cl. 3.6: a packed document is stored as it was signed, and unpacked here."""
        if content is None:
            return None
        limit = self._context.settings.max_content
        return expand(InternalMessage(entry.metadata, content), limit)

    def _stopped(self, message_type: str, channel: Channel | None) -> bool:
        holds = self._context.holding.current
        return holds.type(message_type) is not None or holds.channel(channel) is not None

    def _offered(
        self, look_at: LookAt, message_type: str, now: datetime, after: int = 0, page: int = 500
    ) -> Iterator[BoxEntry]:
        """What waits and does not come from a partner that is paused."""
        holds = self._context.holding.current
        while entries := look_at(message_type, now, page, after):
            for entry in entries:
                if holds.partner(entry.metadata.sender_code) is None:
                    yield entry
            after = entries[-1].number
            if len(entries) < page:
                return

    async def content(self, message_id: str) -> bytes:
        """The document of a message that was offered, as long as retention keeps it."""

        def look(work: UnitOfWork) -> bytes | None:
            entry = work.box.find(Side.RECEIVED, message_id)
            if entry is None or entry.delivery.state not in (State.WAITING, State.CONFIRMED):
                return None
            hold = self._context.holding.of_entry(entry)
            if hold is not None and entry.delivery.state is State.WAITING:
                raise Refusal(Rule.PAUSED, f"handing over is paused: {hold}")
            return self._document(entry, work.box.content(Side.RECEIVED, message_id))

        found = await self._context.store.read(look)
        if found is None:
            raise Refusal(Rule.MESSAGE_UNKNOWN, f"no document of message {message_id} is here")
        return found

    async def confirm(self, message_id: str) -> None:
        """The application has it: RECEIVED is stored, and its acknowledgement is on its way."""
        (refusal,) = await self.confirm_all([message_id])
        if refusal is not None:
            raise refusal

    async def confirm_all(self, message_ids: Sequence[str]) -> list[Refusal | None]:
        """Many in one commit; what is refused of one does not keep the others."""
        now = self._context.clock.now()

        def confirm(work: UnitOfWork) -> list[BoxEntry | Refusal]:
            answers: list[BoxEntry | Refusal] = []
            for message_id in message_ids:
                try:
                    answers.append(self._confirm(work, message_id, now))
                except Refusal as refusal:
                    answers.append(refusal)
            return answers

        answers = await self._context.store.run(confirm)
        told = set()
        for answer in answers:
            if isinstance(answer, BoxEntry):
                told.add((answer.route, answer.metadata.sender_code))
        for route, sender in told:
            self._context.signals.enqueued(route, sender)
        return [answer if isinstance(answer, Refusal) else None for answer in answers]

    def _confirm(self, work: UnitOfWork, message_id: str, now: datetime) -> BoxEntry:
        """Refuses before anything is written."""
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
            work.journal.append(acknowledgement_row(Side.SENT, acknowledgement, entry.route, now))
        return entry
