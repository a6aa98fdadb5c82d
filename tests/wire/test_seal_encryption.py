"""Which step of 503 cl. 6.5.3 refuses what."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.instant import Instant
from gridpost.core.message import (
    ENCRYPTION,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.seal import (
    DEFAULT,
    Profile,
    public_reason,
    seal_message,
)
from gridpost.wire.seal.opening import CONCEALED
from gridpost.wire.seal.registry import (
    OAEP_SHA256,
    STANDARD,
)
from gridpost.wire.x509 import Validity, public_key
from support.messages import CONTENT, message
from support.pki import NOW, YEAR, shared_pki
from support.sealing import (
    OLD,
    e1,
    e2,
    e3,
    opened,
    refused,
    sealed,
    with_entry,
)


async def test_a_message_for_another_endpoint_is_refused() -> None:
    reason = await refused(await sealed(), Rule.SEAL_NOT_OUR_CERTIFICATE, openers=[e3().opener])
    assert public_reason(reason).text == reason.message
    await refused(await sealed(), Rule.SEAL_NOT_OUR_CERTIFICATE, openers=[])


async def test_an_older_own_certificate_still_opens() -> None:
    old = shared_pki().component("E2", key_name="E2 renewed")
    transfer = await seal_message(message(), e1().signer, old.encryption)
    assert await opened(transfer, openers=[e2().opener, old.opener])


async def test_an_encryption_certificate_that_had_expired_at_generation_is_refused() -> None:
    ended = shared_pki().component("E2", validity=Validity(NOW - YEAR, NOW - timedelta(days=1)))
    transfer = await seal_message(
        message(), e1().signer, ended.encryption, at=NOW - timedelta(days=2)
    )
    await refused(transfer, Rule.SEAL_ENCRYPTION_CERTIFICATE_EXPIRED, openers=[ended.opener])


async def test_a_certificate_that_expired_since_generation_still_opens_and_verifies() -> None:
    moment = NOW - timedelta(days=2)
    validity = Validity(NOW - YEAR, NOW - timedelta(days=1))
    sender = shared_pki().component("E1", validity=validity)
    recipient = shared_pki().component("E2", validity=validity)
    transfer = await seal_message(
        message(generated=Instant.of(moment)), sender.signer, recipient.encryption
    )
    arrived = await opened(transfer, openers=[recipient.opener], certificates=sender.certificates)
    assert arrived.message.content == CONTENT


@pytest.mark.parametrize("text", ["", "no base64!", "\u00e9", "AAAA", "A" * 5000])
async def test_a_session_key_that_is_none_is_refused(text: str) -> None:
    await refused(
        with_entry(await sealed(), ENCRYPTION, "Session key", text), Rule.SEAL_SESSION_KEY
    )


@pytest.mark.parametrize("profile", [DEFAULT, OLD], ids=["OAEP", "PKCS1"])
async def test_a_session_key_for_another_certificate_is_refused(profile: Profile) -> None:
    other = await seal_message(message(), e1().signer, e3().encryption, profile)
    mine = with_entry(other, ENCRYPTION, "Certificate ID", e2().encryption.certificate_id)
    with pytest.raises(Refusal) as caught:
        await opened(mine, profile=profile)
    # PKCS#1 v1.5 rejects implicitly: what comes out is random, and fails later.
    expected = {Rule.SEAL_SESSION_KEY} if profile is DEFAULT else CONCEALED
    assert caught.value.rule in expected


async def test_a_session_key_of_another_length_is_refused() -> None:
    wrapped = public_key(e2().encryption.der).encrypt(b"x" * 16, STANDARD.padding(OAEP_SHA256).rsa)
    text = base64.b64encode(wrapped).decode()
    await refused(
        with_entry(await sealed(), ENCRYPTION, "Session key", text), Rule.SEAL_SESSION_KEY
    )


@pytest.mark.parametrize("profile", [DEFAULT, OLD], ids=["GCM", "CBC"])
async def test_a_truncated_body_is_refused(profile: Profile) -> None:
    good = await sealed(profile)
    for length in (0, 1, 15, 16, 27, 28, 31, len(good.body) - 1):
        with pytest.raises(Refusal) as caught:
            await opened(replace(good, body=good.body[:length]), profile=profile)
        assert caught.value.rule is Rule.SEAL_CONTENT


async def test_every_byte_of_the_body_is_protected() -> None:
    good = await sealed()
    for at in range(len(good.body)):
        flipped = bytearray(good.body)
        flipped[at] ^= 1
        await refused(replace(good, body=bytes(flipped)), Rule.SEAL_CONTENT)


async def test_without_authenticated_encryption_the_signature_protects_the_body() -> None:
    good = await sealed(OLD, content=b"x" * 100)
    for at in range(0, len(good.body), 7):
        flipped = bytearray(good.body)
        flipped[at] ^= 1
        with pytest.raises(Refusal) as caught:
            await opened(replace(good, body=bytes(flipped)), profile=OLD)
        assert caught.value.rule in (
            Rule.SEAL_CONTENT,
            Rule.SEAL_FINGERPRINT,
        )
