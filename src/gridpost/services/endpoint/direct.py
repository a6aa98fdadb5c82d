"""The endpoint as a server of direct transfers: the endpoint's column of 503 Table 4.

Each operation asks the directory again, so that a revoked peer is out at its next step.
"""

from __future__ import annotations

import asyncio

import structlog

from gridpost.core.amqp_access import EndpointAccess
from gridpost.core.certificate import Certificate
from gridpost.core.journal import refusal_row
from gridpost.core.links import (
    Admission,
    Connection,
    ConsumerHandler,
    Coordinator,
    IncomingLink,
    OutgoingLink,
    Peer,
    ProducerHandler,
    ReceivedDelivery,
)
from gridpost.core.message_path import DIRECT
from gridpost.core.refusal import Code, Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.inbound import Inbound
from gridpost.services.endpoint.peers import Peers
from gridpost.wire.amqp.sections import split_head
from gridpost.wire.mades.amqp_message import read_fields

log = structlog.get_logger(__name__)


class DirectDoor:
    """core.links.Gatekeeper."""

    def __init__(self, context: EndpointContext, peers: Peers, inbound: Inbound) -> None:
        self.context = context
        self.peers = peers
        self.inbound = inbound
        self.access = EndpointAccess(context.code, takes_connections=True)
        self._visitors: set[_Visitor] = set()
        self._noting: set[asyncio.Task[None]] = set()

    async def admit(self, peer: Peer, connection: Connection) -> Admission:
        try:
            component, verified = self.peers.client(peer)
            now = self.context.clock.now()
            self.access.connect(self.context.directory(), component.code, now)
        except Refusal as refusal:
            await self.refused(refusal, peer.address)
            raise
        visitor = _Visitor(self, component.code, verified.leaf, verified.issuer, connection)
        self._visitors.add(visitor)
        return Admission(component.code, visitor, until=verified.leaf.not_after)

    def check(self) -> int:
        """After a synchronisation: who no longer belongs here is put out (503 cl. 8.6)."""
        return sum(not visitor.check() for visitor in list(self._visitors))

    def left(self, visitor: _Visitor) -> None:
        self._visitors.discard(visitor)

    def note(self, refusal: Refusal, peer: str, message_id: str) -> None:
        """The same from where nobody can wait."""
        task = asyncio.get_running_loop().create_task(self.refused(refusal, peer, message_id))
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    async def refused(self, refusal: Refusal, peer: str, message_id: str = "") -> None:
        """503 cl. 5.6.2 and 10: every refusal can be found again by its id."""
        log.warning(
            "direct transfer refused",
            rule=refusal.rule.name,
            reason=refusal.message,
            id=refusal.id,
            peer=peer,
        )
        row = refusal_row(
            refusal,
            self.context.clock.now(),
            peer=peer,
            message_id=message_id,
            security=refusal.code is Code.AUTHENTICATION_ERROR,
        )
        await self.context.store.run(lambda work: work.journal.append(row))


class _Visitor:
    """core.links.ConnectionHandler: one endpoint that is connected."""

    def __init__(
        self,
        door: DirectDoor,
        code: str,
        leaf: Certificate,
        issuer: bytes,
        connection: Connection,
    ) -> None:
        self._door = door
        self.code = code
        self._leaf = leaf
        self._issuer = issuer
        self._connection = connection

    async def attach_producer(self, link: IncomingLink) -> ProducerHandler:
        door = self._door
        queue = link.attachment.address or ""
        try:
            door.access.attach_producer(
                door.context.directory(), self.code, queue, door.context.clock.now()
            )
            if link.attachment.presettled:
                # 503 cl. 5.8.3: at most once is no reliable transfer.
                raise Refusal(Rule.NOT_OFFERED, "a sender has to wait for the outcome")
        except Refusal as refusal:
            await door.refused(refusal, self.code)
            raise
        return _Deliveries(door, self.code, queue)

    async def attach_consumer(self, link: OutgoingLink) -> ConsumerHandler:
        door = self._door
        try:
            door.access.consume(
                door.context.directory(),
                self.code,
                link.attachment.address or "",
                door.context.clock.now(),
            )
        except Refusal as refusal:
            await door.refused(refusal, self.code)
            raise
        raise AssertionError("Table 4 lets nobody consume from an endpoint")

    def coordinator(self) -> Coordinator | None:
        return None

    def on_closed(self) -> None:
        self._door.left(self)

    def check(self) -> bool:
        """Is the certificate still that of a known endpoint?"""
        door = self._door
        try:
            component = door.peers.identify(self._leaf, self._issuer)
            if component.code != self.code:
                raise Refusal(
                    Rule.CERTIFICATE_NOT_OF_COMPONENT,
                    f"the certificate belongs to {component.code} now",
                )
            door.access.connect(door.context.directory(), self.code, door.context.clock.now())
        except Refusal as refusal:
            log.warning("direct peer put out", peer=self.code, reason=refusal.message)
            self._connection.close(refusal)
            return False
        return True


class _Deliveries:
    """core.links.ProducerHandler."""

    def __init__(self, door: DirectDoor, client: str, queue: str) -> None:
        self._door = door
        self._client = client
        self._queue = queue

    def on_delivery(self, delivery: ReceivedDelivery) -> None:
        context = self._door.context
        message_id = ""
        try:
            fields = read_fields(split_head(delivery.message))
            message_id = fields.message_id
            self._door.access.produce(
                context.directory(),
                self._client,
                self._queue,
                sender_code=fields.sender_code,
                receiver_code=fields.receiver_code,
                subject=fields.subject,
                at=context.clock.now(),
            )
        except Refusal as refusal:
            self._door.note(refusal, self._client, message_id)
            raise
        self._door.inbound.take(delivery, DIRECT)

    def on_settled(self, delivery: ReceivedDelivery) -> None:
        """At least once: nothing is kept for the settlement, the box knows every id (5.8.3)."""

    def on_detached(self) -> None:
        """Outcomes of what is still being stored reach nobody; the peer sends it again."""
