"""Upload, download and confirmation (MADES 1.1 cl. 3.8 to 3.10, 5.3.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO

import structlog

from gridpost.core.delivery import Side
from gridpost.core.identifiers import clip
from gridpost.core.journal import TransferRow, refusal_row
from gridpost.core.message import InternalType, Metadata
from gridpost.core.message_box import Content, Staged
from gridpost.core.node import BoxEntry, LocalState, NodeMessage
from gridpost.core.node_ports import NodeStore, NodeUnit
from gridpost.core.node_rules import check_accepted
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.node.directory import NodeDirectory

log = structlog.get_logger(__name__)

_NOTIFIED = {
    InternalType.DELIVERY_ACKNOWLEDGEMENT: LocalState.DELIVERED,
    InternalType.TRACING_ACKNOWLEDGEMENT: LocalState.DELIVERED,
    InternalType.RECEIVE_ACKNOWLEDGEMENT: LocalState.RECEIVED,
    InternalType.FAILURE_ACKNOWLEDGEMENT: LocalState.FAILED,
}
_RANK = {state: rank for rank, state in enumerate(LocalState)}


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A message as it came: what it says of itself, or why it cannot be read."""

    message_id: str
    metadata: Metadata | None
    content: Content
    unreadable: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    message_id: str
    refused: Refusal | None = None

    @property
    def fatal(self) -> bool:
        """Table 73: true only if trying again cannot help."""
        return self.refused is not None and not self.refused.retryable


class Messaging:
    def __init__(self, store: NodeStore, clock: Clock, directory: NodeDirectory) -> None:
        self._store = store
        self._clock = clock
        self._directory = directory

    def stage(self, arrived: BinaryIO) -> Content:
        """A content that came in; not for the event loop, because it waits for the disk."""
        return self._store.stage(arrived)

    async def upload(self, client: str, messages: Sequence[Uploaded]) -> list[Outcome]:
        """Every message has one outcome; what was accepted is durable."""
        try:
            return await self._upload(client, messages)
        finally:
            if any(isinstance(message.content, Staged) for message in messages):
                await asyncio.to_thread(self.discard, messages)

    def discard(self, messages: Sequence[Uploaded]) -> None:
        """What was refused, or came twice, leaves nothing on disk."""
        for message in messages:
            self._store.discard(message.content)

    async def _upload(self, client: str, messages: Sequence[Uploaded]) -> list[Outcome]:
        now = self._clock.now()
        once: dict[str, Uploaded] = {}
        for message in messages:
            if message.message_id in once:
                log.info("twice in one transfer", message_id=message.message_id, peer=client)
            once.setdefault(message.message_id, message)
        judged = [(message, self._judge(client, message, now)) for message in once.values()]
        try:
            return await self._store.run(lambda unit: self._keep(unit, client, judged, now))
        except Refusal as refusal:
            # Nothing was stored: what would have been accepted has to come again.
            log.error("upload not stored", refusal=refusal.id, reason=refusal.message)
            return [Outcome(message.message_id, refused or refusal) for message, refused in judged]

    async def download(self, client: str) -> tuple[list[tuple[Metadata, bytes]], int]:
        settings = self._directory.settings
        return await self._store.read(
            lambda unit: unit.pending(
                client, settings.priorities, settings.max_messages, settings.max_transfer
            )
        )

    async def confirm(self, client: str, message_ids: Sequence[str]) -> None:
        """Cl. 5.3.3.5: all or none. A repeated confirmation changes nothing."""
        now = self._clock.now()

        def work(unit: NodeUnit) -> None:
            for message_id in message_ids:
                entry = unit.entry(message_id)
                if entry is None or entry.receiver != client:
                    raise Refusal(
                        Rule.MESSAGE_UNKNOWN,
                        f"no message {clip(message_id)} was downloaded by {client}; "
                        "nothing is confirmed",
                    )
                if entry.state is not LocalState.ACCEPTED:
                    continue
                # Cl. 3.7: final for a node, which may never hear of the rest.
                unit.set_state(message_id, LocalState.DELIVERED, now)
                _journal(unit, entry, client, Side.SENT, "downloaded", now)

        await self._store.run(work)

    def _judge(self, client: str, message: Uploaded, now: datetime) -> Refusal | None:
        if message.unreadable is not None or message.metadata is None:
            return message.unreadable or Refusal(Rule.BAD_VALUE, "the message cannot be read")
        settings = self._directory.settings
        try:
            if message.metadata.sender_code != client:
                raise Refusal(
                    Rule.SENDER_NOT_CONNECTED_PEER,
                    f"{client} uploads a message of {clip(message.metadata.sender_code)}",
                )
            if not message.content:
                raise Refusal(Rule.EMPTY_CONTENT, "the message has no content")
            check_accepted(
                message.metadata, self._directory.components, settings.code, now,
                mversion=settings.mversion,
            )  # fmt: skip
        except Refusal as refusal:
            return refusal
        return None

    def _keep(
        self,
        unit: NodeUnit,
        client: str,
        judged: Sequence[tuple[Uploaded, Refusal | None]],
        now: datetime,
    ) -> list[Outcome]:
        outcomes = []
        for message, refused in judged:
            metadata = message.metadata
            known = unit.entry(message.message_id)
            if known is not None and known.sender == client:
                log.info("duplicate transfer", message_id=message.message_id, peer=client)
                _journal(unit, known, client, Side.RECEIVED, "duplicate", now)
                outcomes.append(Outcome(message.message_id))
                continue
            if known is not None:
                refused = Refusal(
                    Rule.BAD_MESSAGE_ID, f"{message.message_id} is a message of another sender"
                )
            acknowledgement = metadata is not None and metadata.internal_type.is_acknowledgement
            if refused is None:
                assert metadata is not None
                unit.add(NodeMessage(metadata, message.content), LocalState.ACCEPTED, now)
                stored = unit.entry(metadata.message_id)
                assert stored is not None
                _journal(unit, stored, client, Side.RECEIVED, "uploaded", now)
                if acknowledgement:
                    _notify(unit, metadata, now)
                outcomes.append(Outcome(message.message_id))
                continue
            unit.journal.append(
                refusal_row(refused, now, peer=client, message_id=message.message_id, security=True)
            )
            log.warning(
                "message refused", refusal=refused.id, rule=refused.rule.name,
                reason=refused.message, message_id=message.message_id, peer=client,
            )  # fmt: skip
            if acknowledgement and known is None and metadata is not None:
                # Cl. 3.9, 3.10.4: confirmed, but it goes no further.
                unit.add(NodeMessage(metadata, message.content), LocalState.FAILED, now)
                outcomes.append(Outcome(message.message_id))
            else:
                outcomes.append(Outcome(message.message_id, refused))
        return outcomes


def _notify(unit: NodeUnit, acknowledgement: Metadata, now: datetime) -> None:
    """Cl. 3.10.4: what an acknowledgement says of a message that passed here, forwards only."""
    original = unit.entry(acknowledgement.related_message_id)
    if (
        original is None
        or original.receiver != acknowledgement.sender_code
        or original.sender != acknowledgement.receiver_code
    ):
        return
    state = _NOTIFIED[acknowledgement.internal_type]
    if original.state is not LocalState.FAILED and _RANK[state] > _RANK[original.state]:
        unit.set_state(original.message_id, state, now)


def _journal(
    unit: NodeUnit, entry: BoxEntry, peer: str, side: Side, outcome: str, now: datetime
) -> None:
    unit.journal.append(
        TransferRow(
            now, side, entry.message_id, entry.sender, entry.receiver, entry.business_type, peer,
            entry.size, outcome,
        )
    )  # fmt: skip
