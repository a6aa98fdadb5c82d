"""Private keys in files of one directory, readable by their owner only (503 cl. 8.2).

A key is `<id>.key` (PKCS#8, encrypted when there is a passphrase); what was certified for it is
`<id>.json`. The id is the beginning of the SHA-256 of the public key, so a key and its certificate
cannot be mixed up.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys import owner_only, pkcs8, rsa_operations
from gridpost.stores.keys.rsa_operations import KeyOpener, KeySigner
from gridpost.wire.seal import STANDARD, Registry
from gridpost.wire.x509 import from_pem, public_key, public_key_bytes, read_certificate, to_pem


class FileKeyring:
    """`core.ports.Keyring` over a directory. RSA runs in `pool`, or at once when there is none."""

    def __init__(
        self,
        directory: Path,
        passphrase: bytes | None = None,
        pool: Executor | None = None,
        registry: Registry = STANDARD,
    ) -> None:
        self._directory = directory
        self._passphrase = passphrase
        self._pool = pool
        self._registry = registry
        self._keys: dict[str, rsa.RSAPrivateKey] = {}
        self._certificates: dict[str, Certificate] = {}
        owner_only.make_directory(directory)
        for path in sorted(directory.glob("*.key")):
            self._keys[path.stem] = self._load_key(path)
        for path in sorted(directory.glob("*.json")):
            self._certificates[path.stem] = self._load_certificate(path)

    def create_key(self, bits: int = 2048) -> bytes:
        """A new key on disk; its SubjectPublicKeyInfo is how it is called."""
        return self._add(rsa_operations.generate(bits))

    def import_key(self, der: bytes) -> bytes:
        """503 cl. 7.6: a key made elsewhere (PKCS#8, DER), for example from a PKCS#12 file."""
        return self._add(rsa_operations.from_pkcs8(der))

    def export_key(self, spki: bytes) -> bytes:
        """PKCS#8 without encryption, for a PKCS#12 file or a backup."""
        return rsa_operations.to_pkcs8(self._key(spki))

    def install(self, certificate: Certificate) -> None:
        """A certificate that was issued for one of the keys. When this returns, it is on disk."""
        spki = public_key_bytes(public_key(certificate.der))
        self._key(spki)
        record = {
            "kind": certificate.kind.value,
            "certificate_id": certificate.certificate_id,
            "certificate": to_pem(certificate.der).decode("ascii"),
        }
        name = _key_id(spki)
        owner_only.write(self._path(name, "json"), json.dumps(record, indent=1).encode())
        self._certificates[name] = certificate

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

    def key_file(self, certificate: Certificate) -> Path:
        """Where a TLS library finds the key of an AUTHENTICATION certificate."""
        return self._path(_key_id(public_key_bytes(public_key(certificate.der))), "key")

    def _add(self, key: rsa.RSAPrivateKey) -> bytes:
        spki = public_key_bytes(key.public_key())
        name = _key_id(spki)
        owner_only.write(self._path(name, "key"), pkcs8.write(key, self._passphrase))
        self._keys[name] = key
        return spki

    def _key(self, spki: bytes) -> rsa.RSAPrivateKey:
        key = self._keys.get(_key_id(spki))
        if key is None:
            raise Refusal(Rule.BAD_KEY, f"{self._directory} holds no private key for this one")
        return key

    def _path(self, name: str, suffix: str) -> Path:
        return self._directory / f"{name}.{suffix}"

    def _load_key(self, path: Path) -> rsa.RSAPrivateKey:
        private = pkcs8.read(owner_only.read(path), self._passphrase, str(path))
        if _key_id(public_key_bytes(private.public_key())) != path.stem:
            raise Refusal(Rule.BAD_KEY, f"{path} holds another key than its name says")
        return private

    def _load_certificate(self, path: Path) -> Certificate:
        try:
            record = json.loads(owner_only.read(path))
            (der,) = from_pem(record["certificate"].encode())
            certificate = read_certificate(
                der, CertificateKind(record["kind"]), record["certificate_id"]
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Refusal(Rule.BAD_KEY, f"{path} cannot be read", str(error)) from None
        name = _key_id(public_key_bytes(public_key(der)))
        if name != path.stem or name not in self._keys:
            raise Refusal(Rule.BAD_KEY, f"there is no private key for the certificate in {path}")
        return certificate


def _key_id(spki: bytes) -> str:
    return hashlib.sha256(spki).hexdigest()[:32]
