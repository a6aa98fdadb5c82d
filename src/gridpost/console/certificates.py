"""Certificates and keys as people compare them: names, serial number, fingerprint, period."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from gridpost.core.certificate import Certificate
from gridpost.core.refusal import Refusal
from gridpost.core.registration import PublicKey
from gridpost.wire.x509 import public_key, read_public_key
from gridpost.wire.x509.read import load


@dataclass(frozen=True, slots=True)
class CertificateView:
    kind: str
    certificate_id: str
    subject: str
    issuer: str
    serial: str
    key: str
    fingerprint: str
    not_before: datetime
    not_after: datetime


@dataclass(frozen=True, slots=True)
class KeyView:
    kind: str
    key: str
    fingerprint: str


def shown(certificate: Certificate) -> CertificateView:
    """What the directory holds of others may be unreadable here; then little is said of it."""
    try:
        parsed = load(certificate.der)
        subject, issuer = parsed.subject.rfc4514_string(), parsed.issuer.rfc4514_string()
        serial, key = (
            f"{parsed.serial_number:x}",
            f"RSA {public_key(certificate.der).key_size} bits",
        )
    except (Refusal, ValueError):
        subject, issuer, serial, key = certificate.subject_code, "unreadable", "", "unreadable"
    return CertificateView(
        certificate.kind,
        certificate.certificate_id,
        subject,
        issuer,
        pairs(serial),
        key,
        pairs(hashlib.sha256(certificate.der).hexdigest()),
        certificate.not_before,
        certificate.not_after,
    )


def shown_key(key: PublicKey) -> KeyView:
    try:
        text = f"RSA {read_public_key(key.spki).key_size} bits"
    except Refusal:
        text = "unreadable"
    return KeyView(key.kind, text, pairs(hashlib.sha256(key.spki).hexdigest()))


def pairs(hexadecimal: str) -> str:
    text = hexadecimal.upper()
    text = text if len(text) % 2 == 0 else f"0{text}"
    return ":".join(text[i : i + 2] for i in range(0, len(text), 2))
