"""Links on which we send to a peer: credit, large messages in portions, outcomes.

Proton copies what it is given. So that a slow reader costs its window and not a whole message, a
large message is handed to proton in portions, each when the one before has been written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gridpost.core.links import (
    ACCEPTED,
    LOST,
    UNSENT,
    Attachment,
    ConsumerHandler,
    Octets,
    Outcome,
    OutcomeKind,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10 import engine
from gridpost.transports.amqp10.engine import condition_of, ffi, lib, read_value
from gridpost.transports.amqp10.link import Link
from gridpost.wire.amqp.types import Described, Value

if TYPE_CHECKING:
    from gridpost.transports.amqp10.connection import AmqpConnection

PORTION: Final = 2 * (128 * 1024 - 512)
"""With what AMQP writes in front of each, two frames of the usual size."""
_SINGLE: Final = PORTION
"""Messages up to this size go to proton in one piece."""

_KINDS: Final = {
    engine.ACCEPTED: OutcomeKind.ACCEPTED,
    engine.REJECTED: OutcomeKind.REJECTED,
    engine.RELEASED: OutcomeKind.RELEASED,
    engine.MODIFIED: OutcomeKind.MODIFIED,
}
_ERROR: Final = 0x1D


class Sent:
    """A message on its way. Fulfils `core.links.SentDelivery`."""

    __slots__ = ("_link", "_pn", "begun", "context", "state")

    def __init__(self, link: Sender, pn: Any, context: Any) -> None:
        self._link = link
        self._pn = pn
        self.context = context
        self.state = 0
        self.begun = True

    def settle(self) -> None:
        pn = self._pn
        if pn is not None:
            self._pn = None
            del self._link.open[pn]
            # Marks it as one of ours for events of it that are still under way, see on_event.
            lib.pn_delivery_update(pn, self.state if self.state in _KINDS else engine.ACCEPTED)
            lib.pn_delivery_settle(pn)
            self._link.settled()

    def forget(self) -> None:
        """Proton's object may be used for another delivery from now on."""
        self._pn = None


