"""What a service and an AMQP 1.0 transport say to each other: peers, links, deliveries, outcomes.

A service implements `Gatekeeper` and what it hands out; a transport calls it and implements the
links and deliveries. Everything happens in one event loop. A method that is `async` may wait for a
store; the others run on the path of every message and must return at once.

A refusal is answered to the peer where it belongs: raised in `admit` it closes the connection, in
an attach it detaches that link, in `on_delivery` it rejects that message. Any other exception is our
bug: it ends the connection on which it happened and no other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from gridpost.core.refusal import Refusal

Octets: TypeAlias = bytes | memoryview
"""An encoded message. Large ones come as a view, so that nobody has to hold them twice."""


class OutcomeKind(StrEnum):
    """What became of a transfer: AMQP 3.4, and two ends that no peer says."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RELEASED = "released"
    MODIFIED = "modified"
    LOST = "lost"
    """The link ended before the receiver said anything: it may have the message or not."""
    UNSENT = "unsent"
    """The link ended before the first octet left: the receiver cannot have the message."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of a delivery at its receiver."""

    kind: OutcomeKind
    condition: str = ""
    description: str = ""
    delivery_failed: bool = False
    undeliverable_here: bool = False
    transaction: bytes | None = None
    """AMQP 4.4: the outcome counts only once this transaction is discharged."""
    settled: bool = True
    """False: the receiver settles second and waits for `SentDelivery.settle` (exactly once)."""

    @property
    def taken(self) -> bool:
        return self.kind is OutcomeKind.ACCEPTED


ACCEPTED = Outcome(OutcomeKind.ACCEPTED)
RELEASED = Outcome(OutcomeKind.RELEASED)
LOST = Outcome(OutcomeKind.LOST)
UNSENT = Outcome(OutcomeKind.UNSENT)


@dataclass(frozen=True, slots=True)
class Peer:
    """What is known of the other side when it has authenticated."""

    address: str
    """Network address and port, for the log."""
    chain: tuple[bytes, ...] = ()
    """Verified certificates as DER, the peer's own first and the root last; empty without TLS."""
    user: str = ""
    """Name of SASL PLAIN; the authorization identity of EXTERNAL is not looked at."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A link as the peer asks for it (AMQP 2.7.3)."""

    name: str
    address: str | None
    """None: an anonymous terminus, or a dynamic one."""
    dynamic: bool = False
    exactly_once: bool = False
    """The receiver settles second."""
    presettled: bool = False
    """The sender settles everything that it sends: at most once."""
    capabilities: tuple[str, ...] = ()


# ---------------------------------------------------------------- what a transport offers


class Connection(Protocol):
    """An open connection, as a service sees it."""

    @property
    def peer(self) -> Peer: ...

    @property
    def identity(self) -> str: ...

    def close(self, refusal: Refusal | None = None) -> None:
        """Tell the peer why, then close; what is unsettled ends as if the peer had vanished."""
        ...


class ReceivedDelivery(Protocol):
    """A complete message that a peer sent, until the service has said what becomes of it."""

    context: Any
    """The service's own, never looked at."""

    @property
    def message(self) -> Octets:
        """Header, annotations and bare message as they came; let go of with the decision."""
        ...

    @property
    def transaction(self) -> bytes | None:
        """AMQP 4.4.2: the message is sent under this transaction."""
        ...

    @property
    def presettled(self) -> bool:
        """The sender does not wait for an outcome; say it all the same, it opens the window."""
        ...

    @property
    def followed(self) -> bool:
        """More of the same link is here already: its sender does not wait for this outcome."""
        ...

    def accept(self) -> None:
        """Only after the message is safe. Does nothing when the link is gone."""
        ...

    def reject(self, refusal: Refusal) -> None: ...

    def release(self) -> None:
        """Not processed; the sender may send it again, here or elsewhere."""
        ...

    def modify(self, *, failed: bool, undeliverable_here: bool = False) -> None: ...


class IncomingLink(Protocol):
    """A link on which the peer produces."""

    @property
    def attachment(self) -> Attachment: ...

    @property
    def connection(self) -> Connection: ...

    def pause(self) -> None:
        """Grant no more credit; what was granted may still be used."""
        ...

    def resume(self) -> None: ...

    def close(self, refusal: Refusal | None = None) -> None: ...


class SentDelivery(Protocol):
    """A message on its way to a peer, until both sides have settled it."""

    context: Any
    """The service's own, never looked at."""

    def settle(self) -> None:
        """Exactly once: the outcome is safe with us, the receiver may forget the delivery."""
        ...


