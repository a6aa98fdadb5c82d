"""What is needed of a RabbitMQ that is reached by AMQP 0-9-1: values, channels and connections as ports.

Everything that goes wrong is a `Refusal`: AMQP091_UNREACHABLE when the connection is gone (what was
under way may have happened or not), AMQP091_NOT_FOUND, AMQP091_DENIED, AMQP091_LOCKED and
AMQP091_FAILED when RabbitMQ closed a channel, AMQP091_UNROUTED and AMQP091_NOT_CONFIRMED for one
message. A channel on which RabbitMQ answered with an error is closed; others go on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from gridpost.core.refusal import Refusal

_SHORT = 255


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a basic message that Gridpost uses; None: not there."""

    headers: Mapping[str, Any] = field(default_factory=dict)
    content_type: str | None = None
    content_encoding: str | None = None
    persistent: bool = True
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: timedelta | None = None
    message_id: str | None = None
    timestamp: datetime | None = None
    """Whole seconds only, by AMQP."""
    type: str | None = None
    user_id: str | None = None
    """RabbitMQ refuses a name that is not that of the connection."""
    app_id: str | None = None


def short(text: str | None) -> str | None:
    """An id as a property; None: AMQP has no room for it, and whoever needs it finds it in the body."""
    return text if text and len(text.encode()) <= _SHORT else None


@dataclass(frozen=True, slots=True)
class Publication:
    """A message and where it goes."""

    body: bytes
    properties: Properties
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = True


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message that RabbitMQ delivered on a channel."""

    tag: int
    """For `ack` and `nack`, on the channel on which it came."""
    body: bytes
    properties: Properties
    exchange: str
    routing_key: str
    redelivered: bool
    consumer: str = ""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """What a declaration tells: messages that nobody has taken, and consumers."""

    messages: int
    consumers: int


class Channel(Protocol):
    """One channel; everything on it happens in order."""

    @property
    def closed(self) -> bool: ...

    async def publish(
        self,
        body: bytes,
        properties: Properties,
        *,
        exchange: str = "",
        routing_key: str = "",
        mandatory: bool = True,
    ) -> None:
        """Returns when RabbitMQ has confirmed the message (a quorum of nodes has it on disk).

        Calls that are made one after the other are published in that order, though each waits for
        its own confirm.
        """
        ...

    async def publish_all(self, publications: Sequence[Publication]) -> list[Refusal | None]:
        """In this order and in one write; what RabbitMQ said against each, when it has said it of all.

        On a channel without confirms it returns when the socket takes more.
        """
        ...

    async def consume(
        self,
        queue: str,
        take: Callable[[Incoming], None],
        *,
        prefetch: int = 0,
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: Mapping[str, Any] | None = None,
        cancelled: Callable[[], None] | None = None,
    ) -> str:
        """The consumer's tag. `cancelled`: RabbitMQ ended it, for instance with its queue."""
        ...

    async def cancel(self, consumer: str) -> None:
        """What was delivered already stays delivered."""
        ...

    async def get(self, queue: str) -> Incoming | None: ...

    async def ack(self, tag: int, *, multiple: bool = False) -> None: ...

    async def ack_all(self, tags: Sequence[int]) -> None:
        """In one write."""
        ...

    async def nack(self, tag: int, *, multiple: bool = False, requeue: bool = True) -> None: ...

    async def declare_queue(
        self,
        queue: str = "",
        *,
        passive: bool = False,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> tuple[str, QueueCounts]:
        """The queue's name, which RabbitMQ chooses when none is given, and what is in it."""
        ...

    async def delete_queue(self, queue: str) -> None: ...

    async def declare_exchange(
        self,
        exchange: str,
        kind: str,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None: ...

    async def bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> None: ...

    async def unbind(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> None: ...

    async def close(self) -> None: ...


class Loss(Awaitable[Refusal], Protocol):
    """The end of a connection, to be waited for or to be told of."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None: ...


class RabbitConnection(Protocol):
    """An open connection."""

    @property
    def address(self) -> str: ...

    @property
    def version(self) -> tuple[int, ...]:
        """Of the server."""
        ...

    @property
    def lost(self) -> Loss:
        """Done when the connection is gone, with the reason."""
        ...

    async def channel(self, *, confirms: bool = True) -> Channel: ...

    async def blocked(self) -> bool:
        """RabbitMQ takes no publications because it is short of memory or disk."""
        ...

    async def close(self) -> None: ...


class ConnectionKeeper(Protocol):
    """Keeps work running on a connection: connects, hands it over, and again when it is lost.

    `work` gets every new connection and prepares what it needs; until it returns nobody is told
    that there is one. `lost` is told the reason when a connection that worked is gone.
    """

    @property
    def connection(self) -> RabbitConnection | None: ...

    @property
    def why(self) -> Refusal | None:
        """Why there is no connection, when there is none."""
        ...

    async def start(self, *, insist: bool = True, patience: float = 0.0) -> None:
        """Returns when the first connection works; raises the reason when it does not.

        For `patience` seconds a RabbitMQ that is not ready yet is tried again, and `why` says what
        it lacks. Without `insist` a RabbitMQ that does not answer is tried again later; one that does not
        let us in is an error all the same.
        """
        ...

    async def close(self) -> None: ...


class RabbitClient(Protocol):
    """Opens connections to one RabbitMQ, at whichever of its addresses answers first."""

    async def connect(self, purpose: str = "") -> RabbitConnection: ...

    def keep(
        self,
        work: Callable[[RabbitConnection], Awaitable[None]],
        *,
        purpose: str = "",
        lost: Callable[[Refusal], None] | None = None,
    ) -> ConnectionKeeper: ...
