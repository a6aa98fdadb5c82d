"""Private keys in files of one directory, readable by their owner only (503 cl. 8.2).

A key is `<id>.key` (PKCS#8, encrypted when there is a passphrase); what was certified for it is
`<id>.json`. The id is the beginning of the SHA-256 of the public key, so a key and its certificate
cannot be mixed up. Several processes may share the directory.
"""

from __future__ import annotations

import json
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys import owner_only, pkcs8
from gridpost.stores.keys.off_loop import KeyPool
from gridpost.stores.keys.ring import KeptKeyring, key_id
from gridpost.wire.seal import STANDARD, Registry
from gridpost.wire.x509 import from_pem, public_key, public_key_bytes, read_certificate, to_pem


class FileKeyring(KeptKeyring):
    """`core.ports.KeyCabinet` over a directory."""

    def __init__(
        self,
        directory: Path,
        passphrase: bytes | None = None,
        pool: KeyPool | None = None,
        registry: Registry = STANDARD,
    ) -> None:
        super().__init__(str(directory), pool, registry)
        self._directory = directory
        self._passphrase = passphrase
        owner_only.make_directory(directory)
        self.reload()

    def reload(self) -> None:
        keys = dict(self._keys)
        # Certificates first: the key of each is there before it.
        records = sorted(self._directory.glob("*.json"))
        for path in sorted(self._directory.glob("*.key")):
            if path.stem not in keys:
                keys[path.stem] = self._load_key(path)
        self._keys = keys
        self._certificates = {path.stem: self._load_certificate(path) for path in records}

    def key_file(self, certificate: Certificate) -> Path:
        """Where a TLS library finds the key of an AUTHENTICATION certificate."""
        return self._path(key_id(public_key_bytes(public_key(certificate.der))), "key")

    def _keep_key(self, name: str, key: rsa.RSAPrivateKey) -> None:
        owner_only.write(self._path(name, "key"), pkcs8.write(key, self._passphrase))

    def _keep_certificate(self, name: str, certificate: Certificate) -> None:
        write_record(self._path(name, "json"), certificate)

    def _path(self, name: str, suffix: str) -> Path:
        return self._directory / f"{name}.{suffix}"

    def _load_key(self, path: Path) -> rsa.RSAPrivateKey:
        private = pkcs8.read(owner_only.read(path), self._passphrase, str(path))
        if key_id(public_key_bytes(private.public_key())) != path.stem:
            raise Refusal(Rule.BAD_KEY, f"{path} holds another key than its name says")
        return private

    def _load_certificate(self, path: Path) -> Certificate:
        certificate = read_record(path)
        name = key_id(public_key_bytes(public_key(certificate.der)))
        if name != path.stem or name not in self._keys:
            raise Refusal(Rule.BAD_KEY, f"there is no private key for the certificate in {path}")
        return certificate


def write_record(path: Path, certificate: Certificate) -> None:
    record = {
        "kind": certificate.kind.value,
        "certificate_id": certificate.certificate_id,
        "certificate": to_pem(certificate.der).decode("ascii"),
    }
    owner_only.write(path, json.dumps(record, indent=1).encode())


def read_record(path: Path) -> Certificate:
    try:
        record = json.loads(owner_only.read(path))
        (der,) = from_pem(record["certificate"].encode())
        return read_certificate(der, CertificateKind(record["kind"]), record["certificate_id"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(Rule.BAD_KEY, f"{path} cannot be read", str(error)) from None
