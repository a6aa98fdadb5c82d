"""503 Table 4: what a connected endpoint may do on a broker, or on an endpoint that takes direct
transfers. Each function returns quietly or refuses; the transport renders the refusal as an AMQP
condition. They look the client up again at every operation, so that a revocation takes effect at
the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gridpost.core.component import Component, ComponentType
from gridpost.core.identifiers import ComponentCode, clip
from gridpost.core.message_path import Restriction
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Directory


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """The rules of a broker with its current restriction."""

    restriction: Restriction

    def connect(self, directory: Directory, client: str, at: datetime) -> Component:
        component = known_endpoint(directory, client, at)
        if not self.restriction.allows_component(client):
            raise Refusal(Rule.PEER_NOT_ALLOWED, f"this broker does not admit {client}")
        return component

    def consume(self, directory: Directory, client: str, queue: str, at: datetime) -> None:
        self.connect(directory, client, at)
        if queue != client:
            raise Refusal(
                Rule.CONSUMER_NOT_OWN_QUEUE,
                f"{client} may consume from its own queue only, not from '{clip(queue)}'",
            )

    def attach_producer(self, directory: Directory, client: str, queue: str, at: datetime) -> None:
        self.connect(directory, client, at)
        self._reachable(directory, queue, at)

    def produce(
        self,
        directory: Directory,
        client: str,
        queue: str,
        *,
        sender_code: str,
        receiver_code: str,
        subject: str,
        at: datetime,
    ) -> None:
        self.connect(directory, client, at)
        _addressed(client, queue, sender_code, receiver_code)
        self._reachable(directory, queue, at)
        if not self.restriction.allows_message_type(subject):
            raise Refusal(
                Rule.MESSAGE_TYPE_NOT_ALLOWED,
                f"this broker lets no message-type '{clip(subject)}' pass",
            )

    def _reachable(self, directory: Directory, queue: str, at: datetime) -> None:
        recipient = directory.find(queue, at)
        if recipient is None or recipient.type is not ComponentType.ENDPOINT:
            raise Refusal(Rule.QUEUE_UNKNOWN, f"'{clip(queue)}' is not the code of an endpoint")
        if not self.restriction.allows_component(queue):
            raise Refusal(Rule.QUEUE_NOT_ALLOWED, f"this broker does not admit {queue}")


@dataclass(frozen=True, slots=True)
class EndpointAccess:
    """The rules of an endpoint as a server of direct transfers."""

    code: ComponentCode
    takes_connections: bool

    def connect(self, directory: Directory, client: str, at: datetime) -> Component:
        component = known_endpoint(directory, client, at)
        if not self.takes_connections:
            raise Refusal(Rule.NO_DIRECT_CONNECTIONS, f"{self.code} takes no direct transfers")
        return component

    def consume(self, directory: Directory, client: str, queue: str, at: datetime) -> None:
        raise Refusal(
            Rule.CONSUMER_ON_ENDPOINT,
            f"nobody consumes from an endpoint: {client} asked for '{clip(queue)}'",
        )

    def attach_producer(self, directory: Directory, client: str, queue: str, at: datetime) -> None:
        self.connect(directory, client, at)
        if queue != self.code:
            raise Refusal(
                Rule.QUEUE_UNKNOWN, f"this is {self.code}: it has no queue '{clip(queue)}'"
            )

    def produce(
        self,
        directory: Directory,
        client: str,
        queue: str,
        *,
        sender_code: str,
        receiver_code: str,
        subject: str,
        at: datetime,
    ) -> None:
        self.attach_producer(directory, client, queue, at)
        _addressed(client, queue, sender_code, receiver_code)
        if directory.find(receiver_code, at) is None:
            raise Refusal(Rule.QUEUE_UNKNOWN, f"{receiver_code} is not in the directory")


def known_endpoint(directory: Directory, client: str, at: datetime) -> Component:
    """Table 4, any operation: the client exists in configuration data now, and is an endpoint."""
    component = directory.find(client, at)
    if component is None:
        raise Refusal(Rule.PEER_UNKNOWN, f"no component {client} exists in the directory")
    if component.type is not ComponentType.ENDPOINT:
        raise Refusal(Rule.PEER_NOT_ENDPOINT, f"{client} is a {component.type}, not an endpoint")
    return component


def _addressed(client: str, queue: str, sender_code: str, receiver_code: str) -> None:
    if receiver_code != queue:
        raise Refusal(
            Rule.RECEIVER_NOT_QUEUE,
            f"receiverCode is '{clip(receiver_code)}', but the link leads to {queue}",
        )
    if sender_code != client:
        raise Refusal(
            Rule.SENDER_NOT_CONNECTED_PEER,
            f"senderCode is '{clip(sender_code)}', but {client} is connected",
        )
