"""503 cl. 8.3.2, 8.4.1 and 8.5 on the AMQPS connections of endpoints: whose certificate opens them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.delivery import Status
from gridpost.core.links import LinkRefused, Peer
from gridpost.services.endpoint.submission import Document
from gridpost.stores.keys.memory import MemoryKeyring
from gridpost.transports.amqp10 import AmqpClient, TlsCredentials
from gridpost.wire.x509 import public_key, public_key_bytes, to_pem
from support.amqp_world import LIMITS, AmqpWorld, LiveEndpoint, Trust, authentication
from support.builders import directory, path
from support.post import START, Authority, authority

DAY = timedelta(days=1)
DIRECT = path("*", "DIRECT", start=datetime.now(UTC) - DAY)
ALWAYS = (START - DAY, START + 300 * DAY)


def shown(
    code: str,
    span: tuple[datetime, datetime] = ALWAYS,
    by: Authority | None = None,
    *,
    whole: bool = True,
    trusting: bytes = b"",
) -> tuple[Certificate, TlsCredentials]:
    """A certificate for a code, and what a client that shows it has."""
    made = by or authority()
    ring = MemoryKeyring()
    certificate = made.certify(ring, CertificateKind.AUTHENTICATION, code, *span)
    key = base64.encodebytes(ring.export_key(public_key_bytes(public_key(certificate.der))))
    chain = (certificate.der, made.ca) if whole else (certificate.der,)
    return certificate, TlsCredentials(
        chain_pem=to_pem(*chain),
        key_pem=b"-----BEGIN PRIVATE KEY-----\n" + key + b"-----END PRIVATE KEY-----\n",
        roots_pem=to_pem(authority().root) + trusting,
    )


@pytest.fixture
async def world() -> AsyncIterator[AmqpWorld]:
    async with AmqpWorld() as made:
        await made.endpoint("E1", DIRECT, direct=True)
        await made.endpoint("E2", DIRECT, direct=True)
        yield made


def publish(world: AmqpWorld, *certificates: Certificate) -> None:
    """These are the AUTHENTICATION certificates of E2, beside what it has otherwise."""
    known = [c for s in world.directory.subsystems.values() for c in s.components]
    world.directory = directory(
        *(
            replace(c, certificates=(*c.certificates, *certificates)) if c.code == "E2" else c
            for c in known
        )
    )


async def attached(server: LiveEndpoint, own: TlsCredentials) -> Peer:
    """A producer on the endpoint, or LinkRefused; what the client saw of the server."""
    seen: list[Peer] = []

    async def look(peer: Peer) -> None:
        seen.append(peer)

    url = f"amqps://127.0.0.1:{server.port}"
    client = AmqpClient([url], container="E2", tls=lambda: own, check=look, limits=LIMITS)
    connection = await client.connect()
    try:
        await connection.attach_producer(server.code)
    finally:
        connection.close()
        await connection.lost
    return seen[0]


@pytest.mark.req("503-8.4.1-a", "503-8.4.1-b", "503-8.3.2-e", component="endpoint")
async def test_an_endpoint_lets_in_only_what_verifies_up_to_the_root(world: AmqpWorld) -> None:
    elsewhere = Authority()
    wrong = {
        "another root": shown("E2", by=elsewhere),
        "expired": shown("E2", (START - 9 * DAY, START - DAY)),
        "not valid yet": shown("E2", (START + DAY, START + 9 * DAY)),
    }
    for certificate, _ in wrong.values():
        publish(world, certificate)
    for what, (_, own) in wrong.items():
        with pytest.raises(LinkRefused):
            await attached(world["E1"], own)
            pytest.fail(what)
    await attached(world["E1"], authentication("E2")[1])


async def test_each_side_shows_its_certificate_and_the_authority_above_it(
    world: AmqpWorld,
) -> None:
    certificate, own = shown("E2")
    publish(world, certificate)
    server = await attached(world["E1"], own)
    # The certificate with which E1 connects as a client, too.
    assert server.chain[:2] == (authentication("E1")[0].der, authority().ca)
    alone, leaf_only = shown("E2", whole=False)
    publish(world, alone)
    with pytest.raises(LinkRefused):
        await attached(world["E1"], leaf_only)


@pytest.mark.req("503-8.5-g", component="endpoint")
async def test_the_old_and_the_new_certificate_are_both_accepted(world: AmqpWorld) -> None:
    old, new = shown("E2", (START - 90 * DAY, START + 10 * DAY)), shown("E2")
    publish(world, old[0], new[0])
    for _, own in (old, new):
        await attached(world["E1"], own)


@pytest.mark.req("503-8.5-h", component="endpoint")
async def test_endpoints_under_two_roots_exchange_both_ways_when_both_are_trusted() -> None:
    both = ("", "new root")
    async with AmqpWorld() as world:
        old = await world.endpoint("E1", DIRECT, direct=True, trust=Trust("", both))
        new = await world.endpoint("E2", DIRECT, direct=True, trust=Trust("new root", both))
        unaware = await world.endpoint("E3", DIRECT, direct=True)
        for one, other in ((old, new), (new, old)):
            message_id = await one.submission.send("app", Document(other.code, "A01", b"across"))
            async with asyncio.timeout(60):
                while (received := await other.handover.receive("A01")).entry is None:
                    await asyncio.sleep(0.01)
                assert received.content == b"across"
                await other.handover.confirm(message_id)
                while await one.enquiry.status(message_id) is not Status.RECEIVED:
                    await asyncio.sleep(0.01)
            shown_by_server = (await attached(one, other.trust.authentication(other.code)[1])).chain
            assert shown_by_server[1] == authority(one.trust.root).ca
        # Who trusts the old root alone lets in what is under it and nothing else.
        await attached(unaware, authentication("E1")[1])
        with pytest.raises(LinkRefused):
            await attached(unaware, new.trust.authentication("E2")[1])
