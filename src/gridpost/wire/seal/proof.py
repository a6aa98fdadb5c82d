"""Checking a proof set offline: what it proves, to whom, and what stays a claim (503 cl. 4.5.4).

A signature binds a document to a key. Whose key it is, a verifier learns from a certification
chain that it trusts itself; without one the verdict says so instead of calling the proof bad.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from gridpost.core.acknowledgement import acknowledged_fingerprint
from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.identifiers import clip
from gridpost.core.instant import Instant
from gridpost.core.message import InternalMessage, InternalType, Metadata
from gridpost.core.proof_set import Fact, ProofSet
from gridpost.core.refusal import Refusal
from gridpost.wire.seal.manifest import fingerprint
from gridpost.wire.seal.processors import read_signature
from gridpost.wire.seal.profile import DEFAULT, Profile
from gridpost.wire.seal.registry import STANDARD, Registry
from gridpost.wire.seal.signing import verify
from gridpost.wire.x509 import read_certificate, trusted_path


class Standing(Enum):
    """How far a fact is established."""

    PROVEN = "proven"
    ISSUER_NOT_TRUSTED = "signature valid, issuer not trusted here"
    OTHER_NAME = "signature valid, issuer trusted, but the certificate names someone else"
    NOT_PROVEN = "not proven"
    INCOMPLETE = "evidence missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """What the evidence says of one fact. `claimed_at` is the signer's own clock."""

    fact: Fact
    standing: Standing
    party: str
    signer: str = ""
    claimed_at: Instant | None = None
    reason: str = ""

    @property
    def proven(self) -> bool:
        return self.standing is Standing.PROVEN


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of checking one proof set."""

    origin: Finding
    receipt: Finding
    digest: bytes
    received_claimed_at: Instant | None
    """When a RECEIVE_ACKNOWLEDGEMENT says an application took the document: nobody signs this."""
    notes: tuple[str, ...]


NO_SEPARATORS = (
    "503 cl. 6.5.4 signs the attributes without separators: the signature fixes their bytes one "
    "after the other, but not where one attribute ends and the next begins"
)
CLAIMED_TIMES = "times are those of the signers' own clocks; no third party attests them"
RECEIVED_UNSIGNED = "that an application took the document is an unsigned claim of the recipient"


def verify_proof(
    proof: ProofSet,
    roots: Sequence[bytes],
    external_roots: Sequence[bytes] = (),
    profile: Profile = DEFAULT,
    registry: Registry = STANDARD,
) -> Verdict:
    """`roots` are ROOT CAs of the system, `external_roots` those of agreed EXTERNAL CAs (DER)."""
    message = proof.message
    verifier = _Verifier(proof.issuers, (*roots, *external_roots), profile, registry)
    try:
        digest = _digest(message, profile, registry)
    except Refusal as refusal:
        digest, problem = b"", refusal.message
    else:
        problem = ""
    origin = receipt = None
    if not proof.missing(Fact.ORIGIN) and proof.sender_certificate is not None:
        origin = verifier.check(
            Fact.ORIGIN, message.metadata.sender_code, message, proof.sender_certificate, problem
        )
    acknowledgement = proof.acknowledgement
    if (
        not proof.missing(Fact.RECEIPT)
        and acknowledgement is not None
        and proof.recipient_certificate is not None
    ):
        receipt = verifier.check(
            Fact.RECEIPT,
            message.metadata.receiver_code,
            acknowledgement,
            proof.recipient_certificate,
            problem or _not_about(acknowledgement, message.metadata, digest),
        )
    received = _received(proof.receive_acknowledgement, message.metadata)
    notes = (NO_SEPARATORS, CLAIMED_TIMES, *([RECEIVED_UNSIGNED] if received else []))
    return Verdict(
        origin or _incomplete(proof, Fact.ORIGIN, message.metadata.sender_code),
        receipt or _incomplete(proof, Fact.RECEIPT, message.metadata.receiver_code),
        digest,
        received,
        notes,
    )


@dataclass(frozen=True, slots=True)
class _Verifier:
    issuers: tuple[bytes, ...]
    roots: tuple[bytes, ...]
    profile: Profile
    registry: Registry

    def check(
        self,
        fact: Fact,
        party: str,
        signed: InternalMessage,
        certificate: Certificate,
        problem: str,
    ) -> Finding:
        generated = signed.metadata.generated
        try:
            # What is said about a certificate in a proof may differ from what stands in it.
            certificate = read_certificate(
                certificate.der, CertificateKind.SIGNING, certificate.certificate_id
            )
            verify(signed, [certificate], self.profile, self.registry)
        except Refusal as refusal:
            problem = refusal.message
        if problem:
            standing, reason = Standing.NOT_PROVEN, problem
        else:
            standing, reason = self._whose(certificate, party, generated)
        return Finding(fact, standing, party, certificate.subject_code, generated, reason)

    def _whose(
        self, certificate: Certificate, party: str, generated: Instant
    ) -> tuple[Standing, str]:
        try:
            trusted_path(certificate.der, self.issuers, self.roots, generated.at)
        except Refusal as refusal:
            return Standing.ISSUER_NOT_TRUSTED, refusal.message
        # In the network the directory says whose certificate this is (503 cl. 8.4.2). Offline only
        # the certificate itself can, and an EXTERNAL CA may have put another name into it.
        if certificate.subject_code != party:
            named = clip(certificate.subject_code) or "nobody"
            return Standing.OTHER_NAME, f"the certificate names {named}, not {party}"
        return Standing.PROVEN, ""


def _incomplete(proof: ProofSet, fact: Fact, party: str) -> Finding:
    names = ", ".join(part.name.lower().replace("_", " ") for part in proof.missing(fact))
    return Finding(fact, Standing.INCOMPLETE, party, reason=f"missing: {names}")


def _digest(message: InternalMessage, profile: Profile, registry: Registry) -> bytes:
    """By the algorithm of the message's own signature, as its recipient computed it."""
    try:
        new_hash = read_signature(message.metadata, profile, registry).algorithm.new_hash
    except Refusal:
        new_hash = hashlib.sha512
    return fingerprint(message.metadata, message.content, new_hash)


def _not_about(acknowledgement: InternalMessage, original: Metadata, digest: bytes) -> str:
    """Why this acknowledgement, even if genuine, does not acknowledge this message (check #3)."""
    metadata = acknowledgement.metadata
    if metadata.related_message_id != original.message_id:
        return "the acknowledgement is about another message"
    if metadata.sender_code != original.receiver_code:
        return "the acknowledgement was not issued by the recipient of the message"
    if metadata.receiver_code != original.sender_code:
        return "the acknowledgement was not issued to the sender of the message"
    acknowledged = acknowledged_fingerprint(acknowledgement.content)
    if acknowledged is None or not hmac.compare_digest(digest, acknowledged):
        return "the acknowledged fingerprint is not that of the message"
    return ""


def _received(acknowledgement: InternalMessage | None, original: Metadata) -> Instant | None:
    if acknowledgement is None:
        return None
    metadata = acknowledgement.metadata
    about_it = (
        metadata.internal_type is InternalType.RECEIVE_ACKNOWLEDGEMENT
        and metadata.related_message_id == original.message_id
        and metadata.sender_code == original.receiver_code
    )
    return metadata.generated if about_it else None
