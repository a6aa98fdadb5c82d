"""Links on which a peer sends to us: assembling messages, granting credit, settling.

Credit and octets are bounded separately. Credit bounds how many deliveries are open; the ledger
bounds what half-received and undecided messages hold. A peer that is over its octets is not read
any further, so that its session window closes (AMQP 2.5.6); other links of its go on being served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gridpost.core.links import Attachment, Octets, ProducerHandler
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10.conditions import render
from gridpost.transports.amqp10.engine import (
    ACCEPTED,
    BUFFERS,
    MODIFIED,
    REJECTED,
    RELEASED,
    SCRATCH,
    TRANSACTIONAL,
    ffi,
    lib,
    read_value,
    set_condition,
    write_value,
)
from gridpost.transports.amqp10.gathered import Gathered
from gridpost.transports.amqp10.link import Link
from gridpost.wire.amqp.types import Described, Symbol, ULong, Value

if TYPE_CHECKING:
    from gridpost.transports.amqp10.connection import AmqpConnection


class Received:
    """A complete message. Fulfils `core.links.ReceivedDelivery`."""

    __slots__ = (
        "_link", "_pn", "context", "decided", "followed", "message", "presettled", "size",
        "transaction",
    )  # fmt: skip

    def __init__(
        self,
        link: Receiver,
        pn: Any,
        message: Octets,
        presettled: bool,
        transaction: bytes | None,
        followed: bool,
    ) -> None:
        self._link = link
        self._pn = pn
        self.size = len(message)
        self.message = message
        self.decided = False
        self.followed = followed
        self.presettled = presettled
        self.transaction = transaction
        self.context: Any = None

    def accept(self) -> None:
        if self._pn is not None and not self.decided:
            if self.transaction is not None:
                self._say_in_transaction(ACCEPTED, [])
            self._decide(ACCEPTED)

    def release(self) -> None:
        if self._pn is not None and not self.decided:
            if self.transaction is not None:
                self._say_in_transaction(RELEASED, [])
            self._decide(RELEASED)

    def reject(self, refusal: Refusal) -> None:
        if self._pn is None or self.decided:
            return
        condition, description = render(refusal)
        if self.transaction is not None:
            error = Described(ULong(0x1D), [Symbol(condition), description])
            self._say_in_transaction(REJECTED, [error])
        else:
            local = lib.pn_delivery_local(self._pn)
            set_condition(lib.pn_disposition_condition(local), condition, description)
        self._decide(REJECTED)

    def modify(self, *, failed: bool, undeliverable_here: bool = False) -> None:
        if self._pn is None or self.decided:
            return
        if self.transaction is not None:
            self._say_in_transaction(MODIFIED, [failed, undeliverable_here])
        else:
            local = lib.pn_delivery_local(self._pn)
            lib.pn_disposition_set_failed(local, failed)
            lib.pn_disposition_set_undeliverable(local, undeliverable_here)
        self._decide(MODIFIED)

    def say(self, state: int, fields: list[Value]) -> None:
        """A state that proton has no name for: declared (AMQP 4.5.6)."""
        if self._pn is not None and not self.decided:
            write_value(lib.pn_disposition_data(lib.pn_delivery_local(self._pn)), fields)
            self._decide(state)

    def _say_in_transaction(self, state: int, fields: list[Value]) -> None:
        data = lib.pn_disposition_data(lib.pn_delivery_local(self._pn))
        write_value(data, [self.transaction, Described(ULong(state), fields)])

    def _decide(self, state: int) -> None:
        """Say the outcome, and settle unless the sender is to settle first."""
        pn, link = self._pn, self._link
        lib.pn_delivery_update(pn, state if self.transaction is None else TRANSACTIONAL)
        self.decided = True
        self.message = b""
        if not link.settles_second or lib.pn_delivery_settled(pn):
            self.forget()
            lib.pn_delivery_settle(pn)
            del link.open[pn]
        link.decided(self.size)

    def forget(self) -> None:
        """Proton's object may be used for another delivery from now on."""
        self._pn = None


