"""Certificates of a MADES 1.1 network that nobody should trust, or that say more than they need to."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_der_private_key
from cryptography.x509.oid import NameOID

from gridpost.core.certificate import CertificateKind
from gridpost.core.https import TlsCredentials
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.wire.x509 import Validity, issue, public_key, public_key_bytes
from support.https import live_pki
from support.old_network import TestNode
from support.pki import rsa_key

AUTHENTICATION = CertificateKind.AUTHENTICATION


def certified(node: TestNode, code: str, key: RSAPrivateKey) -> bytes:
    """An authentication certificate by the newest INTEGRATED CA of a node, which knows nothing of it."""
    issuer = max(
        node.keys.issuers(),
        key=lambda i: x509.load_der_x509_certificate(i.certificate).not_valid_before_utc,
    )
    validity = Validity.starting(datetime.now(UTC), timedelta(days=30))
    return issue(AUTHENTICATION, code, public_key_bytes(key.public_key()), issuer, validity)


def self_signed(code: str, key: RSAPrivateKey) -> bytes:
    now = datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, code)])
    builder = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )  # fmt: skip
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def not_trusted(node: TestNode, code: str) -> dict[str, TlsCredentials]:
    """What a peer of a network may show and must not get anywhere with; by what is wrong with it."""
    key, roots = rsa_key("odd"), node.configuration.trusted_roots()
    (authority, *_) = node.keys.authorities
    private, good = to_pkcs8(key), certified(node, code, key)
    foreign = live_pki("CD-X", "ANOTHER ROOT").component(code, [AUTHENTICATION], key_name="odd")
    spoiled = good[:-1] + bytes([good[-1] ^ 1])
    return {
        "self-signed": TlsCredentials((self_signed(code, key),), private, roots),
        "another root": TlsCredentials(
            tuple(foreign.chain), to_pkcs8(foreign.keys[AUTHENTICATION]), roots
        ),
        "expired": TlsCredentials((expired(node, good), authority.der), private, roots),
        "bad signature": TlsCredentials((spoiled, authority.der), private, roots),
        "no chain": TlsCredentials((good,), private, roots),
    }


def expired(node: TestNode, der: bytes) -> bytes:
    """The same certificate of the same issuer, five days after its end."""
    now = datetime.now(UTC)
    return _again(node, der, Validity(now - timedelta(days=10), now - timedelta(days=5)))


def with_crl(node: TestNode, der: bytes, url: str) -> bytes:
    """The same certificate of the same issuer, which also says where to ask for revoked ones."""
    place = x509.DistributionPoint([x509.UniformResourceIdentifier(url)], None, None, None)
    return _again(node, der, None, x509.CRLDistributionPoints([place]))


def _again(
    node: TestNode, der: bytes, validity: Validity | None, *more: x509.ExtensionType
) -> bytes:
    (authority, *_) = node.keys.authorities
    secret = node.keys._ring.export_key(public_key_bytes(public_key(authority.der)))
    signer: Any = load_der_private_key(secret, None)
    before = x509.load_der_x509_certificate(der)
    start, end = before.not_valid_before_utc, before.not_valid_after_utc
    if validity is not None:
        start, end = validity.not_before, validity.not_after
    builder = (
        x509.CertificateBuilder().subject_name(before.subject).issuer_name(before.issuer)
        .public_key(before.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(start).not_valid_after(end)
    )  # fmt: skip
    for extension in before.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    for value in more:
        builder = builder.add_extension(value, critical=False)
    return builder.sign(signer, hashes.SHA512()).public_bytes(Encoding.DER)


def shown(peer: Any) -> list[bytes]:
    """What a TLS peer sent, in its order."""
    if hasattr(peer, "get_unverified_chain"):  # public from Python 3.13
        return list(peer.get_unverified_chain())
    return [ssl.PEM_cert_to_DER_cert(c.public_bytes()) for c in peer._sslobj.get_unverified_chain()]
