"""Certificates that a peer shows to an endpoint, and whether it is let in with them."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.links import Peer
from gridpost.stores.keys.memory import MemoryKeyring
from gridpost.transports.amqp10 import AmqpClient, TlsCredentials
from gridpost.wire.x509 import public_key, public_key_bytes, to_pem
from support.amqp_world import LIMITS, AmqpWorld, LiveEndpoint
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


@asynccontextmanager
async def two_endpoints() -> AsyncIterator[AmqpWorld]:
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
