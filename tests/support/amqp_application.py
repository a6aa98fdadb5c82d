"""A business application in this process that keeps its connection: sends until it was accepted."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from types import TracebackType

from gridpost.core.links import OutcomeKind, Peer, ReceivedDelivery
from gridpost.transports.amqp10 import AmqpClient, Backoff, Credentials, SessionKeeper
from gridpost.wire.application_amqp import OutboxMessage, read_any, write_outbox
from support.application import QUEUES
from support.network import API_PASSWORD


async def anyone(peer: Peer) -> None:
    """A listener on loopback without TLS shows nothing to check."""


class AmqpApplication:
    def __init__(self, port: int, user: str = "app", password: str = API_PASSWORD) -> None:
        client = AmqpClient(
            [f"amqp://127.0.0.1:{port}"],
            container=user,
            tls=None,
            check=anyone,
            credentials=Credentials(user, password),
        )
        self._keeper = SessionKeeper(client, backoff=Backoff(0.05, 0.5))
        self.documents: Counter[str] = Counter()
        self.answered: set[str] = set()
        """Documents whose acceptance the endpoint has answered: it has settled them."""
        self.after_answer: list[str] = []
        """Documents that came again after that."""
        self.message_ids: defaultdict[str, set[str]] = defaultdict(set)
        self.events: Counter[tuple[str, str]] = Counter()
        self.replies: dict[str, str] = {}

    async def __aenter__(self) -> AmqpApplication:
        self._outbox = self._keeper.producer(QUEUES["outbox"])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._keeper.close()

    async def send(self, key: str, message_type: str = "Q01", receiver: str = "E2") -> None:
        """At least once; `key` as conversationID makes it once."""
        message = OutboxMessage(receiver, message_type, key.encode(), conversation_id=key)
        await self.until_taken(write_outbox(message, key))

    async def until_taken(self, octets: bytes) -> None:
        while True:
            outcome = await self._outbox.send(octets)
            if outcome.taken:
                return
            assert outcome.kind is not OutcomeKind.REJECTED, outcome
            await asyncio.sleep(0.05)

    def consume(self) -> None:
        """Everything that the endpoint has for us, accepted as it comes."""
        self._keeper.consumer(QUEUES["inbox"], self._document, 50, self._settled)
        self._keeper.consumer(QUEUES["reply"], self._reply, 50)
        self._keeper.consumer(QUEUES["event"], self._event, 50)

    def _document(self, delivery: ReceivedDelivery) -> None:
        found = read_any(delivery.message)
        assert isinstance(found.body, bytes)
        key = found.body.decode()
        self.documents[key] += 1
        if key in self.answered:
            self.after_answer.append(key)
        message_id = str(found.application_properties["messageID"])
        self.message_ids[key].add(message_id)
        delivery.context = key
        delivery.accept()

    def _settled(self, delivery: ReceivedDelivery) -> None:
        self.answered.add(delivery.context)

    def _reply(self, delivery: ReceivedDelivery) -> None:
        found = read_any(delivery.message)
        properties = found.application_properties
        assert "messageID" in properties, properties
        self.replies[str(found.properties.correlation_id)] = str(properties["messageID"])
        delivery.accept()

    def _event(self, delivery: ReceivedDelivery) -> None:
        found = read_any(delivery.message)
        self.events[str(found.properties.correlation_id), str(found.body)] += 1
        delivery.accept()
