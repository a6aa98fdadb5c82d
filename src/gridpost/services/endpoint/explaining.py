"""The facts behind an explanation: gathered here, judged in `core.explanation`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gridpost.core.acceptance import accept
from gridpost.core.certificate import Certificate, CertificateKind, select
from gridpost.core.channels import Channel, Receiving
from gridpost.core.delivery import Side, State, Status
from gridpost.core.explanation import Ahead, Explanation, Facts, LineFacts, explain
from gridpost.core.message import InternalType
from gridpost.core.message_box import BoxEntry, Search
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.enquiry import Enquiry
from gridpost.services.endpoint.lines import LineView
from gridpost.services.endpoint.old_network.network import OldNetwork

_NOT_TRANSFERRED = frozenset({State.ACCEPTED, State.VERIFYING})
_PAGE, _PAGES = 1_000, 10
"""A line may be very long; one that far ahead leads on to the next question."""


class Explaining:
    def __init__(
        self,
        context: EndpointContext,
        enquiry: Enquiry,
        lines: Callable[[], Sequence[LineView]],
        receiving: Callable[[str], Receiving] = lambda _type: Receiving.PULL,
        old: OldNetwork | None = None,
        certificates: Callable[[], Sequence[Certificate]] | None = None,
    ) -> None:
        """`certificates` are our own of all kinds; None: those that open connections are not known here."""
        self._old = old
        self._certificates = certificates
        self._context = context
        self._enquiry = enquiry
        self._lines = lines
        self._receiving = receiving

    async def explain(self, side: Side, message_id: str) -> Explanation:
        entry = await self._enquiry.entry(side, message_id)
        return await self._explain(entry, await self._ahead(entry))

    async def _explain(self, entry: BoxEntry, ahead: Ahead | None) -> Explanation:
        side, message_id = entry.delivery.side, entry.message_id
        trace = await self._enquiry.trace(side, message_id)
        metadata, now = entry.metadata, self._context.clock.now()
        refusal = await self._refused(entry) if side is Side.SENT else None
        return explain(
            Facts(
                now,
                entry.delivery,
                entry.route,
                metadata.sender_code,
                metadata.receiver_code,
                metadata.message_type,
                trace,
                "" if refusal is None else refusal.message,
                refusal is not None and refusal.rule is Rule.DIRECTORY_DATA_LAPSED,
                self._own_problem(entry),
                self._line(entry),
                self._held(entry),
                ahead,
                "" if self._old is None else self._old.device_away(side, message_id),
            )
        )

    async def _ahead(self, entry: BoxEntry) -> Ahead | None:
        """Of the messages whose turn is before this one's, the first; all others wait for it, too."""
        metadata = entry.metadata
        kept = entry.route.old or self._context.settings.keeps_order(metadata.message_type)
        if not kept or not _in_line(entry):
            return None
        before: int | None = entry.number
        first = None
        search = Search(
            side=Side.SENT,
            peer=metadata.receiver_code,
            message_type=metadata.message_type,
            status=Status.ACCEPTED,
        )
        for _ in range(_PAGES):
            found, before = await self._enquiry.search(search, _PAGE, before, self._has_its_turn)
            first = found[-1] if found else first
            if before is None:
                break
        if first is None:
            return None
        told = await self._explain(first, None)
        return Ahead(first.message_id, told.summary, told.actor)

    def _has_its_turn(self, entry: BoxEntry) -> bool:
        # What an operator has paused lets the others pass.
        return _in_line(entry) and not self._held(entry)

    def _held(self, entry: BoxEntry) -> str:
        """For a received one, whichever channel its type is bound to."""
        receiving = self._receiving(entry.metadata.message_type)
        channels = [c for c in Channel if c.receiving is receiving]
        holds = [self._context.holding.of_entry(entry, channel) for channel in channels]
        found = [hold for hold in holds if hold is not None]
        # SOAP and JSON pull the same documents: one of them is enough.
        return str(found[0]) if len(found) == len(channels) else ""

    async def _refused(self, entry: BoxEntry) -> Refusal | None:
        if not entry.route.old:
            return self._refusal(entry)
        metadata = entry.metadata
        try:
            if self._old is not None:
                await self._old.check(metadata.receiver_code, metadata.message_type)
        except Refusal as refusal:
            return refusal
        return None

    def _refusal(self, entry: BoxEntry) -> Refusal | None:
        metadata = entry.metadata
        try:
            accept(
                self._context.directory(),
                sender=self._context.code,
                recipient=metadata.receiver_code,
                message_type=metadata.message_type,
                at=self._context.clock.now(),
            )
        except Refusal as refusal:
            return refusal
        return None

    def _own_problem(self, entry: BoxEntry) -> str:
        now = self._context.clock.now()
        old = self._old if entry.route.old else None
        keyring = self._context.keyring if old is None else old.context.keyring
        held = [s.certificate for s in keyring.signers()]
        if select(held, CertificateKind.SIGNING, now) is None:
            return f"{self._context.code} has no valid signing certificate: renew it"
        own = None if old is not None or self._certificates is None else self._certificates()
        if own is not None and select(own, CertificateKind.AUTHENTICATION, now) is None:
            # 503 cl. 8.3: without one no broker and no peer lets us in, whatever they say of it.
            return f"{self._context.code} has no valid authentication certificate: renew it"
        return ""

    def _line(self, entry: BoxEntry) -> LineFacts | None:
        metadata = entry.metadata
        if entry.route.old:
            return self._node()
        sent = entry.delivery.side is Side.SENT
        peer = entry.route.broker or (metadata.receiver_code if sent else metadata.sender_code)
        for view in self._lines():
            if view.peer == peer:
                listening = None if view.elsewhere else view.listening
                return LineFacts(view.peer, view.connected, listening, view.reason)
        return None

    def _node(self) -> LineFacts | None:
        """The home node, or the first one with which something is wrong."""
        nodes = [] if self._old is None else self._old.lines()
        line = next((n for n in nodes if n.problem), next(iter(nodes), None))
        if line is None:
            return None
        return LineFacts(line.node, not line.problem, True, line.problem)


def _in_line(entry: BoxEntry) -> bool:
    """It is a document, and waits for a transfer."""
    return (
        entry.delivery.side is Side.SENT
        and entry.delivery.state in _NOT_TRANSFERRED
        and entry.metadata.internal_type is InternalType.STANDARD_MESSAGE
    )
