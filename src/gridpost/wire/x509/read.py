"""X.509 certificates and public keys into values of the core, or a refusal.

Only this file decides which foreign certificate is readable at all and which RSA keys are long
enough (503 cl. 8.2).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
)
from cryptography.x509.oid import NameOID

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.x509.names import known_forms, own_form

# 503 cl. 8.2 fixes 2048 bits; longer keys are allowed up to what a verifier can be asked to pay.
MIN_KEY_BITS = 2048
MAX_KEY_BITS = 4096

MAX_CERTIFICATE_SIZE = 64 * 1024

# A directory of several thousand endpoints; a parsed key is a few kilobytes.
_CACHED_KEYS = 4096
_CACHED_IDS = 1024


def load(der: bytes) -> x509.Certificate:
    """The library's parsed certificate; what it says later may still be refused."""
    if len(der) > MAX_CERTIFICATE_SIZE:
        raise Refusal(Rule.BAD_CERTIFICATE, "the certificate is larger than any real one")
    with unreadable("the certificate cannot be read"):
        return x509.load_der_x509_certificate(der)


def read_certificate(
    der: bytes, kind: CertificateKind, certificate_id: str | None = None
) -> Certificate:
    """503 Table 19. `certificate_id` is the text that a directory published, kept as it is."""
    certificate = load(der)
    public_key(der)
    with unreadable("the certificate cannot be read"):
        return Certificate(
            certificate_id=own_form(certificate) if certificate_id is None else certificate_id,
            kind=kind,
            der=der,
            not_before=certificate.not_valid_before_utc,
            not_after=certificate.not_valid_after_utc,
            subject_code=common_name(certificate.subject),
        )


def certificate_id(der: bytes) -> str:
    """503 cl. 8.2, in the form of certificates that we issue or publish."""
    certificate = load(der)
    with unreadable("the issuer of the certificate cannot be read"):
        return own_form(certificate)


@functools.lru_cache(maxsize=_CACHED_IDS)
def certificate_id_candidates(der: bytes) -> frozenset[str]:
    """Every text that a foreign component may use as the ID of this certificate."""
    certificate = load(der)
    with unreadable("the issuer of the certificate cannot be read"):
        return known_forms(certificate)


def common_name(name: x509.Name) -> str:
    """The one common name; empty when there is none, or when several could differ."""
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    value = found[0].value if len(found) == 1 else ""
    return value if isinstance(value, str) else ""


@functools.lru_cache(maxsize=_CACHED_KEYS)
def public_key(der: bytes) -> rsa.RSAPublicKey:
    """The key of a certificate. Parsing costs as much as verifying, so recent ones are kept."""
    with unreadable("the public key of the certificate cannot be read"):
        return _usable(load(der).public_key(), Rule.BAD_CERTIFICATE)


def read_public_key(spki: bytes) -> rsa.RSAPublicKey:
    """A SubjectPublicKeyInfo in DER, as a registration carries it (503 cl. 7.8.2)."""
    with unreadable("the public key cannot be read"):
        return _usable(load_der_public_key(spki), Rule.BAD_CERTIFICATE)


def public_key_bytes(key: rsa.RSAPublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def to_pem(*ders: bytes) -> bytes:
    """Certificates one after the other, as TLS libraries read a chain."""
    return b"".join(load(der).public_bytes(Encoding.PEM) for der in ders)


def from_pem(pem: bytes) -> tuple[bytes, ...]:
    with unreadable("the PEM file holds no readable certificate"):
        return tuple(c.public_bytes(Encoding.DER) for c in x509.load_pem_x509_certificates(pem))


@contextmanager
def unreadable(message: str, rule: Rule = Rule.BAD_CERTIFICATE) -> Iterator[None]:
    """Foreign bytes make the library raise many things; all of them mean the same here."""
    try:
        yield
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise Refusal(rule, message, details=str(error)) from error


def _usable(key: object, rule: Rule) -> rsa.RSAPublicKey:
    if not isinstance(key, rsa.RSAPublicKey):
        raise Refusal(rule, "only RSA keys are used (503 cl. 8.2)")
    if not MIN_KEY_BITS <= key.key_size <= MAX_KEY_BITS:
        raise Refusal(
            rule,
            f"an RSA key of {key.key_size} bits is not accepted: "
            f"use {MIN_KEY_BITS} to {MAX_KEY_BITS}",
        )
    return key
