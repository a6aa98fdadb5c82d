"""A broker without a store or rules: queues in memory, for tests of the AMQP transport.

Every option of `core.links` is used here once, so that it also shows how a service is written.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count

from cryptography import x509
from cryptography.x509.oid import NameOID

from gridpost.core.links import (
    Admission,
    Connection,
    IncomingLink,
    Octets,
    Outcome,
    OutcomeKind,
    OutgoingLink,
    Peer,
    ReceivedDelivery,
    SentDelivery,
)
from gridpost.core.refusal import Refusal, Rule

# AMQP 3.2.1: header with delivery-count, in front of the bare message
FIRST = b"\x00\x53\x70\x45"
AGAIN = b"\x00\x53\x70\xc0\x07\x05\x40\x40\x40\x40\x52\x01"


@dataclass(eq=False)
class Queue:
    """First in, first out, shared by all consumers that have credit."""

    messages: deque[tuple[bytes, bytes]] = field(default_factory=deque)
    consumers: list[Consumer] = field(default_factory=list)

    def put(self, message: Octets) -> None:
        self.messages.append((b"", bytes(message)))
        self.pump()

    def pump(self) -> None:
        for consumer in self.consumers:
            if not self.messages:
                return
            consumer.feed()


class Producer:
    def __init__(self, broker: MemoryBroker, link: IncomingLink) -> None:
        self._broker = broker
        self._queue = broker.queues[link.attachment.address or ""]
        self.link = link

    def on_delivery(self, delivery: ReceivedDelivery) -> None:
        broker = self._broker
        broker.deliveries += 1
        if broker.on_delivery is not None:
            broker.on_delivery(delivery)
        elif delivery.transaction is not None:
            message = delivery.message
            broker.transactions[delivery.transaction].append(
                (lambda: self._queue.put(message), lambda: None)
            )
            delivery.accept()
        else:
            if len(self._queue.messages) < broker.keep:
                self._queue.put(delivery.message)
            delivery.accept()

    def on_settled(self, delivery: ReceivedDelivery) -> None:
        self._broker.settled_by_sender.append(delivery)

    def on_detached(self) -> None:
        self._broker.producers.remove(self)


class Consumer:
    def __init__(self, broker: MemoryBroker, link: OutgoingLink) -> None:
        self._broker = broker
        self._queue = broker.queues[link.attachment.address or ""]
        self.link = link
        self._queue.consumers.append(self)

    def feed(self) -> None:
        messages, link = self._queue.messages, self.link
        while messages and link.sendable:
            header, message = messages.popleft()
            link.send(header, message, context=message)

    def on_credit(self, link: OutgoingLink) -> None:
        self.feed()
        if link.draining and not self._queue.messages:
            link.drained()

    def on_outcome(self, delivery: SentDelivery, outcome: Outcome) -> None:
        broker = self._broker
        broker.outcomes.append(outcome)
        if outcome.transaction is not None:
            broker.transactions[outcome.transaction].append(
                (delivery.settle, lambda: self._give_back(delivery))
            )
            return
        if outcome.kind in (OutcomeKind.ACCEPTED, OutcomeKind.REJECTED):
            if not outcome.settled:
                delivery.settle()
            return
        self._give_back(delivery)

    def _give_back(self, delivery: SentDelivery) -> None:
        delivery.settle()
        self._queue.messages.appendleft((AGAIN, delivery.context))
        self._queue.pump()

    def on_detached(self) -> None:
        self._queue.consumers.remove(self)
        self._queue.pump()


class Transactions:
    """Local transactions: what is to be done on commit, and on rollback."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._numbers = count(1)

    async def declare(self) -> bytes:
        transaction = next(self._numbers).to_bytes(4, "big")
        self._broker.transactions[transaction] = []
        return transaction

    async def discharge(self, transaction: bytes, *, failed: bool) -> None:
        work = self._broker.transactions.pop(transaction)
        if failed or self._broker.commits_fail:
            for _, roll_back in reversed(work):
                roll_back()
            if not failed:
                raise Refusal(Rule.TRANSACTION_ROLLED_BACK, "the store said no")
            return
        for commit, _ in work:
            commit()

    def abandon(self, transaction: bytes) -> None:
        for _, roll_back in reversed(self._broker.transactions.pop(transaction)):
            roll_back()
        self._broker.abandoned.append(transaction)


class Handler:
    def __init__(self, broker: MemoryBroker, connection: Connection) -> None:
        self._broker = broker
        self.connection = connection

    async def attach_producer(self, link: IncomingLink) -> Producer:
        await self._broker.check_attach("producer", link.attachment.address)
        producer = Producer(self._broker, link)
        self._broker.producers.append(producer)
        return producer

    async def attach_consumer(self, link: OutgoingLink) -> Consumer:
        await self._broker.check_attach("consumer", link.attachment.address)
        return Consumer(self._broker, link)

    def coordinator(self) -> Transactions | None:
        return Transactions(self._broker) if self._broker.offers_transactions else None

    def on_closed(self) -> None:
        self._broker.connections.remove(self)


@dataclass(eq=False)
class MemoryBroker:
    """A gatekeeper that lets in everybody whose certificate was verified."""

    queues: defaultdict[str, Queue] = field(default_factory=lambda: defaultdict(Queue))
    connections: list[Handler] = field(default_factory=list)
    producers: list[Producer] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    settled_by_sender: list[ReceivedDelivery] = field(default_factory=list)
    transactions: dict[bytes, list[tuple[Callable[[], None], Callable[[], None]]]] = field(
        default_factory=dict
    )
    abandoned: list[bytes] = field(default_factory=list)
    deliveries: int = 0
    keep: int = 1_000_000
    """What comes on top of so many in a queue is accepted and thrown away."""
    offers_transactions: bool = True
    commits_fail: bool = False
    until: datetime | None = None
    unnamed_links: bool = False
    on_delivery: Callable[[ReceivedDelivery], None] | None = None
    on_admit: Callable[[Peer], Awaitable[None]] | None = None
    refused: dict[tuple[str, str], Refusal] = field(default_factory=dict)
    peers: list[Peer] = field(default_factory=list)

    async def admit(self, peer: Peer, connection: Connection) -> Admission:
        self.peers.append(peer)
        if self.on_admit is not None:
            await self.on_admit(peer)
        handler = Handler(self, connection)
        self.connections.append(handler)
        identity = peer.user or common_name(peer.chain[0])
        return Admission(identity, handler, self.until, self.unnamed_links)

    async def check_attach(self, kind: str, address: str | None) -> None:
        await asyncio.sleep(0)
        refusal = self.refused.get((kind, address or ""))
        if refusal is not None:
            raise refusal


def common_name(certificate: bytes) -> str:
    subject = x509.load_der_x509_certificate(certificate).subject
    return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


__all__ = ["AGAIN", "FIRST", "MemoryBroker", "common_name"]