class Receiver(Link):
    """Fulfils `core.links.IncomingLink`, and is the consumer's end of a client."""

    __slots__ = (
        "_credit",
        "_gathered",
        "_handler",
        "_held",
        "_last_size",
        "_most",
        "_paused",
        "_window",
        "max_message_size",
        "open",
        "settles_second",
    )

    def __init__(
        self, connection: AmqpConnection, pn: Any, attachment: Attachment, window: int
    ) -> None:
        super().__init__(connection, pn, attachment)
        self._most = connection.limits.max_unsettled_sent
        self._window = min(window, self._most) if attachment.exactly_once else window
        self._credit = 0
        self.open: dict[Any, Received] = {}
        self._held = 0
        """Deliveries that count against the window; a decided one does not, even if unsettled."""
        self._gathered: Gathered | None = None
        self._last_size = 0
        """Of the last message that came in several frames."""
        self._paused = False
        self._handler: ProducerHandler | None = None
        self.max_message_size = connection.limits.max_message_size
        self.settles_second = attachment.exactly_once

    def started(self, handler: ProducerHandler) -> None:
        self._handler = handler
        self.grant()
        self.connection.touch()

    # ------------------------------------------------------------ credit

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self.connection.output.thirsty.add(self)
        self.connection.touch()

    def grant(self) -> None:
        """Keep credit and open deliveries together at the window, in steps of half of it."""
        room = self._window - self._credit - self._held
        if self.settles_second:
            # A peer that never settles costs bounded memory.
            room = min(room, self._most - self._credit - len(self.open))
        if (
            room * 2 < self._window
            or self._paused
            or self._pn is None
            or self._handler is None
            or self.connection.stalled
        ):
            return
        self._credit += room
        lib.pn_link_flow(self._pn, room)

    @property
    def undecided(self) -> int:
        return self._held

    # ------------------------------------------------------------ deliveries

    def on_event(self, delivery: Any) -> None:
        """Something about a delivery: more of it is here, or the sender has settled it."""
        known = self.open.get(delivery)
        if known is None:
            self.read()
        elif known.decided and lib.pn_delivery_settled(delivery):
            known.forget()
            lib.pn_delivery_settle(delivery)
            del self.open[delivery]
            self.connection.output.thirsty.add(self)
            self.connection.touch()
            if self._handler is not None:
                self._handler.on_settled(known)

    def read(self) -> None:
        """Take all that is here, unless the ledger is full."""
        connection = self.connection
        while self._pn is not None:
            delivery = lib.pn_link_current(self._pn)
            if not delivery:
                return
            if self._handler is None or lib.pn_delivery_aborted(delivery):
                # AMQP 2.6.14: as if it had never begun. Without a handler nothing was granted.
                self._drop_gathered()
                _give_back(delivery)
                connection.touch()
                continue
            waiting = lib.pn_delivery_pending(delivery)
            if waiting:
                here = waiting + (self._gathered.octets if self._gathered is not None else 0)
                if here > self.max_message_size:
                    message = f"messages may have {self.max_message_size} octets"
                    self._overstepped(Refusal(Rule.CONTENT_TOO_LARGE, message))
                    return
                if not connection.ledger.fits(waiting):
                    connection.stall(self)
                    return
            if lib.pn_delivery_partial(delivery):
                if waiting:
                    self._take(waiting)
                return
            self._complete(delivery, waiting)

    def _complete(self, delivery: Any, waiting: int) -> None:
        message: Octets
        if self._gathered is None and waiting <= SCRATCH:
            lib.pn_link_recv(self._pn, BUFFERS.scratch, SCRATCH)
            message = ffi.unpack(BUFFERS.scratch, waiting)
            self.connection.ledger.add(waiting)
        else:
            message = self._take(waiting).message()
            self._gathered = None
            self._last_size = len(message)
        transaction = None
        if lib.pn_delivery_remote_state(delivery) == TRANSACTIONAL:
            transaction = _transaction_of(delivery)
        presettled: bool = lib.pn_delivery_settled(delivery)
        lib.pn_link_advance(self._pn)
        followed = bool(lib.pn_link_current(self._pn))
        self._credit -= 1
        self._held += 1
        self.connection.undecided_octets += len(message)
        received = Received(self, delivery, message, presettled, transaction, followed)
        self.open[delivery] = received
        if self._credit < 0 and self.connection.holds_peer_to_credit:
            reason = "more was transferred than credit was granted"
            self._overstepped(Refusal(Rule.TRANSFER_LIMIT, reason))
            return
        assert self._handler is not None
        try:
            self._handler.on_delivery(received)
        except Refusal as refusal:
            received.reject(refusal)

    def _overstepped(self, refusal: Refusal) -> None:
        self.connection.tell(refusal)
        self.close(refusal)

    def _take(self, waiting: int) -> Gathered:
        """Move octets out of proton behind those that are here already."""
        self.connection.ledger.add(waiting)
        if self._gathered is None:
            self._gathered = Gathered(self._last_size)
        self._gathered.take(self._pn, waiting)
        return self._gathered

    def _drop_gathered(self) -> None:
        if self._gathered is not None:
            self.connection.ledger.add(-self._gathered.octets)
            self._gathered = None

    # ------------------------------------------------------------ settlement

    def decided(self, size: int) -> None:
        self._held -= 1
        connection = self.connection
        connection.undecided_octets -= size
        connection.ledger.add(-size)
        connection.output.thirsty.add(self)
        connection.touch()

    def _ended(self) -> None:
        handler, self._handler = self._handler, None
        self.connection.output.thirsty.discard(self)
        self._drop_gathered()
        for delivery, received in self.open.items():
            received.forget()
            if not received.decided:
                self.connection.undecided_octets -= received.size
                self.connection.ledger.add(-received.size)
            if self._pn is not None:
                _give_back(delivery)
        self.open.clear()
        self._held = 0
        if handler is not None:
            handler.on_detached()


def _give_back(delivery: Any) -> None:
    """Settle without having decided. Never without a state: some senders take that for success."""
    if not lib.pn_delivery_local_state(delivery):
        lib.pn_delivery_update(delivery, RELEASED)
    lib.pn_delivery_settle(delivery)


def _transaction_of(delivery: Any) -> bytes:
    """AMQP 4.5.8: the first field of a transactional state."""
    fields = read_value(lib.pn_disposition_data(lib.pn_delivery_remote(delivery)))
    if isinstance(fields, list) and fields and isinstance(fields[0], bytes):
        return fields[0]
    raise Refusal(Rule.AMQP_PROTOCOL, "a transactional state names no transaction")
