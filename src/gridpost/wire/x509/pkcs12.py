"""PKCS#12 files, by which administrators carry a private key with its certificates.

Read into bytes and written from bytes; the key is used nowhere here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    pkcs12,
)

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.x509.read import load, public_key, public_key_bytes, unreadable

MAX_FILE_SIZE = 1024 * 1024

# PBES2 with AES-256 and a SHA-256 MAC: read by Java 8u301 and newer and by OpenSSL 1.1 and newer.
_KDF_ROUNDS = 100_000


@dataclass(frozen=True, slots=True)
class KeyBundle:
    """A private key (PKCS#8, DER, not encrypted), its certificate and the issuers above it."""

    private_key: bytes = field(repr=False)
    certificate: bytes
    issuers: tuple[bytes, ...] = ()
    name: str = ""


def read_pkcs12(data: bytes, password: str) -> KeyBundle:
    """503 cl. 7.6: an installation certificate, or one of an EXTERNAL CA, to be installed."""
    if len(data) > MAX_FILE_SIZE:
        raise Refusal(Rule.BAD_KEY, "the PKCS#12 file is larger than any real one")
    with unreadable("the PKCS#12 file cannot be read: the password may be wrong", Rule.BAD_KEY):
        store = pkcs12.load_pkcs12(data, password.encode())
    if store.key is None or store.cert is None:
        raise Refusal(Rule.BAD_KEY, "the PKCS#12 file must hold a private key and its certificate")
    if not isinstance(store.key, rsa.RSAPrivateKey):
        raise Refusal(Rule.BAD_KEY, "the PKCS#12 file holds no RSA key")
    certificate = store.cert.certificate.public_bytes(Encoding.DER)
    _must_match(store.key, certificate)
    return KeyBundle(
        store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
        certificate,
        tuple(c.certificate.public_bytes(Encoding.DER) for c in store.additional_certs),
        (store.cert.friendly_name or b"").decode(errors="replace"),
    )


def write_pkcs12(bundle: KeyBundle, password: str) -> bytes:
    if not password:
        raise Refusal(Rule.KEY_PROTECTION, "a PKCS#12 file is written with a password only")
    with unreadable("the private key cannot be read", Rule.BAD_KEY):
        key = load_der_private_key(bundle.private_key, None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise Refusal(Rule.BAD_KEY, "only RSA keys are used (503 cl. 8.2)")
    _must_match(key, bundle.certificate)
    protection = (
        PrivateFormat.PKCS12.encryption_builder()
        .kdf_rounds(_KDF_ROUNDS)
        .key_cert_algorithm(pkcs12.PBES.PBESv2SHA256AndAES256CBC)
        .hmac_hash(hashes.SHA256())
        .build(password.encode())
    )
    issuers: list[x509.Certificate] = [load(der) for der in bundle.issuers]
    return pkcs12.serialize_key_and_certificates(
        bundle.name.encode() or None, key, load(bundle.certificate), issuers or None, protection
    )


def _must_match(key: rsa.RSAPrivateKey, certificate: bytes) -> None:
    if public_key_bytes(key.public_key()) != public_key_bytes(public_key(certificate)):
        raise Refusal(Rule.BAD_KEY, "the private key does not belong to the certificate")
