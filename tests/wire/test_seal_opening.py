"""Sealing and opening: what goes through, and what the open metadata must say."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.certificate import CertificateKind
from gridpost.core.message import (
    ENCRYPTION,
    SIGNATURE,
    Entry,
    InternalMessage,
    InternalType,
    Processor,
    ValueType,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.seal import (
    DEFAULT,
    Profile,
    Suite,
    encrypt,
    fingerprint,
    public_reason,
    seal_message,
    sign,
)
from gridpost.wire.seal.registry import (
    OAEP_SHA256,
    OAEP_SHA256_MGF1_SHA1,
    PKCS1_V1_5,
)
from gridpost.wire.seal.signing import LARGE_BODY
from gridpost.wire.x509 import Validity
from support.effort import no_more_work_than_hashing
from support.messages import CONTENT, message
from support.pki import NOW, YEAR, shared_pki
from support.sealing import (
    OLD,
    e1,
    e2,
    opened,
    refused,
    sealed,
    with_entry,
    with_metadata,
)


async def test_what_was_sealed_is_opened() -> None:
    original = message()
    arrived = await opened(await sealed())
    assert arrived.message.content == CONTENT
    assert arrived.message.metadata.with_processors(()) == original.metadata
    assert [p.processor_id for p in arrived.message.metadata.processors] == [SIGNATURE]
    assert arrived.fingerprint == fingerprint(original.metadata, CONTENT)
    assert arrived.signing_certificate == e1().signing
    assert arrived.encryption_certificate == e2().encryption
    assert arrived.attributes_bound


@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 65, os.urandom(LARGE_BODY + 7)])
@pytest.mark.parametrize("profile", [DEFAULT, OLD], ids=["GCM", "CBC"])
async def test_any_content_survives(content: bytes, profile: Profile) -> None:
    arrived = await opened(await sealed(profile, content=content), profile=profile)
    assert arrived.message.content == content
    assert arrived.attributes_bound is (profile is DEFAULT)


@pytest.mark.parametrize("padding", [OAEP_SHA256, OAEP_SHA256_MGF1_SHA1, PKCS1_V1_5])
async def test_every_padding_opens(padding: str) -> None:
    profile = Profile(paddings=frozenset({OAEP_SHA256, padding}), send=Suite(padding=padding))
    assert (await opened(await sealed(profile), profile=profile)).message.content == CONTENT


async def test_a_message_without_the_extra_entries_is_read_by_the_profile_of_its_sender() -> None:
    plain = await sealed(OLD)
    assert {e.key for p in plain.metadata.processors_named(ENCRYPTION) for e in p.entries} == {
        "Cipher",
        "Certificate ID",
        "Session key",
    }
    assert (await opened(plain, profile=OLD)).message.content == CONTENT
    await refused(plain, Rule.SEAL_SESSION_KEY)
    half = with_entry(await sealed(), ENCRYPTION, "Padding", None)
    assert (await opened(half)).message.content == CONTENT


async def test_the_metadata_cannot_enable_what_the_profile_does_not() -> None:
    weak = replace(OLD, send=replace(OLD.send, announce=True))
    reason = await refused(await sealed(weak), Rule.SEAL_PROFILE_NOT_ALLOWED)
    assert "CBC" in reason.message
    gcm = replace(OLD, send=Suite(padding=PKCS1_V1_5))
    reason = await refused(await sealed(gcm), Rule.SEAL_PROFILE_NOT_ALLOWED)
    assert PKCS1_V1_5 in reason.message


async def test_signing_and_encrypting_can_be_done_at_different_times() -> None:
    signed = await sign(message(), e1().signer)
    first, second = encrypt(signed, e2().encryption), encrypt(signed, e2().encryption)
    assert first.body != second.body
    for transfer in (first, second):
        assert (await opened(transfer)).message == signed


async def test_nothing_is_signed_or_encrypted_twice() -> None:
    signed = await sign(message(), e1().signer)
    once = encrypt(signed, e2().encryption)
    for again in (
        lambda: sign(signed, e1().signer),
        lambda: asyncio.to_thread(
            encrypt, InternalMessage(once.metadata, once.body), e2().encryption
        ),
    ):
        with pytest.raises(Refusal) as caught:
            await again()
        assert caught.value.rule is Rule.SEAL_PROCESSOR_REPEATED


@pytest.mark.parametrize(
    ("kind", "signer", "encrypts", "rule"),
    [
        (InternalType.STANDARD_MESSAGE, False, True, Rule.NO_SIGNING_CERTIFICATE),
        (InternalType.STANDARD_MESSAGE, True, False, Rule.NO_ENCRYPTION_CERTIFICATE),
        (InternalType.TRACING_MESSAGE, True, False, Rule.NO_ENCRYPTION_CERTIFICATE),
        (InternalType.DELIVERY_ACKNOWLEDGEMENT, False, False, Rule.NO_SIGNING_CERTIFICATE),
        (InternalType.DELIVERY_ACKNOWLEDGEMENT, True, True, Rule.SEAL_PROCESSOR_NOT_ALLOWED),
        (InternalType.FAILURE_ACKNOWLEDGEMENT, False, True, Rule.SEAL_PROCESSOR_NOT_ALLOWED),
    ],
)
async def test_no_kind_is_sent_with_less_or_more_protection_than_it_has(
    kind: InternalType, signer: bool, encrypts: bool, rule: Rule
) -> None:
    with pytest.raises(Refusal) as caught:
        await seal_message(
            message(internal_type=kind),
            e1().signer if signer else None,
            e2().encryption if encrypts else None,
        )
    assert caught.value.rule is rule


async def test_certificates_of_the_wrong_kind_or_time_are_not_used_to_seal() -> None:
    from gridpost.stores.keys.rsa_operations import KeySigner

    wrong_kind = KeySigner(e1().keys[CertificateKind.AUTHENTICATION], e1().authentication)
    with pytest.raises(Refusal) as caught:
        await sign(message(), wrong_kind)
    assert caught.value.rule is Rule.NO_SIGNING_CERTIFICATE
    signed = await sign(message(), e1().signer)
    for certificate, at in ((e2().signing, None), (e2().encryption, NOW + 2 * YEAR)):
        with pytest.raises(Refusal) as caught:
            encrypt(signed, certificate, at=at)
        assert caught.value.rule is Rule.NO_ENCRYPTION_CERTIFICATE


async def test_a_message_may_be_encrypted_with_a_certificate_younger_than_itself() -> None:
    """It waited for its transfer while the recipient renewed its certificates."""
    young = shared_pki().component(
        "E2", validity=Validity(NOW + timedelta(days=1), NOW + YEAR), key_name="E2 renewed"
    )
    transfer = await seal_message(
        message(), e1().signer, young.encryption, at=NOW + timedelta(days=2)
    )
    assert (await opened(transfer, openers=[e2().opener, young.opener])).message.content == CONTENT


async def test_missing_processors_are_refused() -> None:
    good = await sealed()
    for name, rule in (
        (SIGNATURE, Rule.SEAL_SIGNATURE_MISSING),
        (ENCRYPTION, Rule.SEAL_ENCRYPTION_MISSING),
    ):
        rest = [p for p in good.metadata.processors if p.processor_id != name]
        await refused(replace(good, metadata=good.metadata.with_processors(rest)), rule)


async def test_doubled_and_unknown_processors_are_refused() -> None:
    good = await sealed()
    for processor in good.metadata.processors:
        twice = good.metadata.with_processors((*good.metadata.processors, processor))
        await refused(replace(good, metadata=twice), Rule.SEAL_PROCESSOR_REPEATED)
    other = good.metadata.with_processors((*good.metadata.processors, Processor("zip")))
    await refused(replace(good, metadata=other), Rule.SEAL_PROCESSOR_UNKNOWN)


@pytest.mark.parametrize(
    ("processor", "key"),
    [
        (SIGNATURE, "Algorithm"),
        (SIGNATURE, "Certificate ID"),
        (SIGNATURE, "Signature"),
        (ENCRYPTION, "Cipher"),
        (ENCRYPTION, "Certificate ID"),
        (ENCRYPTION, "Session key"),
    ],
)
async def test_each_entry_must_be_there_once_with_its_type(processor: str, key: str) -> None:
    good = await sealed()
    await refused(with_entry(good, processor, key, None), Rule.SEAL_ENTRY_MISSING)
    for change in (
        lambda e: (e, e),
        lambda e: (replace(e, type=ValueType.LONG),),
        lambda e: (replace(e, key=e.key.upper()),),
    ):
        processors = [
            Processor(
                p.processor_id,
                tuple(
                    new
                    for e in p.entries
                    for new in (change(e) if (p.processor_id, e.key) == (processor, key) else (e,))
                ),
            )
            for p in good.metadata.processors
        ]
        bad = replace(good, metadata=good.metadata.with_processors(processors))
        await refused(bad, Rule.SEAL_ENTRY_MISSING)


async def test_entries_that_nobody_knows_are_ignored_and_kept() -> None:
    good = await sealed()
    extra = Entry("Vendor", ValueType.STRING, "x")
    processors = [Processor(p.processor_id, (*p.entries, extra)) for p in good.metadata.processors]
    arrived = await opened(replace(good, metadata=good.metadata.with_processors(processors)))
    assert arrived.message.metadata.processors[0].entries[-1] == extra


@pytest.mark.parametrize(
    ("processor", "key"),
    [
        (SIGNATURE, "Algorithm"),
        (ENCRYPTION, "Cipher"),
        (ENCRYPTION, "Mode"),
        (ENCRYPTION, "Padding"),
    ],
)
async def test_unknown_algorithms_are_refused_by_their_name(processor: str, key: str) -> None:
    reason = await refused(
        with_entry(await sealed(), processor, key, "ROT-13"), Rule.SEAL_ALGORITHM_UNKNOWN
    )
    assert "ROT-13" in reason.message
    assert public_reason(reason).text == reason.message


async def test_endless_entries_are_refused_quickly() -> None:
    huge = "A" * 100_000_000
    good = await sealed()
    for processor, key in (
        (SIGNATURE, "Algorithm"),
        (SIGNATURE, "Certificate ID"),
        (SIGNATURE, "Signature"),
        (ENCRYPTION, "Cipher"),
        (ENCRYPTION, "Certificate ID"),
        (ENCRYPTION, "Session key"),
        (ENCRYPTION, "Mode"),
    ):
        with no_more_work_than_hashing(50_000_000), pytest.raises(Refusal) as caught:
            await opened(with_entry(good, processor, key, huge))
        assert len(caught.value.message) < 500
    with no_more_work_than_hashing(50_000_000):
        await refused(with_metadata(good, sender_application=huge), Rule.LIMIT_EXCEEDED)
