"""The message box in memory, rule by rule as the port says it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from gridpost.core.delivery import (
    AWAITING_STATES,
    EXPIRING_STATES,
    Decision,
    Side,
    State,
    Status,
    TraceEntry,
)
from gridpost.core.message import InternalMessage, Metadata
from gridpost.core.message_box import (
    IN_TROUBLE,
    LOOKED_AT,
    BoxEntry,
    Brief,
    Content,
    Found,
    Outgoing,
    Purged,
    Retention,
    Search,
    Tally,
)
from gridpost.core.message_path import Route
from gridpost.core.ports import ANSWER_BYTES
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.memory.retention import discard, finished, purge
from gridpost.stores.memory.state import Message, Transfer
from gridpost.stores.memory.state import State as Tables


class MemoryBox:
    """core.ports.MessageBox."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def put(self, entry: BoxEntry, content: Content) -> bool:
        if not isinstance(content, bytes):
            raise ValueError("this content was staged by another store")
        if entry.message_id != entry.delivery.message_id:
            raise ValueError(f"the delivery of {entry.delivery.message_id} with other metadata")
        tables, side = self._tables, entry.delivery.side
        key = (side, entry.message_id)
        if key in tables.numbers:
            return False
        conversation = (entry.application, entry.conversation_id)
        if side is Side.SENT and entry.conversation_id:
            if conversation in tables.conversations:
                raise _reused(entry.conversation_id)
            tables.conversations[conversation] = tables.last_message + 1
        tables.last_message += 1
        number = tables.last_message
        tables.messages[number] = Message(replace(entry, number=number), entry.delivery.changed_at)
        tables.numbers[key] = number
        tables.contents[number] = content
        return True

    def put_many(self, messages: Sequence[tuple[BoxEntry, Content]]) -> Sequence[bool]:
        ids = set(self._tables.numbers)
        used = set(self._tables.conversations)
        for entry, _ in messages:
            key = (entry.delivery.side, entry.message_id)
            if key not in ids and entry.delivery.side is Side.SENT and entry.conversation_id:
                conversation = (entry.application, entry.conversation_id)
                if conversation in used:
                    raise _reused(entry.conversation_id)
                used.add(conversation)
            ids.add(key)
        return [self.put(entry, content) for entry, content in messages]

    def find(self, side: Side, message_id: str) -> BoxEntry | None:
        message = self._message(side, message_id)
        return None if message is None else message.entry

    def sign(self, metadata: Metadata) -> None:
        tables, message = self._tables, self._message(Side.SENT, metadata.message_id)
        if message is None:
            return
        number = message.entry.number
        tables.messages[number] = replace(message, entry=replace(message.entry, metadata=metadata))
        for key, transfer in list(tables.transfers.items()):
            if transfer.message == number:
                signed = replace(transfer.outgoing.message, metadata=metadata)
                outgoing = replace(transfer.outgoing, message=signed)
                tables.transfers[key] = replace(transfer, outgoing=outgoing)

    def find_conversation(self, application: str, conversation_id: str) -> BoxEntry | None:
        number = self._tables.conversations.get((application, conversation_id))
        return None if number is None else self._tables.messages[number].entry

    def content(self, side: Side, message_id: str) -> bytes | None:
        number = self._tables.numbers.get((side, message_id))
        return None if number is None else self._tables.contents.get(number)

    def move(self, side: Side, decision: Decision) -> None:
        message = self._message(side, decision.delivery.message_id)
        if message is None:
            raise ValueError(f"no {side} message {decision.delivery.message_id} is in the box")
        entry = replace(message.entry, delivery=decision.delivery)
        self._tables.messages[entry.number] = replace(
            message, entry=entry, trace=(*message.trace, decision.entry)
        )

    def trace(self, side: Side, message_id: str) -> Sequence[TraceEntry]:
        message = self._message(side, message_id)
        return [] if message is None else list(message.trace)

    def keep_acknowledgement(self, acknowledgement: InternalMessage) -> None:
        original = acknowledgement.metadata.related_message_id
        message = self._message(Side.SENT, original)
        if message is None:
            raise ValueError(f"no sent message {original} is in the box")
        kept = (*message.acknowledgements, acknowledgement)
        self._tables.messages[message.entry.number] = replace(message, acknowledgements=kept)

    def acknowledgements(self, message_id: str) -> Sequence[InternalMessage]:
        message = self._message(Side.SENT, message_id)
        return () if message is None else message.acknowledgements

    def waiting(
        self, message_type: str, now: datetime, limit: int, after: int = 0
    ) -> Sequence[BoxEntry]:
        return [
            entry
            for entry in self._entries()
            if entry.delivery.state is State.WAITING
            and entry.metadata.message_type == message_type
            and entry.delivery.expires_at > now
            and entry.number > after
        ][:limit]

    def hold(
        self, message_type: str, now: datetime, limit: int, after: int = 0
    ) -> Sequence[BoxEntry]:
        """There is one process."""
        return self.waiting(message_type, now, limit, after)

    def let_go(self) -> None:
        """There is nobody else."""

    def count_waiting(self, message_type: str, now: datetime) -> int:
        return len(self.waiting(message_type, now, len(self._tables.messages)))

    def waiting_types(self) -> Sequence[str]:
        waiting = (e for e in self._entries() if e.delivery.state is State.WAITING)
        return sorted({entry.metadata.message_type for entry in waiting})

    def expired(self, now: datetime, limit: int) -> Sequence[BoxEntry]:
        expired = [
            entry
            for entry in self._entries()
            if entry.delivery.state in EXPIRING_STATES and entry.delivery.expires_at <= now
        ]
        return sorted(expired, key=lambda entry: entry.delivery.expires_at)[:limit]

    def search(self, search: Search, limit: int, before: int | None = None) -> Found:
        repeated = self._repeated() if search.text else frozenset[int]()
        found: list[BoxEntry] = []
        older = (n for n in reversed(self._tables.messages) if before is None or n < before)
        for looked, number in enumerate(older, start=1):
            message = self._tables.messages[number]
            if _fits(search, message) and (
                not search.text or _tells(message, search.text, repeated)
            ):
                found.append(message.entry)
            if len(found) == limit or looked == max(LOOKED_AT, limit):
                return Found(tuple(found), number)
        return Found(tuple(found))

    def recent(self, since: datetime, limit: int) -> Sequence[Brief]:
        found = sorted(
            (m for m in self._tables.messages.values() if m.arrived_at >= since),
            key=lambda m: (m.arrived_at, m.entry.number),
            reverse=True,
        )
        return [
            Brief(
                m.arrived_at,
                m.entry.delivery.side,
                m.entry.delivery.state,
                m.entry.delivery.changed_at,
                m.entry.size,
            )
            for m in found[:limit]
        ]

    def tally(self) -> Tally:
        messages = self._tables.messages
        statuses = [m.entry.delivery.status for m in messages.values()]
        waiting = [m for m in messages.values() if m.entry.delivery.state is State.WAITING]
        queued = [t.message for t in self._tables.transfers.values() if t.message in messages]
        return Tally(
            {status: statuses.count(status) for status in Status},
            len(waiting),
            waiting[0].arrived_at if waiting else None,
            len(self._tables.transfers),
            messages[queued[0]].arrived_at if queued and queued[0] is not None else None,
        )

    def enqueue(
        self, message: InternalMessage, route: Route, expires_at: datetime, priority: int = 0
    ) -> int:
        tables = self._tables
        tables.last_transfer += 1
        number = tables.last_transfer
        in_box = tables.numbers.get((Side.SENT, message.metadata.message_id))
        tables.transfers[number] = Transfer(
            Outgoing(number, message, route, expires_at, priority),
            in_box if in_box in tables.messages and in_box in tables.contents else None,
        )
        return number

    def outgoing(
        self,
        now: datetime,
        limit: int,
        *,
        under_way: Collection[int] = (),
        closed: Collection[Route] = (),
        max_bytes: int = ANSWER_BYTES,
    ) -> Sequence[Outgoing]:
        due = [
            transfer
            for transfer in self._outgoing()
            if (transfer.due_at is None or transfer.due_at <= now)
            and transfer.expires_at > now
            and transfer.number not in under_way
            and transfer.route not in closed
        ]
        answer: list[Outgoing] = []
        total = 0
        for transfer in sorted(due, key=lambda t: (-t.priority, t.number))[:limit]:
            total += len(transfer.message.content)
            if answer and total > max_bytes:
                break
            answer.append(transfer)
        return answer

    def next_due(self, now: datetime) -> datetime | None:
        return min(
            (
                transfer.due_at
                for transfer in self._outgoing()
                if transfer.due_at is not None and now < transfer.due_at < transfer.expires_at
            ),
            default=None,
        )

    def postpone(self, number: int, due_at: datetime) -> None:
        transfer = self._tables.transfers.get(number)
        if transfer is not None:
            outgoing = transfer.outgoing
            outgoing = replace(outgoing, attempts=outgoing.attempts + 1, due_at=due_at)
            self._tables.transfers[number] = replace(transfer, outgoing=outgoing)

    def hasten(self, route: Route) -> int:
        postponed = [t for t in self._outgoing() if t.route == route and t.due_at is not None]
        for outgoing in postponed:
            transfer = self._tables.transfers[outgoing.number]
            self._tables.transfers[outgoing.number] = replace(
                transfer, outgoing=replace(outgoing, due_at=None)
            )
        return len(postponed)

    def awaited(self, now: datetime) -> Mapping[Route, datetime]:
        latest: dict[Route, datetime] = {}
        for entry in self._entries():
            until = entry.delivery.expires_at
            if entry.delivery.state in AWAITING_STATES and until > now:
                latest[entry.route] = max(until, latest.get(entry.route, until))
        return latest

    def settle(self, number: int) -> None:
        self._tables.transfers.pop(number, None)

    def stop_transfer(self, message_id: str) -> None:
        self._drop(t for t in self._outgoing() if t.message.metadata.message_id == message_id)

    def drop_expired_transfers(self, now: datetime) -> int:
        return self._drop(t for t in self._outgoing() if t.expires_at <= now)

    def purge(self, retention: Retention, now: datetime, limit: int) -> Purged:
        return purge(self._tables, retention, now, limit)

    def finished(self, before: datetime, limit: int) -> Sequence[BoxEntry]:
        return finished(self._tables, before, limit)

    def discard(self, side: Side, message_ids: Sequence[str]) -> int:
        return discard(self._tables, side, message_ids)

    def _message(self, side: Side, message_id: str) -> Message | None:
        number = self._tables.numbers.get((side, message_id), 0)
        return self._tables.messages.get(number)

    def _repeated(self) -> frozenset[int]:
        return frozenset(
            t.message
            for t in self._tables.transfers.values()
            if t.message is not None and t.outgoing.due_at is not None
        )

    def _entries(self) -> Iterable[BoxEntry]:
        return (message.entry for message in self._tables.messages.values())

    def _outgoing(self) -> Iterable[Outgoing]:
        return (transfer.outgoing for transfer in self._tables.transfers.values())

    def _drop(self, transfers: Iterable[Outgoing]) -> int:
        numbers = [transfer.number for transfer in transfers]
        for number in numbers:
            del self._tables.transfers[number]
        return len(numbers)


def _fits(search: Search, message: Message) -> bool:
    entry = message.entry
    metadata, delivery = entry.metadata, entry.delivery
    sent = delivery.side is Side.SENT
    peer = metadata.receiver_code if sent else metadata.sender_code
    return (
        search.side in (None, delivery.side)
        and search.message_id in ("", entry.message_id)
        and (
            not search.conversation_id or (sent and search.conversation_id == entry.conversation_id)
        )
        and search.ba_message_id in ("", metadata.ba_message_id)
        and search.peer in (None, peer)
        and search.message_type in ("", metadata.message_type)
        and search.status in (None, delivery.status)
        and (search.since is None or search.since <= message.arrived_at)
        and (search.until is None or message.arrived_at < search.until)
    )


def _tells(message: Message, text: str, repeated: Collection[int]) -> bool:
    entry = message.entry
    return (entry.number in repeated or entry.delivery.state in IN_TROUBLE) and any(
        text.lower() in line.detail.lower() for line in message.trace
    )


def _reused(conversation_id: str) -> Refusal:
    return Refusal(
        Rule.CONVERSATION_REUSED, f"conversation '{conversation_id}' has a message already"
    )
