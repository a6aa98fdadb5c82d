"""The keys of an endpoint in a MADES 1.1 network, as the administrator of its node hands them over.

A folder holds per kind KIND.key (PKCS#8) and KIND.pem (the certificate, then its INTEGRATED CA), and
roots.pem; the key of a SIGNING certificate may be in a device instead. While certificates are renewed
there are two folders, and the keys of both are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from gridpost.core.certificate import Certificate, CertificateKind, select
from gridpost.core.https import TlsCredentials
from gridpost.core.ports import Signer
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys import pkcs8
from gridpost.stores.keys.awaited_token import AwaitedSigner, AwaitedToken
from gridpost.stores.keys.off_loop import KeyPool
from gridpost.stores.keys.rsa_operations import KeyOpener, KeySigner, to_pkcs8
from gridpost.wire.mades11.token_signature import sign_text
from gridpost.wire.x509 import from_pem, public_key, public_key_bytes, read_certificate

KINDS = (CertificateKind.AUTHENTICATION, CertificateKind.SIGNING, CertificateKind.ENCRYPTION)


@dataclass(frozen=True, slots=True)
class _Held:
    certificate: Certificate
    issuers: tuple[bytes, ...]
    key: RSAPrivateKey | None
    """None: a device has it."""


@dataclass(frozen=True, slots=True)
class PaperTokenSigner:
    """services.directory_client.node_session.TokenSigner."""

    certificate: Certificate
    key: RSAPrivateKey

    @property
    def certificate_id(self) -> str:
        return self.certificate.certificate_id

    def sign(self, text: str) -> str:
        return sign_text(text, self.key)


class PaperKeyring:
    """`core.ports.Keyring`, and what tokens and TLS need."""

    def __init__(
        self,
        folders: Sequence[Path],
        passphrase: bytes | None = None,
        pool: KeyPool | None = None,
        device: AwaitedToken | None = None,
    ) -> None:
        """`device` has the keys of SIGNING certificates beside which there is no key file."""
        self._device = device
        self._folders = tuple(folders)
        self._passphrase = passphrase
        self._pool = pool
        self._held: tuple[_Held, ...] = ()
        self._roots: tuple[bytes, ...] = ()
        self._seen: frozenset[tuple[str, int, int]] = frozenset()
        self.reload()

    def refresh(self) -> bool:
        """`reload`, if a file has changed; did one?"""
        if self._state() == self._seen:
            return False
        self.reload()
        return True

    def _state(self) -> frozenset[tuple[str, int, int]]:
        names = [f"{kind.value.lower()}{end}" for kind in KINDS for end in (".key", ".pem")]
        files = [folder / name for folder in self._folders for name in (*names, "roots.pem")]
        found = set()
        for file in files:
            with suppress(OSError):
                status = file.stat()
                found.add((str(file), status.st_mtime_ns, status.st_size))
        return frozenset(found)

    def reload(self) -> None:
        """Cl. 3.16.7.2: a renewed certificate counts as soon as it is read. Blocks."""
        self._seen = self._state()
        held = [h for folder in self._folders for kind in KINDS if (h := self._read(folder, kind))]
        missing = [k.value for k in KINDS if all(h.certificate.kind is not k for h in held)]
        if missing:
            places = ", ".join(map(str, self._folders))
            raise Refusal(
                Rule.BAD_KEY,
                f"{places} has no key and certificate for {', '.join(missing)}",
                "have the endpoint registered with 'gridpost node register --keys FOLDER'",
            )
        roots = (der for folder in self._folders for der in _certificates(folder / "roots.pem"))
        self._held, self._roots = tuple(held), tuple(dict.fromkeys(roots))

    def certificates(self) -> Sequence[Certificate]:
        return tuple(held.certificate for held in self._held)

    def signers(self) -> Sequence[Signer]:
        return [self._signer(held) for held in self._of(CertificateKind.SIGNING)]

    def _signer(self, held: _Held) -> Signer:
        if held.key is not None:
            return KeySigner(held.key, held.certificate, self._pool)
        assert self._device is not None
        return AwaitedSigner(self._device, held.certificate)

    def openers(self) -> Sequence[KeyOpener]:
        return [
            KeyOpener(held.key, held.certificate, self._pool)
            for held in self._of(CertificateKind.ENCRYPTION)
            if held.key is not None
        ]

    def token_signer(self, at: datetime) -> PaperTokenSigner:
        held, key = self._authentication(at)
        return PaperTokenSigner(held.certificate, key)

    def credentials(self, at: datetime) -> TlsCredentials:
        held, key = self._authentication(at)
        return TlsCredentials((held.certificate.der, *held.issuers), to_pkcs8(key), self._roots)

    def roots(self) -> tuple[bytes, ...]:
        return self._roots

    def _of(self, kind: CertificateKind) -> list[_Held]:
        return [held for held in self._held if held.certificate.kind is kind]

    def _authentication(self, at: datetime) -> tuple[_Held, RSAPrivateKey]:
        kind = CertificateKind.AUTHENTICATION
        held = {h.certificate.certificate_id: (h, h.key) for h in self._of(kind) if h.key}
        chosen = select((h.certificate for h, _ in held.values()), kind, at)
        if chosen is None:
            raise Refusal(
                Rule.CERTIFICATE_EXPIRED,
                "no authentication certificate for the MADES 1.1 network is valid now",
                "have it renewed with 'gridpost node renew'",
            )
        return held[chosen.certificate_id]

    def _read(self, folder: Path, kind: CertificateKind) -> _Held | None:
        name = kind.value.lower()
        file = folder / f"{name}.key"
        chain = _certificates(folder / f"{name}.pem")
        in_device = kind is CertificateKind.SIGNING and self._device is not None
        if chain and in_device and not file.exists():
            return _Held(read_certificate(chain[0], kind), tuple(chain[1:]), None)
        if not chain or not file.exists():
            return None
        key = pkcs8.read(file.read_bytes(), self._passphrase, str(file))
        if public_key_bytes(public_key(chain[0])) != public_key_bytes(key.public_key()):
            raise Refusal(Rule.BAD_KEY, f"{file} is not the key of the certificate beside it")
        return _Held(read_certificate(chain[0], kind), tuple(chain[1:]), key)


def _certificates(file: Path) -> Sequence[bytes]:
    return from_pem(file.read_bytes()) if file.exists() else ()