class Sender(Link):
    """Fulfils `core.links.OutgoingLink`, and is the producer's end of a client."""

    __slots__ = ("_credit", "_handler", "_limit", "_next_tag", "_parts", "draining", "open")

    def __init__(self, connection: AmqpConnection, pn: Any, attachment: Attachment) -> None:
        super().__init__(connection, pn, attachment)
        self._credit = 0
        self._limit = connection.limits.max_unsettled_sent
        self._next_tag = 0
        self._handler: ConsumerHandler | None = None
        self._parts: list[memoryview] = []
        """What proton has not been given yet of the message that is being sent."""
        self.draining = False
        self.open: dict[Any, Sent] = {}

    def started(self, handler: ConsumerHandler) -> None:
        self._handler = handler
        # Peers may send FLOW right after ATTACH: it is news only now.
        self._credit = 0
        self.on_flow()

    # ------------------------------------------------------------ credit

    @property
    def sendable(self) -> int:
        room = min(self._credit, self._limit - len(self.open))
        if room <= 0 or not self.live:
            return 0
        if self._parts or self.connection.output.full:
            self.connection.output.starved.add(self)
            return 0
        return room

    def on_flow(self) -> None:
        """A FLOW came, or proton wrote a transfer: only the former raises credit."""
        if self._pn is None or not self.live:
            return
        credit = lib.pn_link_credit(self._pn)
        draining = bool(lib.pn_link_get_drain(self._pn)) and credit > 0
        news = credit > self._credit or (draining and not self.draining)
        self._credit = credit
        self.draining = draining
        if news:
            self.notify()

    def notify(self) -> None:
        if self._handler is not None and (self.draining or self.sendable):
            self._handler.on_credit(self)

    def drained(self) -> None:
        if self._pn is not None and self.draining and not self._parts:
            self._credit = 0
            self.draining = False
            lib.pn_link_drained(self._pn)
            self.connection.touch()

    # ------------------------------------------------------------ sending

    def send(self, *octets: Octets, context: Any = None) -> Sent:
        connection = self.connection
        if not self.sendable:
            raise Refusal(Rule.BUSY, "the link can take nothing more at the moment")
        pn = self._pn
        self._next_tag += 1
        tag = self._next_tag.to_bytes(8, "big")
        delivery = lib.pn_delivery(pn, (8, ffi.from_buffer(tag)))
        if lib.pn_link_current(pn) != delivery:
            raise Refusal(Rule.AMQP_PROTOCOL, "a transfer came on a link that we send on")
        sent = Sent(self, delivery, context)
        self.open[delivery] = sent
        self._credit -= 1
        size = 0
        for part in octets:
            size += len(part)
        if size <= _SINGLE:
            for part in octets:
                lib.pn_link_send(
                    pn, part if type(part) is bytes else ffi.from_buffer(part), len(part)
                )
            lib.pn_link_advance(pn)
            connection.output.waiting += size
        else:
            self._parts = [memoryview(part).cast("B") for part in octets if len(part)]
            sent.begun = False
            connection.output.portioned.add(self)
        connection.touch()
        return sent

    def send_portion(self) -> bool:
        """Give proton the next portion if it has written the last one; False: it has not."""
        pn = self._pn
        if pn is None or not self._parts:
            self.connection.output.portioned.discard(self)
            return False
        if lib.pn_session_outgoing_bytes(self.session):
            return False
        self.open[lib.pn_link_current(pn)].begun = True
        room = PORTION
        while room and self._parts:
            part = self._parts[0]
            piece = part[:room]
            lib.pn_link_send(pn, ffi.from_buffer(piece), len(piece))
            room -= len(piece)
            if len(piece) == len(part):
                del self._parts[0]
            else:
                self._parts[0] = part[len(piece) :]
        if not self._parts:
            lib.pn_link_advance(pn)
            self.connection.output.portioned.discard(self)
        return True

    # ------------------------------------------------------------ outcomes

    def on_event(self, delivery: Any) -> None:
        sent = self.open.get(delivery)
        if sent is None:
            if self.live and not lib.pn_delivery_local_state(delivery):
                # Proton takes a TRANSFER even where the peer has attached as the receiver.
                raise Refusal(Rule.AMQP_PROTOCOL, "a transfer came on a link that we send on")
            return
        state = lib.pn_delivery_remote_state(delivery)
        settled: bool = lib.pn_delivery_settled(delivery)
        if not settled and state in (sent.state, engine.RECEIVED):
            return
        sent.state = state
        if state == engine.ACCEPTED and settled:
            outcome = ACCEPTED
        else:
            outcome = _outcome(delivery, state, settled)
        if settled:
            sent.settle()
        if self._handler is not None:
            self._handler.on_outcome(sent, outcome)

    def settled(self) -> None:
        """One delivery less; the handler may have waited for that."""
        self.connection.touch()
        if len(self.open) + 1 == self._limit and self._credit > 0:
            self.connection.output.starved.add(self)

    def _ended(self) -> None:
        handler, self._handler = self._handler, None
        self.connection.output.portioned.discard(self)
        self.connection.output.starved.discard(self)
        if self._parts and self._pn is not None:
            # AMQP 2.6.14. Closing alone would let what was sent so far pass for the whole message.
            lib.pn_delivery_abort(lib.pn_link_current(self._pn))
        self._parts = []
        waiting = list(self.open.values())
        self.open.clear()
        for sent in waiting:
            sent.forget()
        if handler is not None:
            try:
                for sent in waiting:
                    handler.on_outcome(sent, LOST if sent.begun else UNSENT)
            finally:
                handler.on_detached()


def _outcome(delivery: Any, state: int, settled: bool) -> Outcome:
    remote = lib.pn_delivery_remote(delivery)
    if state == engine.TRANSACTIONAL:
        return _provisional(read_value(lib.pn_disposition_data(remote)), settled)
    if state not in _KINDS:
        # AMQP 3.4: settled without an outcome. It was not said that the message is safe.
        return Outcome(OutcomeKind.RELEASED, settled=settled)
    condition = condition_of(lib.pn_disposition_condition(remote)) or ("", "")
    return Outcome(
        _KINDS[state],
        condition=condition[0],
        description=condition[1],
        delivery_failed=bool(lib.pn_disposition_is_failed(remote)),
        undeliverable_here=bool(lib.pn_disposition_is_undeliverable(remote)),
        settled=settled,
    )


def _provisional(fields: Value, settled: bool) -> Outcome:
    """AMQP 4.5.8: transaction, and the outcome that it will have if the transaction succeeds."""
    if not isinstance(fields, list) or not fields or not isinstance(fields[0], bytes):
        raise Refusal(Rule.AMQP_PROTOCOL, "a transactional state names no transaction")
    kind, condition, description = OutcomeKind.RELEASED, "", ""
    failed = undeliverable = False
    outcome = fields[1] if len(fields) > 1 else None
    if isinstance(outcome, Described) and isinstance(outcome.descriptor, int):
        kind = _KINDS.get(outcome.descriptor, kind)
        values = outcome.value if isinstance(outcome.value, list) else []
        first = values[0] if values else None
        if kind is OutcomeKind.REJECTED and isinstance(first, Described):
            error = first.value if isinstance(first.value, list) else []
            condition = str(error[0]) if error else ""
            description = str(error[1] or "") if len(error) > 1 else ""
        elif kind is OutcomeKind.MODIFIED:
            failed = first is True
            undeliverable = len(values) > 1 and values[1] is True
    return Outcome(kind, condition, description, failed, undeliverable, fields[0], settled)
