"""Signing and verifying a message whose content can be read (503 cl. 6.5.4).

The steps of the standard are taken in its order, all of them every time: the first that failed is
the reason, and how long it took does not tell which one that was.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.identifiers import clip
from gridpost.core.message import SIGNATURE, InternalMessage, Metadata
from gridpost.core.ports import Signer
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.seal import xml_signature
from gridpost.wire.seal.manifest import fingerprint
from gridpost.wire.seal.processors import SignatureData, read_signature, signature_processor
from gridpost.wire.seal.profile import DEFAULT, Profile
from gridpost.wire.seal.registry import SHA_512, STANDARD, Registry, SignatureAlgorithm
from gridpost.wire.seal.xml_signature import XmlSignature
from gridpost.wire.x509 import certificate_id_candidates, public_key

_SHA_512 = STANDARD.signature(SHA_512)

LARGE_BODY = 256 * 1024
"""From here on, hashing and ciphering are not done on the event loop."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A signature but for the private key's part."""

    fingerprint: bytes
    to_be_signed: bytes
    algorithm: SignatureAlgorithm


@dataclass(frozen=True, slots=True)
class Verified:
    """A message that this certificate's owner signed."""

    fingerprint: bytes
    certificate: Certificate


def prepare_signature(
    metadata: Metadata,
    content: bytes,
    algorithm: SignatureAlgorithm = STANDARD.signatures["SHA-512"],
) -> Prepared:
    digest = fingerprint(metadata, content, algorithm.new_hash)
    return Prepared(digest, xml_signature.signed_info(digest, algorithm), algorithm)


def assemble(prepared: Prepared, value: bytes, key_name: str) -> str:
    """The text of the entry `Signature`; `key_name` is the code of the signer (503 cl. 6.5.6)."""
    return xml_signature.assemble(prepared.fingerprint, value, key_name, prepared.algorithm)


async def sign(
    message: InternalMessage,
    signer: Signer,
    profile: Profile = DEFAULT,
    registry: Registry = STANDARD,
) -> InternalMessage:
    """The message with its `signature` processor in front of any other."""
    signed, _ = await sign_once(message, signer, profile, registry)
    return signed


async def sign_once(
    message: InternalMessage,
    signer: Signer,
    profile: Profile = DEFAULT,
    registry: Registry = STANDARD,
) -> tuple[InternalMessage, bytes]:
    """As `sign`, and the fingerprint that was signed: nobody has to hash the document again."""
    metadata = message.metadata
    check_may_sign(metadata, signer.certificate)
    algorithm = registry.signature(profile.send.signature)
    if len(message.content) < LARGE_BODY:
        prepared = prepare_signature(metadata, message.content, algorithm)
    else:
        prepared = await asyncio.to_thread(prepare_signature, metadata, message.content, algorithm)
    value = await signer.sign(prepared.to_be_signed, algorithm.name)
    text = assemble(prepared, value, metadata.sender_code)
    data = SignatureData(algorithm, signer.certificate.certificate_id, text)
    signed = metadata.with_processors((signature_processor(data), *metadata.processors))
    return InternalMessage(signed, message.content), prepared.fingerprint


def check_may_sign(metadata: Metadata, certificate: Certificate) -> None:
    """503 cl. 8.3.3: never with an expired certificate, never twice."""
    if metadata.processors_named(SIGNATURE):
        raise Refusal(Rule.SEAL_PROCESSOR_REPEATED, "the message is signed already")
    if certificate.kind is not CertificateKind.SIGNING or not certificate.valid_at(
        metadata.generated.at
    ):
        raise Refusal(
            Rule.NO_SIGNING_CERTIFICATE,
            f"'{clip(certificate.certificate_id)}' cannot sign at {metadata.generated}",
        )


def verify(
    message: InternalMessage,
    sender_certificates: Iterable[Certificate],
    profile: Profile = DEFAULT,
    registry: Registry = STANDARD,
) -> Verified:
    """503 cl. 6.5.4, steps 1 to 5, for a message that was never encrypted or no longer is."""
    data = read_signature(message.metadata, profile, registry)
    digest = fingerprint(message.metadata, message.content, data.algorithm.new_hash)
    certificate = check_signature(message.metadata, digest, data, sender_certificates, profile)
    return Verified(digest, certificate)


