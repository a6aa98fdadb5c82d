"""Keys of some kinds in a PKCS#11 token, the others in another cabinet.

Keys for TLS stay outside: the TLS library has to have them. The certificates of the token's keys are
records in a folder, as those of key files are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.ports import SessionKeyOpener, Signer
from gridpost.stores.keys import owner_only
from gridpost.stores.keys.files import read_record, write_record
from gridpost.stores.keys.pkcs11 import TokenAccess, TokenKeyring
from gridpost.stores.keys.ring import KeptKeyring, key_id
from gridpost.wire.x509 import public_key, public_key_bytes


class TokenCabinet:
    """`core.ports.KeyCabinet`. Certificates of keys that were there before the token stay usable."""

    def __init__(
        self,
        rest: KeptKeyring,
        access: TokenAccess,
        kinds: Collection[CertificateKind],
        folder: Path,
    ) -> None:
        """Refuses a token that cannot use the keys of the certificates in `folder`."""
        self._rest = rest
        self._kinds = frozenset(kinds)
        self._folder = folder
        owner_only.make_directory(folder)
        self._ring = TokenKeyring(access, self._records())

    def create_key(self, bits: int = 2048, kind: CertificateKind | None = None) -> bytes:
        if kind is None or kind not in self._kinds:
            return self._rest.create_key(bits, kind)
        return self._ring.create_key(bits, kind)

    def import_key(self, der: bytes) -> bytes:
        """What was made elsewhere is no secret of the token."""
        return self._rest.import_key(der)

    def export_key(self, spki: bytes) -> bytes:
        return self._rest.export_key(spki)

    def install(self, certificate: Certificate) -> None:
        if certificate.kind not in self._kinds or not self._ring.holds(certificate):
            self._rest.install(certificate)
            return
        self._ring.add(certificate)
        name = key_id(public_key_bytes(public_key(certificate.der)))
        write_record(self._folder / f"{name}.json", certificate)

    def certificates(self) -> Sequence[Certificate]:
        return (*self._ring.certificates(), *self._rest.certificates())

    def signers(self) -> Sequence[Signer]:
        return [*self._ring.signers(), *self._rest.signers()]

    def openers(self) -> Sequence[SessionKeyOpener]:
        return [*self._ring.openers(), *self._rest.openers()]

    def reload(self) -> None:
        """Another process may have added keys and certificates. Blocks."""
        self._rest.reload()
        for certificate in self._records():
            if certificate not in self._ring.certificates():
                self._ring.add(certificate)

    def close(self) -> None:
        self._ring.close()

    def _records(self) -> list[Certificate]:
        return [read_record(path) for path in sorted(self._folder.glob("*.json"))]
