"""Who gets a connection: TLS, SASL, protocol headers, the gatekeeper's word."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from typing import Any

import pytest

from gridpost.core.links import LinkRefused, Peer
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10 import AmqpLimits, AmqpServer, TlsCredentials
from gridpost.transports.amqp10.sasl import AMQP_HEADER, SASL_HEADER
from gridpost.wire.amqp.codec import decode, encode_composite
from gridpost.wire.amqp.types import Symbol
from support.memory_broker import MemoryBroker
from support.waiting import eventually


def sasl_frame(performative: bytes) -> bytes:
    return (8 + len(performative)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + performative


def sasl_init(mechanism: str, response: bytes | None) -> bytes:
    return sasl_frame(encode_composite(0x41, [Symbol(mechanism), response]))


async def read_frame(reader: asyncio.StreamReader) -> Any:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return decode((await reader.readexactly(size - 4))[4:])


async def test_the_gatekeeper_sees_the_verified_chain_up_to_the_root(setup: Any) -> None:
    connection = await setup.connect("E1")
    (peer,) = setup.broker.peers
    assert len(peer.chain) == 3
    assert peer.chain[1:] == (setup.authority.integrated.der, setup.authority.root.der)
    assert peer.address == "{}:{}".format(*connection.stream._transport.get_extra_info("sockname"))
    assert [view.identity for view in setup.server.connections()] == ["E1"]


async def test_a_client_without_certificate_is_refused(setup: Any) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=setup.authority.root.pem.decode())
    # With TLS 1.3 the client learns it only after its own side of the handshake.
    try:
        reader, writer = await setup.raw(context)
        said = await reader.read(100)
        writer.close()
    except OSError:
        said = b""
    assert said == b""
    assert setup.broker.peers == []


async def test_a_certificate_of_another_authority_is_refused(setup: Any) -> None:
    other = type(setup.authority)("other").credentials("E1")
    mixed = replace(other, roots_pem=setup.authority.root.pem)
    with pytest.raises(LinkRefused):
        await setup.connect("E1", tls=lambda: mixed)
    assert setup.broker.peers == []


@pytest.mark.parametrize("validity", [{"days": -0.5}, {"begin": 0.5}])
async def test_a_certificate_outside_its_validity_is_refused(
    setup: Any, validity: dict[str, float]
) -> None:
    own = setup.authority.credentials("E1", **validity)
    with pytest.raises(LinkRefused):
        await setup.connect("E1", tls=lambda: own)


async def test_a_leaf_without_its_integrated_ca_is_refused(setup: Any) -> None:
    own: TlsCredentials = setup.authority.credentials("E1")
    leaf = own.chain_pem.split(b"-----END CERTIFICATE-----")[0] + b"-----END CERTIFICATE-----\n"
    with pytest.raises(LinkRefused):
        await setup.connect("E1", tls=lambda: replace(own, chain_pem=leaf))


async def test_tls_below_1_2_is_refused(setup: Any) -> None:
    context = setup.context()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1 is deprecated"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match=r"TLSv1_1 is deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await setup.raw(context)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_1_2_and_1_3_are_served(setup: Any, version: ssl.TLSVersion) -> None:
    context = setup.context()
    context.maximum_version = context.minimum_version = version
    reader, writer = await setup.raw(context)
    writer.write(SASL_HEADER)
    assert await reader.readexactly(8) == SASL_HEADER
    writer.close()


async def test_only_external_is_offered(setup: Any) -> None:
    reader, writer = await setup.raw()
    writer.write(SASL_HEADER)
    assert await reader.readexactly(8) == SASL_HEADER
    mechanisms = await read_frame(reader)
    assert mechanisms.value[0].items == ("EXTERNAL",)
    writer.close()


async def test_the_authorization_identity_of_external_is_ignored(setup: Any) -> None:
    reader, writer = await setup.raw(setup.context("E1"))
    writer.write(SASL_HEADER + sasl_init("EXTERNAL", b"E2"))
    await reader.readexactly(8)
    await read_frame(reader)
    assert (await read_frame(reader)).value == [0]
    await eventually(lambda: [c.identity for c in setup.server._connections] == ["E1"])
    writer.close()


@pytest.mark.parametrize(
    ("mechanism", "response"), [("ANONYMOUS", None), ("PLAIN", b"\0E1\0secret"), ("X", b"")]
)
async def test_other_mechanisms_are_refused(
    setup: Any, mechanism: str, response: bytes | None
) -> None:
    reader, writer = await setup.raw()
    writer.write(SASL_HEADER + sasl_init(mechanism, response))
    await reader.readexactly(8)
    await read_frame(reader)
    assert (await read_frame(reader)).value == [1]
    assert await reader.read() == b""
    assert setup.broker.peers == []
    writer.close()


@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x01\x01\x00\x0a",
        b"AMQP\x03\x02\x00\x00",
        b"AMQP\x02\x01\x00\x00",
        AMQP_HEADER,
        b"GET / HTTP/1.1\r\n",
    ],
)
async def test_other_protocol_headers_are_answered_with_ours_and_closed(
    setup: Any, header: bytes
) -> None:
    reader, writer = await setup.raw()
    writer.write(header)
    assert await reader.read() == SASL_HEADER
    writer.close()


async def test_a_wrong_header_after_sasl_is_answered_with_ours_and_closed(setup: Any) -> None:
    reader, writer = await setup.raw()
    writer.write(SASL_HEADER + sasl_init("EXTERNAL", b"") + SASL_HEADER)
    await reader.readexactly(8)
    await read_frame(reader)
    await read_frame(reader)
    assert await reader.read() == AMQP_HEADER
    writer.close()


async def test_amqp_without_tls_is_refused(setup: Any) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
    writer.write(SASL_HEADER)
    try:
        said = await reader.read()  # at most a TLS alert
    except ConnectionError:
        said = b""
    assert b"AMQP" not in said
    writer.close()


async def test_a_peer_that_is_turned_away_learns_why(setup: Any) -> None:
    async def refuse(peer: Peer) -> None:
        raise Refusal(Rule.PEER_NOT_ALLOWED, "this broker does not admit E1")

    setup.broker.on_admit = refuse
    with pytest.raises(LinkRefused) as refused:
        await setup.client().connect()
    assert refused.value.condition == "amqp:unauthorized-access"
    described = "this broker does not admit E1 [PEER_NOT_ALLOWED "
    assert refused.value.description.startswith(described)
    assert setup.server.connections() == []


async def test_a_gatekeeper_that_fails_ends_only_that_connection(
    setup: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = await setup.connect("E1")

    async def fail(peer: Peer) -> None:
        raise RuntimeError("a bug")

    setup.broker.on_admit = fail
    with pytest.raises(LinkRefused):
        await setup.client("E2").connect()
    assert "a bug" in caplog.text
    setup.broker.on_admit = None
    await setup.connect("E3")
    assert not first.closed


async def test_a_client_decides_about_the_server_by_its_chain(setup: Any) -> None:
    seen: list[Peer] = []

    async def refuse(peer: Peer) -> None:
        seen.append(peer)
        raise Refusal(Rule.CERTIFICATE_NOT_OF_COMPONENT, "B7 was dialled, B1 answers")

    with pytest.raises(LinkRefused, match="unauthorized-access: B7 was dialled"):
        await setup.client(check=refuse).connect()
    assert len(seen[0].chain) == 3
    assert setup.broker.peers == []


async def test_a_server_of_another_authority_is_refused(setup: Any) -> None:
    foreign = type(setup.authority)("foreign").root.pem
    own = replace(setup.authority.credentials("E1"), roots_pem=foreign)
    with pytest.raises(LinkRefused):
        await setup.connect("E1", tls=lambda: own)


async def test_renewed_credentials_are_used_without_restart(
    authority: Any, clock: Any, setup: Any
) -> None:
    current = [authority.credentials("B2")]
    server = AmqpServer(container="B2", clock=clock)
    port = await server.listen("127.0.0.1", 0, MemoryBroker(), tls=lambda: current[0])
    seen: list[bytes] = []

    async def look(peer: Peer) -> None:
        seen.append(peer.chain[0])

    client = setup.client(check=look)
    client.urls = [f"amqps://127.0.0.1:{port}"]
    old = await client.connect()
    current[0] = authority.credentials("B2")
    new = await client.connect()
    assert seen[0] != seen[1]
    assert not old.closed
    for connection in (old, new):
        connection.close()
        await connection.lost
    await server.close()


class TestLimits:
    @pytest.fixture
    def limits(self) -> AmqpLimits:
        return AmqpLimits(
            close_seconds=0.2,
            max_connections=3,
            max_connections_per_identity=2,
        )

    async def test_a_component_has_a_limited_number_of_connections(self, setup: Any) -> None:
        await setup.connect("E1")
        await setup.connect("E1")
        with pytest.raises(LinkRefused, match="E1 has 2 connections already") as refused:
            await setup.client("E1").connect()
        assert refused.value.condition == "amqp:resource-limit-exceeded"
        await setup.connect("E2")

    async def test_connections_have_a_limit_in_total(self, setup: Any) -> None:
        for code in ("E1", "E2", "E3"):
            await setup.connect(code)
        with pytest.raises(LinkRefused):
            await setup.client("E4").connect()
        setup.opened[0].close()
        await setup.opened[0].lost
        await eventually(lambda: len(setup.server.connections()) == 2)
        await setup.connect("E4")

    @pytest.mark.parametrize("stage", ["tcp", "tls", "sasl", "amqp"])
    async def test_a_handshake_that_takes_too_long_is_cut(self, setup: Any, stage: str) -> None:
        setup.server.limits = AmqpLimits(handshake_seconds=2, close_seconds=0.2)
        began = asyncio.get_running_loop().time()
        if stage == "tcp":
            reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
        else:
            reader, writer = await setup.raw()
        if stage in ("sasl", "amqp"):
            writer.write(SASL_HEADER)
        if stage == "amqp":
            writer.write(sasl_init("EXTERNAL", b"") + AMQP_HEADER)
        try:
            while await reader.read(1000):
                pass
        except ConnectionError:
            pass
        # Not before: a slow machine only adds to it.
        assert asyncio.get_running_loop().time() - began > 1.5
        writer.close()
        await eventually(lambda: not setup.server._connections)


async def test_without_tls_only_password_users_on_this_machine_are_served(clock: Any) -> None:
    server = AmqpServer(container="E1", clock=clock)

    async def anybody(user: str, password: str) -> bool:
        return True

    with pytest.raises(ValueError, match="without TLS"):
        await server.listen("127.0.0.1", 0, MemoryBroker(), tls=None)
    with pytest.raises(ValueError, match="without TLS"):
        await server.listen("0.0.0.0", 0, MemoryBroker(), tls=None, password=anybody)
    await server.close()
