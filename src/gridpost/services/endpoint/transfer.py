"""One transfer of an internal message: sealed, handed to a courier, and its outcome written down.

What fails is tried again with a growing pause until the message expires (503 cl. 5.6.2, 5.7). When
transfers are made, and how many at once, is decided in `dispatch`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from gridpost.core.certificate import CertificateKind, select
from gridpost.core.delivery import Decision, Event, Occurrence, Side, State
from gridpost.core.identifiers import ComponentCode
from gridpost.core.journal import TransferRow, refusal_row
from gridpost.core.links import Octets
from gridpost.core.message import InternalMessage, InternalType
from gridpost.core.message_box import BoxEntry, Outgoing
from gridpost.core.message_path import Route
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.tracking import happen
from gridpost.wire.mades.amqp_message import encode_parts
from gridpost.wire.seal.closing import seal_message


class Courier(Protocol):
    """Takes one AMQP message to the next component."""

    async def deliver(self, route: Route, receiver: ComponentCode, *octets: Octets) -> None:
        """One message, in pieces. Returns when the other side has stored it; refuses otherwise."""
        ...


@dataclass(frozen=True, slots=True)
class BackOff:
    first: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(minutes=5)

    def after(self, attempts: int) -> timedelta:
        return min(self.longest, self.first * int(2 ** min(attempts, 30)))


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of one transfer; without a refusal the next component has the message."""

    outgoing: Outgoing
    at: datetime
    size: int = 0
    refusal: Refusal | None = None
    accepted: bool = False
    """What a message in VERIFYING waited for is there."""
    fatal: bool = False
    """The refusal is final: another attempt could not succeed either."""
    where: str = ""
    """Which component has it, where the route does not say it."""


class SecondCourier(Protocol):
    """Makes the transfers of another network than that of 503."""

    async def attempt(self, outgoing: Outgoing) -> Attempt: ...


class Transfer:
    def __init__(
        self, context: EndpointContext, courier: Courier, back_off: BackOff | None = None
    ) -> None:
        self.second: SecondCourier | None = None
        self._context = context
        self._courier = courier
        self._back_off = back_off or BackOff()

    async def round(self, limit: int = 100) -> int:
        """Try everything that is due now, in order; how many internal messages got through."""
        now = self._context.clock.now()
        due = await self._context.store.read(lambda work: work.box.outgoing(now, limit))
        sent = 0
        for outgoing in due:
            attempt = await self.attempt(outgoing)
            await self.write_down([attempt])
            sent += attempt.refusal is None
        return sent

    async def attempt(self, outgoing: Outgoing) -> Attempt:
        """Nothing is stored yet: the caller writes down many attempts in one commit."""
        metadata = outgoing.message.metadata
        if outgoing.route.old:
            return await self._attempt_elsewhere(outgoing)
        try:
            octets = await self._seal(outgoing.message)
            await self._courier.deliver(outgoing.route, metadata.receiver_code, *octets)
        except Refusal as refusal:
            return Attempt(outgoing, self._context.clock.now(), 0, refusal)
        return Attempt(outgoing, self._context.clock.now(), sum(map(len, octets)))

    async def _attempt_elsewhere(self, outgoing: Outgoing) -> Attempt:
        if self.second is None:
            refusal = Refusal(
                Rule.UNREACHABLE,
                "the message takes the MADES 1.1 network, which is no longer configured",
            )
            return Attempt(outgoing, self._context.clock.now(), 0, refusal)
        return await self.second.attempt(outgoing)

    async def write_down(self, attempts: Sequence[Attempt], kept: Collection[int] = ()) -> None:
        """Settle what arrived, postpone the rest, except the numbers that the caller `kept` back."""

        def write(work: UnitOfWork) -> list[tuple[BoxEntry, Decision]]:
            return [d for a in attempts if (d := self._write(work, a, a.outgoing.number in kept))]

        for entry, decision in await self._context.store.run(write):
            self._context.signals.decided(entry, decision)

    def _write(
        self, work: UnitOfWork, attempt: Attempt, kept: bool
    ) -> tuple[BoxEntry, Decision] | None:
        outgoing, now, refusal = attempt.outgoing, attempt.at, attempt.refusal
        metadata = outgoing.message.metadata
        if refusal is None:
            work.box.settle(outgoing.number)
            work.journal.append(_row(outgoing, attempt.size, "transferred", "", now))
            where = f"{outgoing.route}:{attempt.where}" if attempt.where else str(outgoing.route)
            occurrence = Occurrence(Event.TRANSFERRED, where)
        else:
            if attempt.fatal:
                work.box.settle(outgoing.number)
            elif not kept:
                work.box.postpone(outgoing.number, now + self._back_off.after(outgoing.attempts))
            work.journal.append(
                refusal_row(
                    refusal, now, peer=metadata.receiver_code, message_id=metadata.message_id
                )
            )
            work.journal.append(_row(outgoing, 0, "failed", refusal.message, now))
            failed = Event.REJECTED if attempt.fatal else Event.TRANSFER_FAILED
            occurrence = Occurrence(failed, refusal.message)
        # An acknowledgement is never in the box.
        if metadata.internal_type.is_acknowledgement:
            return None
        entry = work.box.find(Side.SENT, metadata.message_id)
        if entry is None:
            return None
        if attempt.accepted and entry.delivery.state is State.VERIFYING:
            entry = self._accepted(work, entry, now)
        return entry, happen(work, entry, occurrence, now)

    def _accepted(self, work: UnitOfWork, entry: BoxEntry, now: datetime) -> BoxEntry:
        tracing = entry.metadata.internal_type is InternalType.TRACING_MESSAGE
        event = Event.ACCEPT_TRACING if tracing else Event.ACCEPT
        decision = happen(work, entry, Occurrence(event), now)
        return replace(entry, delivery=decision.delivery)

    async def _seal(self, message: InternalMessage) -> tuple[Octets, ...]:
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
        return encode_parts(sealed, None, now)


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
