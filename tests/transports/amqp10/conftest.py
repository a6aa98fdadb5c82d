"""A running server with queues in memory, and ways to reach it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from gridpost.core.links import Octets, OutcomeKind, ReceivedDelivery
from gridpost.transports.amqp10 import AmqpClient, AmqpLimits, AmqpServer, TlsCredentials
from gridpost.transports.amqp10.client import ClientConnection
from gridpost.transports.amqp10.tls import client_context
from support.memory_broker import MemoryBroker


@dataclass
class Setup:
    """One server and everything that a test opened towards it."""

    authority: Any
    server: AmqpServer
    broker: MemoryBroker
    port: int = 0
    opened: list[ClientConnection] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"amqps://127.0.0.1:{self.port}"

    def client(self, code: str = "E1", **options: Any) -> AmqpClient:
        own = self.authority.credentials(code)
        options = {"container": code, "tls": lambda: own, **options}
        return AmqpClient([self.url], **options)

    async def connect(self, code: str = "E1", **options: Any) -> ClientConnection:
        connection = await self.client(code, **options).connect()
        self.opened.append(connection)
        return connection

    def context(self, code: str = "E1") -> ssl.SSLContext:
        """For tests that speak TLS by hand."""
        own: TlsCredentials = self.authority.credentials(code)
        return client_context(own)

    async def raw(
        self, context: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context or self.context())


@pytest.fixture
def limits() -> AmqpLimits:
    """Tests that need others define a fixture of this name."""
    return AmqpLimits(close_seconds=0.5)


@pytest.fixture
async def setup(authority: Any, clock: Any, limits: AmqpLimits) -> AsyncIterator[Setup]:
    server = AmqpServer(container="B1", clock=clock, limits=limits)
    found = Setup(authority, server, MemoryBroker())
    own = authority.credentials("B1")
    found.port = await server.listen("127.0.0.1", 0, found.broker, tls=lambda: own)
    yield found
    for connection in found.opened:
        connection.close()
    await asyncio.gather(*(connection.lost for connection in found.opened))
    await server.close()


class Inbox:
    """Keeps what a consumer gets, and accepts it."""

    def __init__(self, *, accept: bool = True) -> None:
        self.deliveries: list[ReceivedDelivery] = []
        self.messages: list[bytes] = []
        self._accept = accept

    def __call__(self, delivery: ReceivedDelivery) -> None:
        self.messages.append(bytes(delivery.message))
        self.deliveries.append(delivery)
        if self._accept:
            delivery.accept()


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def closed_inbox() -> Inbox:
    """Accepts nothing."""
    return Inbox(accept=False)


def value(text: str) -> Octets:
    """A message whose body is one string."""
    octets = text.encode()
    return b"\x00\x53\x77\xb1" + len(octets).to_bytes(4, "big") + octets


TAKEN = OutcomeKind.ACCEPTED
