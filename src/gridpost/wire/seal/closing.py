"""Sealing what is to be sent: sign first, encrypt afterwards (503 cl. 4.5.1).

An endpoint signs once, when it accepts a message, and encrypts at each transfer, so that what it
keeps can be proven without a key and what it sends fits the certificate of that moment.
"""

from __future__ import annotations

import asyncio
import os
from datetime import datetime

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.identifiers import clip
from gridpost.core.message import ENCRYPTION, SIGNATURE, InternalMessage, SealedMessage
from gridpost.core.ports import Signer
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.seal.manifest import associated_data
from gridpost.wire.seal.processors import (
    EncryptionData,
    encryption_processor,
    must_not_be_encrypted,
)
from gridpost.wire.seal.profile import DEFAULT, Profile
from gridpost.wire.seal.registry import STANDARD, Registry
from gridpost.wire.seal.signing import LARGE_BODY, sign
from gridpost.wire.x509 import public_key


async def seal_message(
    message: InternalMessage,
    signer: Signer | None,
    recipient_certificate: Certificate | None,
    profile: Profile = DEFAULT,
    registry: Registry = STANDARD,
    *,
    at: datetime | None = None,
) -> SealedMessage:
    """Sign when there is a signer, encrypt when there is a certificate; refuse what is too little.

    `at` is the moment of the transfer, by default that of the message.
    """
    if signer is not None:
        message = await sign(message, signer, profile, registry)
    if recipient_certificate is None:
        return unencrypted(message)
    if len(message.content) < LARGE_BODY:
        return encrypt(message, recipient_certificate, profile, registry, at=at)
    return await asyncio.to_thread(
        encrypt, message, recipient_certificate, profile, registry, at=at
    )


def unencrypted(message: InternalMessage) -> SealedMessage:
    """An acknowledgement, signed or not. No setting sends a document in the clear."""
    _check_signed(message)
    if message.metadata.internal_type.may_be_encrypted:
        raise Refusal(
            Rule.NO_ENCRYPTION_CERTIFICATE,
            f"a {message.metadata.internal_type} is sent encrypted only",
        )
    return SealedMessage(message.metadata, message.content)


def encrypt(
    signed: InternalMessage,
    recipient_certificate: Certificate,
    profile: Profile = DEFAULT,
    registry: Registry = STANDARD,
    *,
    at: datetime | None = None,
) -> SealedMessage:
    """503 cl. 6.5.3: a new random key for each transfer, wrapped for the recipient."""
    metadata = signed.metadata
    _check_signed(signed)
    if not metadata.internal_type.may_be_encrypted:
        raise must_not_be_encrypted(metadata.internal_type)
    if metadata.processors_named(ENCRYPTION):
        raise Refusal(Rule.SEAL_PROCESSOR_REPEATED, "the message is encrypted already")
    _check_may_encrypt(recipient_certificate, at or metadata.generated.at)
    send = profile.send
    cipher = registry.cipher(send.cipher, send.mode)
    padding = registry.padding(send.padding)
    key = os.urandom(cipher.key_size)
    body = cipher.encrypt(key, signed.content, associated_data(metadata))
    wrapped = public_key(recipient_certificate.der).encrypt(key, padding.rsa)
    processor = encryption_processor(
        EncryptionData(cipher, padding, recipient_certificate.certificate_id, wrapped),
        announce=send.announce,
    )
    return SealedMessage(metadata.with_processors((*metadata.processors, processor)), body)


def _check_signed(message: InternalMessage) -> None:
    kind = message.metadata.internal_type
    if kind.must_be_signed and not message.metadata.processors_named(SIGNATURE):
        raise Refusal(Rule.NO_SIGNING_CERTIFICATE, f"a {kind} is sent signed only")


def _check_may_encrypt(certificate: Certificate, at: datetime) -> None:
    """503 cl. 8.3.3: never with an expired certificate."""
    if certificate.kind is not CertificateKind.ENCRYPTION or not certificate.valid_at(at):
        raise Refusal(
            Rule.NO_ENCRYPTION_CERTIFICATE,
            f"the certificate {clip(certificate.certificate_id)} cannot encrypt at "
            f"{at:%Y-%m-%d %H:%M:%S} UTC",
        )
