"""Opening what arrived: all numbered steps of 503 cl. 6.5.3 and 6.5.4, in their order.

What can be refused from the open metadata alone is refused first, with its own reason. From the
session key on, a peer must not learn which step failed, neither from the answer nor from the time
it took: a peer that can tell a bad padding from a bad signature can decrypt other people's
messages. So every step is taken, on substitutes where something is missing, and the first failure
is raised at the end. It names its step for our own log; `public_reason` is all that the peer sees.

What remains visible is the length of the message, and some microseconds of error handling in the
library around a private-key operation of almost a millisecond.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.identifiers import clip
from gridpost.core.message import ENCRYPTION, InternalMessage, Metadata, SealedMessage
from gridpost.core.ports import SessionKeyOpener
from gridpost.core.refusal import Code, Refusal, Rule
from gridpost.wire.seal.manifest import associated_data, fingerprint
from gridpost.wire.seal.processors import EncryptionData, Seals, read_seals
from gridpost.wire.seal.profile import DEFAULT, Profile
from gridpost.wire.seal.registry import STANDARD, Registry
from gridpost.wire.seal.signing import LARGE_BODY, check_signature, find_certificate

PEER_TEXT = "The message could not be decrypted and verified."

# 503 cl. 6.5.3 steps 3 and 4, 6.5.4 steps 1 to 5.
CONCEALED = frozenset(
    {
        Rule.SEAL_SESSION_KEY,
        Rule.SEAL_CONTENT,
        Rule.SEAL_NOT_SENDERS_CERTIFICATE,
        Rule.SEAL_SIGNING_CERTIFICATE_EXPIRED,
        Rule.SEAL_SIGNATURE_FORM,
        Rule.SEAL_SIGNATURE_VALUE,
        Rule.SEAL_FINGERPRINT,
    }
)


@dataclass(frozen=True, slots=True)
class Opened:
    """A message that may be believed, and what was found out on the way.

    The metadata of `message` is what was received without the `encryption` processor.
    `signing_certificate` is None for a kind that need not be signed and was not.
    """

    message: InternalMessage
    fingerprint: bytes
    signing_certificate: Certificate | None
    encryption_certificate: Certificate | None
    attributes_bound: bool
    """Could no byte have moved between neighbouring attributes? (REPAIRS 6.5.4)"""


@dataclass(frozen=True, slots=True)
class PublicReason:
    """What a peer is told of a refusal."""

    code: Code
    text: str


def public_reason(refusal: Refusal) -> PublicReason:
    """One code and one text for every failure from the session key to the signature."""
    if refusal.rule in CONCEALED:
        return PublicReason(Code.VALIDATION_ERROR, PEER_TEXT)
    return PublicReason(refusal.code, refusal.message)


async def open_sealed(
    sealed: SealedMessage,
    openers: Sequence[SessionKeyOpener],
    sender_certificates: Sequence[Certificate],
    profile: Profile = DEFAULT,
    registry: Registry = STANDARD,
) -> Opened:
    """`sender_certificates` are those that the directory publishes for the senderCode."""
    metadata = sealed.metadata
    seals = read_seals(metadata, profile, registry)
    associated = associated_data(metadata)
    encryption_certificate: Certificate | None = None
    key, key_opened = b"", True
    if seals.encryption is not None:
        opener = _own_opener(openers, seals.encryption, metadata)
        encryption_certificate = opener.certificate
        # 6.5.3 step 3.
        opened = await opener.open(seals.encryption.session_key, seals.encryption.padding.name)
        # Made every time: whether it is needed must not show.
        key = os.urandom(seals.encryption.cipher.key_size)
        key_opened = opened is not None and len(opened) == len(key)
        key = opened if opened is not None and key_opened else key
    if len(sealed.body) < LARGE_BODY:
        outcome = _decipher_and_verify(sealed, seals, key, associated, sender_certificates, profile)
    else:
        outcome = await asyncio.to_thread(
            _decipher_and_verify, sealed, seals, key, associated, sender_certificates, profile
        )
    if not key_opened:
        raise Refusal(Rule.SEAL_SESSION_KEY, "the session key does not decrypt")
    if outcome.failed is not None:
        raise outcome.failed
    without = (p for p in metadata.processors if p.processor_id != ENCRYPTION)
    return Opened(
        InternalMessage(metadata.with_processors(without), outcome.content),
        outcome.fingerprint,
        outcome.certificate,
        encryption_certificate,
        seals.encryption is not None and seals.encryption.cipher.binds_attributes,
    )


@dataclass(frozen=True, slots=True)
class _Outcome:
    content: bytes
    fingerprint: bytes
    certificate: Certificate | None
    failed: Refusal | None


def _decipher_and_verify(
    sealed: SealedMessage,
    seals: Seals,
    key: bytes,
    associated: bytes,
    sender_certificates: Sequence[Certificate],
    profile: Profile,
) -> _Outcome:
    metadata, content = sealed.metadata, b""
    failed: Refusal | None = None
    certificate: Certificate | None = None
    # 6.5.3 step 4.
    if seals.encryption is not None:
        content, deciphered = seals.encryption.cipher.decrypt(key, sealed.body, associated)
        if not deciphered:
            failed = Refusal(Rule.SEAL_CONTENT, "the content does not decrypt")
    else:
        content = bytes(sealed.body)
    if seals.signature is None:
        return _Outcome(content, fingerprint(metadata, content), None, failed)
    digest = fingerprint(metadata, content, seals.signature.algorithm.new_hash)
    try:
        certificate = check_signature(
            metadata, digest, seals.signature, sender_certificates, profile
        )
    except Refusal as refusal:
        failed = failed or refusal
    return _Outcome(content, digest, certificate, failed)


def _own_opener(
    openers: Sequence[SessionKeyOpener], data: EncryptionData, metadata: Metadata
) -> SessionKeyOpener:
    """503 cl. 6.5.3 steps 1 and 2: nothing secret yet, so these may be told apart."""
    certificate = find_certificate(
        [opener.certificate for opener in openers], CertificateKind.ENCRYPTION, data.certificate_id
    )
    if certificate is None:
        raise Refusal(
            Rule.SEAL_NOT_OUR_CERTIFICATE,
            f"'{clip(data.certificate_id)}' is not an encryption certificate of "
            f"{metadata.receiver_code}",
        )
    # 503 cl. 8.1: valid means not expired. A message may wait for its transfer longer than a
    # renewal takes, so a certificate younger than the message is in order here.
    if metadata.generated.at > certificate.not_after:
        raise Refusal(
            Rule.SEAL_ENCRYPTION_CERTIFICATE_EXPIRED,
            f"the encryption certificate '{clip(certificate.certificate_id)}' had expired "
            f"at {metadata.generated}",
        )
    return next(o for o in openers if o.certificate == certificate)
