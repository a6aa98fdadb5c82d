"""The local listener for applications: SASL PLAIN on this machine (issue 5, AMQP channel)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from gridpost.core.links import LinkRefused
from gridpost.transports.amqp10 import AmqpClient, AmqpLimits, AmqpServer, Credentials
from gridpost.transports.amqp10.sasl import SASL_HEADER
from support.amqp_frames import RawPeer, sasl_init
from support.memory_broker import MemoryBroker


async def check(user: str, password: str) -> bool:
    await asyncio.sleep(0)  # a password hash takes its time elsewhere
    return (user, password) == ("scheduling", "s3cret")


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
async def port(broker: MemoryBroker, clock: Any) -> AsyncIterator[int]:
    limits = AmqpLimits(close_seconds=0.5)
    server = AmqpServer(container="E1", clock=clock, limits=limits)
    yield await server.listen("127.0.0.1", 0, broker, tls=None, password=check)
    await server.close()


def client(port: int, user: str, password: str) -> AmqpClient:
    return AmqpClient(
        [f"amqp://127.0.0.1:{port}"],
        container="application",
        tls=None,
        credentials=Credentials(user, password),
    )


async def test_a_user_with_the_right_password_gets_in(port: int, broker: MemoryBroker) -> None:
    connection = await client(port, "scheduling", "s3cret").connect()
    assert broker.peers[0].user == "scheduling"
    assert broker.peers[0].chain == ()
    producer = await connection.attach_producer("ecp.endpoint.outbox")
    assert (await producer.send(b"x" * 300_000)).taken
    connection.close()
    await connection.lost


@pytest.mark.parametrize(("user", "password"), [("scheduling", "wrong"), ("nobody", "s3cret")])
async def test_a_wrong_password_is_refused(
    port: int, broker: MemoryBroker, user: str, password: str
) -> None:
    with pytest.raises(LinkRefused, match="amqp:unauthorized-access"):
        await client(port, user, password).connect()
    assert broker.peers == []


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("EXTERNAL", b"scheduling"),
        ("ANONYMOUS", None),
        ("PLAIN", None),
        ("PLAIN", b"scheduling\0s3cret"),
        ("PLAIN", b"\0\xff\0s3cret"),
    ],
)
async def test_anything_else_is_refused(
    port: int, broker: MemoryBroker, mechanism: str, response: bytes | None
) -> None:
    peer = RawPeer(*await asyncio.open_connection("127.0.0.1", port))
    await peer.say(SASL_HEADER + sasl_init(mechanism, response))
    assert await peer.reader.readexactly(8) == SASL_HEADER
    assert (await peer.read())[1][0].items == ("PLAIN",)
    assert (await peer.read())[1] == [1]
    await peer.ended()
    assert broker.peers == []
    await peer.close()


async def test_a_password_may_also_be_used_over_tls(
    authority: Any, broker: MemoryBroker, clock: Any
) -> None:
    own = replace(authority.credentials("E1"), ask_client=False)
    server = AmqpServer(container="E1", clock=clock, limits=AmqpLimits(close_seconds=0.5))
    port = await server.listen("127.0.0.1", 0, broker, tls=lambda: own, password=check)
    credentials = Credentials("scheduling", "s3cret")
    connection = await AmqpClient(
        [f"amqps://127.0.0.1:{port}"],
        container="application",
        tls=lambda: authority.credentials("anybody"),
        credentials=credentials,
    ).connect()
    assert broker.peers[0].user == "scheduling"
    connection.close()
    await connection.lost
    await server.close()
    assert "s3cret" not in repr(credentials)
