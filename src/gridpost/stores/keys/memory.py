"""A keyring that keeps nothing: for tests, and for the demonstration in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives.asymmetric import rsa

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys import rsa_operations
from gridpost.stores.keys.rsa_operations import KeyOpener, KeySigner
from gridpost.wire.seal import STANDARD, Registry
from gridpost.wire.x509 import public_key, public_key_bytes


class MemoryKeyring:
    """`core.ports.Keyring`, with the key management that the file keyring has."""

    def __init__(self, registry: Registry = STANDARD) -> None:
        self._registry = registry
        self._keys: dict[bytes, rsa.RSAPrivateKey] = {}
        self._certificates: dict[bytes, Certificate] = {}

    def create_key(self, bits: int = 2048, kind: CertificateKind | None = None) -> bytes:
        """A new key; its SubjectPublicKeyInfo is how it is called."""
        return self._add(rsa_operations.generate(bits))

    def import_key(self, der: bytes) -> bytes:
        return self._add(rsa_operations.from_pkcs8(der))

    def export_key(self, spki: bytes) -> bytes:
        """PKCS#8 without encryption, for the TLS library."""
        key = self._keys.get(spki)
        if key is None:
            raise Refusal(Rule.BAD_KEY, "there is no such private key")
        return rsa_operations.to_pkcs8(key)

    def install(self, certificate: Certificate) -> None:
        """A certificate that was issued for one of the keys."""
        spki = public_key_bytes(public_key(certificate.der))
        if spki not in self._keys:
            raise Refusal(Rule.BAD_KEY, "there is no private key for this certificate")
        self._certificates[certificate.der] = certificate

    def certificates(self) -> Sequence[Certificate]:
        return tuple(self._certificates.values())

    def signers(self) -> Sequence[KeySigner]:
        return [
            KeySigner(self._key_of(c), c, registry=self._registry)
            for c in self._certificates.values()
            if c.kind is CertificateKind.SIGNING
        ]

    def openers(self) -> Sequence[KeyOpener]:
        return [
            KeyOpener(self._key_of(c), c, registry=self._registry)
            for c in self._certificates.values()
            if c.kind is CertificateKind.ENCRYPTION
        ]

    def sign_function(self, spki: bytes) -> Callable[[bytes], bytes]:
        """The key of a CA, as `wire.x509.Issuer` uses it."""
        key = self._keys[spki]
        return lambda data: rsa_operations.sign(key, data, "SHA-512", self._registry)

    def _add(self, key: rsa.RSAPrivateKey) -> bytes:
        spki = public_key_bytes(key.public_key())
        self._keys[spki] = key
        return spki

    def _key_of(self, certificate: Certificate) -> rsa.RSAPrivateKey:
        return self._keys[public_key_bytes(public_key(certificate.der))]