class OutgoingLink(Protocol):
    """A link on which the peer consumes."""

    @property
    def attachment(self) -> Attachment: ...

    @property
    def connection(self) -> Connection: ...

    @property
    def sendable(self) -> int:
        """How many messages may be sent now: credit, window of unsettled ones, room to write."""
        ...

    @property
    def draining(self) -> bool:
        """AMQP 2.6.7: the peer wants to know when there is nothing more for its credit."""
        ...

    def send(self, *octets: Octets, context: Any = None) -> SentDelivery:
        """Transfer one message, given in pieces that are not joined: header, bare message.

        Refuses with BUSY when nothing is sendable.
        """
        ...

    def drained(self) -> None:
        """Nothing more to send: the rest of the credit goes back."""
        ...

    def close(self, refusal: Refusal | None = None) -> None: ...


# ---------------------------------------------------------------- what a service offers


class ProducerHandler(Protocol):
    """Takes what a peer produces on one link."""

    def on_delivery(self, delivery: ReceivedDelivery) -> None:
        """Decide now or later; until then the message counts against the peer's window."""
        ...

    def on_settled(self, delivery: ReceivedDelivery) -> None:
        """Exactly once: the sender has settled as well, the message id may be forgotten."""
        ...

    def on_detached(self) -> None:
        """The link is gone; outcomes of its open deliveries no longer reach the peer."""
        ...


class ConsumerHandler(Protocol):
    """Feeds a peer that consumes on one link."""

    def on_credit(self, link: OutgoingLink) -> None:
        """`sendable` became or grew above zero, or the peer drains."""
        ...

    def on_outcome(self, delivery: SentDelivery, outcome: Outcome) -> None:
        """Once per delivery, also when the link ends (LOST); twice only inside a transaction."""
        ...

    def on_detached(self) -> None:
        """The link is gone; an outcome was reported for everything that was sent on it."""
        ...


class Coordinator(Protocol):
    """Local transactions of one connection (AMQP part 4)."""

    async def declare(self) -> bytes:
        """Begin a transaction; the identifier has 1 to 32 octets."""
        ...

    async def discharge(self, transaction: bytes, *, failed: bool) -> None:
        """Commit, or roll back when `failed`. A refusal means that it was rolled back."""
        ...

    def abandon(self, transaction: bytes) -> None:
        """The peer went away without a discharge: roll back."""
        ...


class ConnectionHandler(Protocol):
    """What one authorised peer may do."""

    async def attach_producer(self, link: IncomingLink) -> ProducerHandler: ...

    async def attach_consumer(self, link: OutgoingLink) -> ConsumerHandler: ...

    def coordinator(self) -> Coordinator | None:
        """None: this service has no transactions, the coordinator link is refused."""
        ...

    def on_closed(self) -> None:
        """The connection is gone, after every link of it."""
        ...


@dataclass(frozen=True, slots=True)
class Admission:
    """A peer that was let in."""

    identity: str
    """Component code or user name: limits and revocation go by it."""
    handler: ConnectionHandler
    until: datetime | None = None
    """The connection ends then: its certificate expires."""
    unnamed_links: bool = False
    """Anonymous and dynamic links reach the handler instead of being refused."""


class Gatekeeper(Protocol):
    """Decides who may connect."""

    async def admit(self, peer: Peer, connection: Connection) -> Admission: ...


class PasswordCheck(Protocol):
    """Decides on SASL PLAIN, before the gatekeeper is asked."""

    async def __call__(self, user: str, password: str) -> bool: ...


# ---------------------------------------------------------------- links that we open ourselves


class LinkRefused(Exception):
    """The peer closed a link or the connection, or did not let it come up."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}" if description else condition)
        self.condition = condition
        self.description = description


class Producer(Protocol):
    """A place at a peer that we produce to, attached again whenever the connection comes back."""

    @property
    def attached(self) -> bool: ...

    async def ready(self) -> None:
        """Wait until the link is attached; raises LinkRefused when the peer refuses it."""
        ...

    def send(self, *octets: Octets) -> Awaitable[Outcome]:
        """Transfer as soon as the peer grants credit.

        UNSENT and LOST end the wait when the link goes: the caller repeats, and the receiver stops
        duplicates (503 cl. 5.8.3).
        """
        ...

    async def close(self) -> None: ...


class Consumer(Protocol):
    """A queue at a peer that we consume from, attached again whenever the connection comes back."""

    @property
    def attached(self) -> bool: ...

    async def ready(self) -> None: ...

    async def close(self) -> None: ...


class LinkKeeper(Protocol):
    """A connection to one peer that is kept up, with the links that are wanted on it."""

    @property
    def connected(self) -> bool: ...

    def producer(self, address: str) -> Producer: ...

    def consumer(
        self, address: str, on_delivery: Callable[[ReceivedDelivery], None], credit: int
    ) -> Consumer: ...

    async def close(self) -> None: ...


ServerCheck: TypeAlias = Callable[[Peer], Awaitable[None]]
"""Whether the server that was reached is the component that was dialled; refuses otherwise.

Host names are not matched (divergences, 8.3.2).
"""
