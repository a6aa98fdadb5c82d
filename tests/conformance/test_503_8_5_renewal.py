"""503 cl. 8.5: several certificates and several roots are valid at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gridpost.core.certificate import CertificateKind, select
from gridpost.core.delivery import Status
from gridpost.core.instant import Instant
from gridpost.core.links import LinkRefused
from gridpost.core.message import ENCRYPTION, SIGNATURE
from gridpost.services.endpoint.submission import Document
from gridpost.wire.seal import (
    seal_message,
    sign,
)
from gridpost.wire.x509 import (
    Validity,
)
from support.amqp_world import AmqpWorld, Trust, authentication
from support.messages import message
from support.pki import NOW, YEAR, shared_pki
from support.post import START, authority
from support.sealing import e1, entry, opened
from support.shown_certificates import DAY, DIRECT, attached, publish, shown, two_endpoints


@pytest.mark.req("503-8.5-e")
async def test_of_two_signing_certificates_the_one_that_expires_first_signs() -> None:
    first = shared_pki().component("E1", validity=Validity(NOW - YEAR, NOW + DAY))
    second = shared_pki().component("E1", key_name="E1 renewed")
    ring = [second.signer, first.signer]
    for moment, expected in ((NOW, first), (NOW + 2 * DAY, second)):
        chosen = select([s.certificate for s in ring], CertificateKind.SIGNING, moment)
        signer = next(s for s in ring if s.certificate == chosen)
        signed = await sign(message(generated=Instant.of(moment)), signer)
        assert entry(signed, SIGNATURE, "Certificate ID") == expected.signing.certificate_id


@pytest.fixture
async def world() -> AsyncIterator[AmqpWorld]:
    async with two_endpoints() as made:
        yield made


@pytest.mark.req("503-8.5-f")
async def test_of_two_encryption_certificates_the_one_that_expires_first_encrypts() -> None:
    pki = shared_pki()
    ended = pki.component("E2", validity=Validity(NOW - YEAR, NOW - DAY), key_name="E2 old")
    first = pki.component("E2", validity=Validity(NOW - YEAR, NOW + DAY))
    second = pki.component("E2", key_name="E2 renewed")
    published = [*second.certificates, *ended.certificates, *first.certificates]
    chosen = select(published, CertificateKind.ENCRYPTION, NOW)
    assert chosen is not None
    transfer = await seal_message(message(), e1().signer, chosen)
    assert entry(transfer, ENCRYPTION, "Certificate ID") == first.encryption.certificate_id
    assert await opened(transfer, openers=[second.opener, ended.opener, first.opener])


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
