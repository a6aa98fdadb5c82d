"""Private RSA keys in memory and their certificates, over a place that keeps them for good."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives.asymmetric import rsa

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys import rsa_operations
from gridpost.stores.keys.off_loop import KeyPool
from gridpost.stores.keys.rsa_operations import KeyOpener, KeySigner
from gridpost.wire.seal import STANDARD, Registry
from gridpost.wire.x509 import public_key, public_key_bytes


class KeptKeyring(ABC):
    """`core.ports.KeyCabinet`. RSA runs in `pool`, or at once when there is none."""

    def __init__(
        self, place: str, pool: KeyPool | None = None, registry: Registry = STANDARD
    ) -> None:
        """`place` is named in refusals."""
        self._place = place
        self._pool = pool
        self._registry = registry
        self._keys: dict[str, rsa.RSAPrivateKey] = {}
        self._certificates: dict[str, Certificate] = {}

    def create_key(self, bits: int = 2048, kind: CertificateKind | None = None) -> bytes:
        """A new key, kept for good; its SubjectPublicKeyInfo is how it is called."""
        return self._add(rsa_operations.generate(bits))

    def import_key(self, der: bytes) -> bytes:
        """503 cl. 7.6: a key made elsewhere (PKCS#8, DER), for example from a PKCS#12 file."""
        return self._add(rsa_operations.from_pkcs8(der))

    def export_key(self, spki: bytes) -> bytes:
        """PKCS#8 without encryption, for a PKCS#12 file or a backup."""
        return rsa_operations.to_pkcs8(self._key(spki))

    def install(self, certificate: Certificate) -> None:
        """A certificate that was issued for one of the keys. When this returns, it is kept."""
        spki = public_key_bytes(public_key(certificate.der))
        self._key(spki)
        name = key_id(spki)
        self._keep_certificate(name, certificate)
        self._certificates = {**self._certificates, name: certificate}

    def certificates(self) -> Sequence[Certificate]:
        return tuple(self._certificates.values())

    def signers(self) -> Sequence[KeySigner]:
        return [
            KeySigner(self._keys[name], c, self._pool, self._registry)
            for name, c in self._certificates.items()
            if c.kind is CertificateKind.SIGNING
        ]

    def openers(self) -> Sequence[KeyOpener]:
        return [
            KeyOpener(self._keys[name], c, self._pool, self._registry)
            for name, c in self._certificates.items()
            if c.kind is CertificateKind.ENCRYPTION
        ]

    def sign_function(self, spki: bytes) -> Callable[[bytes], bytes]:
        """The key of a CA, as `wire.x509.Issuer` uses it."""
        key = self._key(spki)
        return lambda data: rsa_operations.sign(key, data, "SHA-512", self._registry)

    @abstractmethod
    def reload(self) -> None:
        """Another process may have added keys and certificates. Blocks."""

    @abstractmethod
    def _keep_key(self, name: str, key: rsa.RSAPrivateKey) -> None: ...

    @abstractmethod
    def _keep_certificate(self, name: str, certificate: Certificate) -> None: ...

    def _add(self, key: rsa.RSAPrivateKey) -> bytes:
        spki = public_key_bytes(key.public_key())
        name = key_id(spki)
        self._keep_key(name, key)
        self._keys = {**self._keys, name: key}
        return spki

    def _key(self, spki: bytes) -> rsa.RSAPrivateKey:
        key = self._keys.get(key_id(spki))
        if key is None:
            raise Refusal(Rule.BAD_KEY, f"{self._place} holds no private key for this one")
        return key


def key_id(spki: bytes) -> str:
    return hashlib.sha256(spki).hexdigest()[:32]
