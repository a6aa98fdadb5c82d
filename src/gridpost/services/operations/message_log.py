"""One log line for each step of a message, under an id that is the same in every component.

The `correlation_id` is the ID of the message. Acknowledgements have IDs of their own; their lines bear
that of the message which they speak of, as their AMQP property correlation-id does (503 Table 6).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import structlog

from gridpost.core.delivery import Side
from gridpost.core.holds import Controls
from gridpost.core.journal import (
    AcknowledgementRow,
    Identity,
    JournalRow,
    MessageRow,
    TrackingRow,
    TransferRow,
)
from gridpost.core.message_box import Content
from gridpost.core.notices import Notices
from gridpost.core.ports import Journal, MessageBox, Store, UnitOfWork

log = structlog.get_logger(__name__)

T = TypeVar("T")


def tell_transfer(row: TransferRow, correlation_id: str) -> None:
    """What a broker writes of a message that came in or went out."""
    told: dict[str, Any] = {"detail": row.detail} if row.detail else {}
    log.info(
        "message came in" if row.side is Side.RECEIVED else "message went out",
        # Whatever a peer writes there: no longer than an ID.
        correlation_id=correlation_id[:64] or row.message_id,
        message_id=row.message_id,
        outcome=row.outcome,
        sender=row.sender_code,
        receiver=row.receiver_code,
        message_type=row.message_type,
        peer=row.peer,
        **told,
    )


def tell(row: JournalRow) -> None:
    """What an endpoint writes; rows that speak of no message have their own lines elsewhere."""
    if isinstance(row, TrackingRow):
        told: dict[str, Any] = {"detail": row.detail} if row.detail else {}
        if row.acknowledgement_id:
            told["acknowledgement_id"] = row.acknowledgement_id
        log.info(
            "message moved" if row.moved else "message noted",
            correlation_id=row.message_id,
            message_id=row.message_id,
            side=row.side.value,
            step=row.event.value,
            state=row.state.value,
            **told,
        )
    elif isinstance(row, MessageRow):
        more = {"ba_message_id": row.ba_message_id, "conversation_id": row.conversation_id}
        log.info(
            "message accepted" if row.side is Side.SENT else "message arrived",
            correlation_id=row.message_id,
            message_id=row.message_id,
            internal_type=row.internal_type,
            sender=row.sender_code,
            receiver=row.receiver_code,
            message_type=row.message_type,
            route=row.route,
            size=row.size,
            **{name: value for name, value in more.items() if value},
        )
    elif isinstance(row, AcknowledgementRow) and row.side is Side.SENT:
        # Of one that arrived the trace of its message tells.
        log.info(
            "acknowledgement sent",
            correlation_id=row.related_message_id,
            message_id=row.message_id,
            internal_type=row.internal_type,
            sender=row.sender_code,
            receiver=row.receiver_code,
            route=row.route,
        )


class LoggingStore:
    """core.ports.Store: another store, whose journal is told to the log once it is committed."""

    def __init__(self, store: Store, wanted: Callable[[], bool]) -> None:
        self._store = store
        self._wanted = wanted

    @property
    def identity(self) -> Identity:
        return self._store.identity

    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        if not self._wanted():
            return await self._store.run(work)
        rows: list[JournalRow] = []

        def noted(unit: UnitOfWork) -> T:
            # A store may have to begin again.
            rows.clear()
            return work(_Noted(unit, rows))

        result = await self._store.run(noted)
        for row in rows:
            tell(row)
        return result

    def staged(self, content: bytes) -> AbstractAsyncContextManager[Content]:
        return self._store.staged(content)

    async def read(self, work: Callable[[UnitOfWork], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None:
        await self._store.close()


class _Noted:
    """core.ports.UnitOfWork: the same work, with a copy of what goes into the journal."""

    def __init__(self, unit: UnitOfWork, rows: list[JournalRow]) -> None:
        self._unit = unit
        self._journal = _NotedJournal(unit.journal, rows)

    @property
    def box(self) -> MessageBox:
        return self._unit.box

    @property
    def journal(self) -> Journal:
        return self._journal

    @property
    def notices(self) -> Notices:
        return self._unit.notices

    @property
    def controls(self) -> Controls:
        return self._unit.controls


class _NotedJournal:
    def __init__(self, journal: Journal, rows: list[JournalRow]) -> None:
        self._journal = journal
        self._rows = rows
        self.read = journal.read
        self.listed = journal.listed
        self.latest = journal.latest
        self.exported = journal.exported
        self.mark_exported = journal.mark_exported
        self.prune = journal.prune

    def append(self, row: JournalRow) -> int:
        self._rows.append(row)
        return self._journal.append(row)
