"""What every key store does, wherever its keys are."""

from __future__ import annotations

import asyncio
import os

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from gridpost.core.certificate import CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.seal import STANDARD, Profile, Suite, open_sealed, seal_message
from gridpost.wire.x509 import public_key
from support.keyrings import Subject
from support.messages import CONTENT, message
from support.pki import shared_endpoint


async def test_there_is_one_signer_and_one_opener_for_each_certificate(subject: Subject) -> None:
    signers, openers = subject.keyring.signers(), subject.keyring.openers()
    assert len(signers) == len(openers) == 2
    assert shared_endpoint("E1").signing in [s.certificate for s in signers]
    assert shared_endpoint("E1").encryption in [o.certificate for o in openers]
    assert all(s.certificate.kind is CertificateKind.SIGNING for s in signers)
    assert all(o.certificate.kind is CertificateKind.ENCRYPTION for o in openers)


async def test_a_signature_verifies_with_the_signers_certificate_only(subject: Subject) -> None:
    first, second = subject.keyring.signers()
    for data in (b"", b"data", os.urandom(5000)):
        value = await first.sign(data)
        assert value == await first.sign(data, "SHA-512")
        public_key(first.certificate.der).verify(value, data, PKCS1v15(), hashes.SHA512())
        with pytest.raises(InvalidSignature):
            public_key(second.certificate.der).verify(value, data, PKCS1v15(), hashes.SHA512())


async def test_a_session_key_opens_with_its_own_certificate_only(subject: Subject) -> None:
    first, second = subject.keyring.openers()
    key = os.urandom(32)
    for padding in subject.paddings:
        wrapped = public_key(first.certificate.der).encrypt(key, STANDARD.padding(padding).rsa)
        assert await first.open(wrapped, padding) == key
        assert await second.open(wrapped, padding) != key


@pytest.mark.parametrize(
    "wrapped", [b"", b"x", bytes(256), b"\xff" * 256, os.urandom(256), bytes(999)]
)
async def test_what_is_no_session_key_does_not_raise(subject: Subject, wrapped: bytes) -> None:
    (opener, _) = subject.keyring.openers()
    for padding in subject.paddings:
        opened = await opener.open(wrapped, padding)
        # PKCS#1 v1.5 may be rejected implicitly, with bytes that nobody chose.
        assert opened is None or isinstance(opened, bytes)


async def test_unknown_algorithms_are_refused(subject: Subject) -> None:
    for use in (
        subject.keyring.signers()[0].sign(b"", "MD5"),
        subject.keyring.openers()[0].open(b"", "none"),
    ):
        with pytest.raises(Refusal) as caught:
            await use
        assert caught.value.rule is Rule.SEAL_ALGORITHM_UNKNOWN


async def test_many_operations_run_at_a_time(subject: Subject) -> None:
    signer = subject.keyring.signers()[0]
    values = await asyncio.gather(*(signer.sign(bytes([n])) for n in range(40)))
    for number, value in enumerate(values):
        public_key(signer.certificate.der).verify(
            value, bytes([number]), PKCS1v15(), hashes.SHA512()
        )


async def test_a_message_is_sealed_and_opened_with_it(subject: Subject) -> None:
    padding = subject.paddings[0]
    profile = Profile(
        paddings=frozenset({padding}), default_padding=padding, send=Suite(padding=padding)
    )
    signer, opener = subject.keyring.signers()[0], subject.keyring.openers()[0]
    sealed = await seal_message(message(), signer, opener.certificate, profile)
    arrived = await open_sealed(sealed, subject.keyring.openers(), [signer.certificate], profile)
    assert arrived.message.content == CONTENT
