"""Waiting internal messages leave by their route: encrypted, encoded, handed to a courier, settled.

What fails is tried again with a growing pause until the message expires (503 cl. 5.6.2, 5.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from gridpost.core.certificate import CertificateKind, select
from gridpost.core.delivery import Event, Occurrence, Side
from gridpost.core.identifiers import ComponentCode
from gridpost.core.journal import TransferRow
from gridpost.core.message import InternalMessage
from gridpost.core.message_box import Outgoing
from gridpost.core.message_path import Route
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.tracking import happen, refusal_row
from gridpost.wire.mades.amqp_message import encode
from gridpost.wire.seal.closing import seal_message


class Courier(Protocol):
    """Takes one AMQP message to the next component."""

    async def deliver(self, route: Route, receiver: ComponentCode, data: bytes) -> None:
        """Returns when the other side has stored it safely; refuses otherwise."""
        ...


@dataclass(frozen=True, slots=True)
class BackOff:
    first: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(minutes=5)

    def after(self, attempts: int) -> timedelta:
        return min(self.longest, self.first * int(2 ** min(attempts, 30)))


class Transfer:
    def __init__(
        self, context: EndpointContext, courier: Courier, back_off: BackOff | None = None
    ) -> None:
        self._context = context
        self._courier = courier
        self._back_off = back_off or BackOff()

    async def round(self, limit: int = 100) -> int:
        """Try everything that is due now; the number of internal messages that got through."""
        now = self._context.clock.now()
        due = await self._context.store.read(lambda work: work.box.outgoing(now, limit))
        sent = 0
        for outgoing in due:
            sent += await self._one(outgoing)
        return sent

    async def _one(self, outgoing: Outgoing) -> bool:
        metadata = outgoing.message.metadata
        size = 0
        try:
            data = await self._seal(outgoing.message)
            size = len(data)
            await self._courier.deliver(outgoing.route, metadata.receiver_code, data)
        except Refusal as refusal:
            await self._failed(outgoing, refusal)
            return False
        now = self._context.clock.now()

        def settle(work: UnitOfWork) -> None:
            work.box.settle(outgoing.number)
            work.journal.append(_row(outgoing, size, "transferred", "", now))
            entry = work.box.find(Side.SENT, metadata.message_id)
            if entry is not None:
                happen(work, entry, Occurrence(Event.TRANSFERRED, str(outgoing.route)), now)

        await self._context.store.run(settle)
        return True

    async def _seal(self, message: InternalMessage) -> bytes:
        now = self._context.clock.now()
        metadata = message.metadata
        certificate = None
        if metadata.internal_type.may_be_encrypted:
            recipient = self._context.directory().find(metadata.receiver_code, now)
            if recipient is not None:
                certificate = select(recipient.certificates, CertificateKind.ENCRYPTION, now)
            if certificate is None:
                raise Refusal(
                    Rule.NO_ENCRYPTION_CERTIFICATE,
                    f"{metadata.receiver_code} has no valid encryption certificate now",
                )
        profile = self._context.settings.profile(metadata.receiver_code)
        sealed = await seal_message(message, None, certificate, profile, at=now)
        return encode(sealed, None, now)

    async def _failed(self, outgoing: Outgoing, refusal: Refusal) -> None:
        now = self._context.clock.now()
        due_at = now + self._back_off.after(outgoing.attempts)
        metadata = outgoing.message.metadata

        def postpone(work: UnitOfWork) -> None:
            work.box.postpone(outgoing.number, due_at)
            work.journal.append(
                refusal_row(
                    refusal, now, peer=metadata.receiver_code, message_id=metadata.message_id
                )
            )
            work.journal.append(_row(outgoing, 0, "failed", refusal.message, now))
            entry = work.box.find(Side.SENT, metadata.message_id)
            if entry is not None:
                happen(work, entry, Occurrence(Event.TRANSFER_FAILED, refusal.message), now)

        await self._context.store.run(postpone)


def _row(outgoing: Outgoing, size: int, outcome: str, detail: str, now: datetime) -> TransferRow:
    metadata = outgoing.message.metadata
    return TransferRow(
        now,
        Side.SENT,
        metadata.message_id,
        metadata.sender_code,
        metadata.receiver_code,
        metadata.message_type,
        outgoing.route.broker or metadata.receiver_code,
        size,
        outcome,
        detail,
    )
