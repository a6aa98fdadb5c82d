"""TLS sessions are not resumed: every connection shows its certificates anew (503 cl. 8.4.1)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest

from gridpost.transports.amqp10.sasl import SASL_HEADER
from gridpost.transports.amqp10.tls import ServerContexts, server_context


def two_connections(
    context: ssl.SSLContext, port: int, *, first_stays_open: bool
) -> tuple[bool, bytes]:
    """Whether the second one resumed the first, and what the server said on it."""
    one = context.wrap_socket(socket.create_connection(("127.0.0.1", port)))
    one.sendall(SASL_HEADER)
    assert one.recv(8) == SASL_HEADER
    session = one.session
    if not first_stays_open:
        one.close()
    two = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), session=session)
    two.sendall(SASL_HEADER)
    answer = two.recv(8)
    reused = bool(two.session_reused)
    one.close()
    two.close()
    return reused, answer


@pytest.mark.parametrize("first_stays_open", [True, False])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_that_tries_to_resume_gets_a_full_handshake(
    setup: Any, version: ssl.TLSVersion, first_stays_open: bool
) -> None:
    context = setup.context("E1")
    context.maximum_version = context.minimum_version = version
    reused, answer = await asyncio.to_thread(
        two_connections, context, setup.port, first_stays_open=first_stays_open
    )
    assert not reused
    assert answer == SASL_HEADER


async def test_a_resumed_session_would_not_get_in(
    setup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a context ever resumed, there is no verified chain, and without one there is no connection."""
    shared = server_context(setup.authority.credentials("B1"))
    monkeypatch.setattr(ServerContexts, "for_hello", lambda self, hello: shared)
    context = setup.context("E1")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        _, answer = await asyncio.to_thread(
            two_connections, context, setup.port, first_stays_open=True
        )
    except ConnectionError:
        answer = b""
    assert answer == b""
    assert shared.session_stats()["hits"] == 1


async def test_clients_that_offer_tls_1_3_share_a_context(setup: Any) -> None:
    own = setup.authority.credentials("B1")
    contexts = ServerContexts(lambda: own)

    def hello(version: ssl.TLSVersion) -> bytes:
        context = setup.context()
        context.maximum_version = version
        outgoing = ssl.MemoryBIO()
        client = context.wrap_bio(ssl.MemoryBIO(), outgoing)
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        return outgoing.read()

    new, old = hello(ssl.TLSVersion.TLSv1_3), hello(ssl.TLSVersion.TLSv1_2)
    assert contexts.for_hello(new) is contexts.for_hello(new)
    assert contexts.for_hello(old) is not contexts.for_hello(old)
    for cut in range(len(new)):
        contexts.for_hello(new[:cut])
