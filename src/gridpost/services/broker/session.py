"""One connected endpoint: which links it gets (Table 4), and whether it may stay."""

from __future__ import annotations

from collections.abc import Callable

from gridpost.core.certificate import Certificate
from gridpost.core.links import Attachment, Connection, IncomingLink, OutgoingLink
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.broker.consumer import Consumer
from gridpost.services.broker.context import BrokerContext
from gridpost.services.broker.producer import Producer
from gridpost.services.broker.queues import AnyQueue, Queues
from gridpost.services.broker.transactions import Transactions


class Session:
    """core.links.ConnectionHandler."""

    def __init__(
        self,
        context: BrokerContext,
        queues: Queues,
        client: str,
        certificate: Certificate,
        issuer: bytes,
        connection: Connection,
        closed: Callable[[Session], None],
    ) -> None:
        self.client = client
        self._context = context
        self._queues = queues
        self._certificate = certificate
        self._issuer = issuer
        self._connection = connection
        self._closed = closed
        self._transactions = Transactions(context)
        self._producers: list[Producer] = []

    async def attach_producer(self, link: IncomingLink) -> Producer:
        context, queue = self._context, link.attachment.address or ""
        try:
            _settles(link.attachment)
            context.access.attach_producer(
                context.directory(), self.client, queue, context.clock.now()
            )
        except Refusal as refusal:
            context.refused(refusal, self.client)
            raise
        live = await self._refer(queue)
        producer = Producer(context, self.client, live, link, self._transactions)
        self._producers = [known for known in self._producers if not known.gone]
        self._producers.append(producer)
        return producer

    async def attach_consumer(self, link: OutgoingLink) -> Consumer:
        context, queue = self._context, link.attachment.address or ""
        try:
            _settles(link.attachment)
            context.access.consume(context.directory(), self.client, queue, context.clock.now())
        except Refusal as refusal:
            context.refused(refusal, self.client)
            raise
        live = await self._refer(queue)
        return Consumer(context, self.client, live, link, self._transactions)

    async def _refer(self, queue: str) -> AnyQueue:
        try:
            return await self._queues.refer(queue)
        except Refusal as refusal:
            self._context.refused(refusal, self.client)
            raise

    def lock_out(self, queue: str, refusal: Refusal) -> None:
        """End the links of this connection that lead to a queue."""
        for producer in self._producers:
            if producer.queue == queue and not producer.gone:
                producer.close(refusal)

    def leave(self, refusal: Refusal) -> None:
        """The broker cannot serve anybody at the moment."""
        self._connection.close(refusal)

    def coordinator(self) -> Transactions | None:
        return self._transactions if self._context.store.capabilities.transactions else None

    def on_closed(self) -> None:
        self._closed(self)

    def check(self) -> bool:
        """Still entitled to be here? Otherwise the connection is closed (503 cl. 5.4, 8.6)."""
        context = self._context
        now = context.clock.now()
        try:
            component = context.identities().identify(self._certificate, self._issuer, now)
            if component.code != self.client:
                raise Refusal(
                    Rule.CERTIFICATE_NOT_OF_COMPONENT,
                    f"the certificate is now that of {component.code}, not of {self.client}",
                )
            context.access.connect(context.directory(), self.client, now)
        except Refusal as refusal:
            context.refused(refusal, self.client)
            self._connection.close(refusal)
            return False
        return True


def _settles(attachment: Attachment) -> None:
    """503 cl. 5.8.3: at least once or exactly once, never at most once."""
    if attachment.presettled:
        raise Refusal(Rule.NOT_OFFERED, "transfers that are settled by the sender are not offered")
