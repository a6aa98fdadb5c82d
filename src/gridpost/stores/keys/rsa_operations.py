"""The two uses of an RSA private key that this process holds: sign, and open a session key.

Which padding and hash a name stands for, the seal's registry says; here is what counts as failed.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)

from gridpost.core.certificate import Certificate
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.off_loop import KeyPool, run
from gridpost.wire.seal import STANDARD, Registry
from gridpost.wire.x509 import KEY_BITS, public_key_bytes, read_public_key


def generate(bits: int = 2048) -> rsa.RSAPrivateKey:
    """503 cl. 7.6: the integrated generator of key pairs."""
    if bits not in KEY_BITS:
        raise Refusal(Rule.BAD_KEY, f"keys have {', '.join(map(str, KEY_BITS))} bits, not {bits}")
    return rsa.generate_private_key(65537, bits)


def from_pkcs8(der: bytes) -> rsa.RSAPrivateKey:
    try:
        key = load_der_private_key(der, None)
    except (ValueError, TypeError) as error:
        raise Refusal(Rule.BAD_KEY, "the private key cannot be read", str(error)) from None
    return checked(key)


def checked(key: object) -> rsa.RSAPrivateKey:
    if not isinstance(key, rsa.RSAPrivateKey):
        raise Refusal(Rule.BAD_KEY, "only RSA keys are used (503 cl. 8.2)")
    try:
        read_public_key(public_key_bytes(key.public_key()))
    except Refusal as refusal:
        raise Refusal(Rule.BAD_KEY, refusal.message) from None
    return key


def to_pkcs8(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def sign(key: rsa.RSAPrivateKey, data: bytes, algorithm: str, registry: Registry) -> bytes:
    entry = registry.signature(algorithm)
    return key.sign(data, entry.rsa_padding, entry.rsa_hash)


def open_session_key(
    key: rsa.RSAPrivateKey, wrapped: bytes, padding: str, registry: Registry
) -> bytes | None:
    # With PKCS#1 v1.5 the library rejects implicitly: a bad padding gives random bytes, no error.
    try:
        return key.decrypt(wrapped, registry.padding(padding).rsa)
    except ValueError:
        return None


class _HeldKey:
    def __init__(
        self,
        key: rsa.RSAPrivateKey,
        certificate: Certificate,
        pool: KeyPool | None = None,
        registry: Registry = STANDARD,
    ) -> None:
        self._key = key
        self._certificate = certificate
        self._pool = pool
        self._registry = registry

    @property
    def certificate(self) -> Certificate:
        return self._certificate


class KeySigner(_HeldKey):
    """`core.ports.Signer` over a private key in memory."""

    async def sign(self, data: bytes, algorithm: str = "SHA-512") -> bytes:
        return await run(self._pool, sign, self._key, data, algorithm, self._registry)


class KeyOpener(_HeldKey):
    """`core.ports.SessionKeyOpener` over a private key in memory."""

    async def open(self, wrapped: bytes, padding: str) -> bytes | None:
        return await run(self._pool, open_session_key, self._key, wrapped, padding, self._registry)