def check_signature(
    metadata: Metadata,
    digest: bytes,
    data: SignatureData,
    sender_certificates: Iterable[Certificate],
    profile: Profile,
) -> Certificate:
    """The certificate that signed; or a refusal that names the first step that failed.

    `digest` is the outcome of step 3. There is no way out before the RSA operation: what is missing
    for a step is replaced by something that costs the same and cannot pass.
    """
    failures: list[Refusal] = []
    # Step 1: the signing certificate belongs to the endpoint that sends the message. The directory
    # is what says so (503 cl. 8.4.2), not the name in the certificate.
    certificate = find_certificate(
        sender_certificates, CertificateKind.SIGNING, data.certificate_id
    )
    key: RSAPublicKey | None = None
    try:
        key = None if certificate is None else public_key(certificate.der)
        reason = "is not published"
    except Refusal as refusal:
        reason = f"cannot be used: {refusal.message}"
    if key is None:
        failures.append(
            Refusal(
                Rule.SEAL_NOT_SENDERS_CERTIFICATE,
                f"the signing certificate '{clip(data.certificate_id)}' of {metadata.sender_code} "
                + reason,
            )
        )
    # Step 2: valid when the message was generated, not now.
    if certificate is not None and not certificate.valid_at(metadata.generated.at):
        failures.append(
            Refusal(
                Rule.SEAL_SIGNING_CERTIFICATE_EXPIRED,
                f"the signing certificate '{clip(certificate.certificate_id)}' was not valid "
                f"at {metadata.generated}",
            )
        )
    try:
        signature = xml_signature.read(data.text, data.algorithm)
    except Refusal as refusal:
        failures.append(refusal)
        signature = XmlSignature(b"", b"", bytes(256), "")
    # Step 4: in XML-DSig the value signs SignedInfo, which holds the message hash.
    if not _value_matches(key or _decoy(), signature, digest, data.algorithm, profile):
        failures.append(
            Refusal(
                Rule.SEAL_SIGNATURE_VALUE,
                "the signature value does not belong to the signing certificate",
            )
        )
    # Step 5.
    if not hmac.compare_digest(signature.digest, digest):
        failures.append(
            Refusal(Rule.SEAL_FINGERPRINT, "the message is not the one that was signed")
        )
    if certificate is None or failures:
        raise failures[0]
    return certificate


def find_certificate(
    certificates: Iterable[Certificate], kind: CertificateKind, certificate_id: str
) -> Certificate | None:
    """REPAIRS 8.2: the published text first, the forms of other products after it."""
    candidates = [c for c in certificates if c.kind is kind]
    for certificate in candidates:
        if certificate.certificate_id == certificate_id:
            return certificate
    for certificate in candidates:
        if certificate_id in _other_forms(certificate):
            return certificate
    return None


def _other_forms(certificate: Certificate) -> frozenset[str]:
    try:
        return certificate_id_candidates(certificate.der)
    except Refusal:
        # Published, but unreadable: it has no other name than the published one.
        return frozenset()


def _value_matches(
    key: RSAPublicKey,
    signature: XmlSignature,
    digest: bytes,
    algorithm: SignatureAlgorithm,
    profile: Profile,
) -> bool:
    padding, rsa_hash = algorithm.rsa_padding, algorithm.rsa_hash
    try:
        key.verify(signature.value, signature.signed_info, padding, rsa_hash)
        return True
    except InvalidSignature:
        if not profile.accept_signed_manifest:
            return False
    try:
        key.verify(signature.value, digest, padding, Prehashed(rsa_hash))
        return True
    except InvalidSignature:
        return False


@functools.cache
def _decoy() -> RSAPublicKey:
    """A number nobody has the factors of, for verifications that must fail in the usual time."""
    number = int.from_bytes(hashlib.shake_256(b"gridpost: nobody's key").digest(256))
    return RSAPublicNumbers(65537, number | 1 << 2047 | 1).public_key()
