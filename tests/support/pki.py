"""A public key infrastructure for tests: made in each run, never stored.

RSA keys are slow to make, so each name gets one key per process; certificates are new every time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.identifiers import ComponentCode, component_code
from gridpost.stores.keys.memory import MemoryKeyring
from gridpost.stores.keys.rsa_operations import KeyOpener, KeySigner, to_pkcs8
from gridpost.wire.x509 import (
    CaRequest,
    Issuer,
    Sign,
    Validity,
    build_root_ca,
    integrated_ca_name,
    issue,
    issue_installation,
    issue_integrated_ca,
    public_key_bytes,
    read_certificate,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
"""The moment at which tests happen; certificates are valid a year before and after it."""

YEAR = timedelta(days=365)
ENDPOINT_KINDS = (
    CertificateKind.AUTHENTICATION,
    CertificateKind.SIGNING,
    CertificateKind.ENCRYPTION,
)


@functools.cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def spki(key: rsa.RSAPrivateKey) -> bytes:
    return public_key_bytes(key.public_key())


def signs(key: rsa.RSAPrivateKey) -> Sign:
    return lambda data: key.sign(data, PKCS1v15(), hashes.SHA512())


@dataclass
class TestComponent:
    """A component with its keys, as its own administrator sees it."""

    __test__ = False

    code: ComponentCode
    certificates: tuple[Certificate, ...]
    keys: dict[CertificateKind, rsa.RSAPrivateKey]
    issuer: bytes

    def certificate(self, kind: CertificateKind) -> Certificate:
        return next(c for c in self.certificates if c.kind is kind)

    @property
    def authentication(self) -> Certificate:
        return self.certificate(CertificateKind.AUTHENTICATION)

    @property
    def signing(self) -> Certificate:
        return self.certificate(CertificateKind.SIGNING)

    @property
    def encryption(self) -> Certificate:
        return self.certificate(CertificateKind.ENCRYPTION)

    @property
    def signer(self) -> KeySigner:
        return KeySigner(self.keys[CertificateKind.SIGNING], self.signing)

    @property
    def opener(self) -> KeyOpener:
        return KeyOpener(self.keys[CertificateKind.ENCRYPTION], self.encryption)

    @property
    def chain(self) -> list[bytes]:
        """What its TLS peer gets (503 cl. 8.4.1)."""
        return [self.authentication.der, self.issuer]

    def keyring(self) -> MemoryKeyring:
        ring = MemoryKeyring()
        for certificate in self.certificates:
            ring.import_key(to_pkcs8(self.keys[certificate.kind]))
            ring.install(certificate)
        return ring


class TestPki:
    """One ROOT CA and the INTEGRATED CA of one component-directory."""

    __test__ = False

    def __init__(
        self, directory: str = "CD-1", root: str = "ROOT", now: datetime = NOW, years: int = 1
    ) -> None:
        self.now = now
        self.directory = component_code(directory)
        self.validity = Validity(now - years * YEAR, now + years * YEAR)
        wide = Validity(now - (years + 1) * YEAR, now + (years + 2) * YEAR)
        self.root_key = rsa_key(f"root {root}")
        self.root = build_root_ca(root, spki(self.root_key), signs(self.root_key), wide)
        self.ca_key = rsa_key(f"integrated ca {root} {directory}")
        request = CaRequest(integrated_ca_name(directory), "", spki(self.ca_key))
        issuer = Issuer(self.root, signs(self.root_key))
        self.integrated_ca = issue_integrated_ca(
            request, issuer, Validity(wide.not_before, now + (years + 1) * YEAR)
        )
        self.issuer = Issuer(self.integrated_ca, signs(self.ca_key))

    def component(
        self,
        code: str,
        kinds: Iterable[CertificateKind] = ENDPOINT_KINDS,
        validity: Validity | None = None,
        key_name: str | None = None,
    ) -> TestComponent:
        """`key_name` gives a component other keys than its code would, as after a renewal."""
        keys = {kind: rsa_key(f"{key_name or code} {kind}") for kind in kinds}
        certificates = tuple(
            read_certificate(
                issue(kind, code, spki(key), self.issuer, validity or self.validity), kind
            )
            for kind, key in keys.items()
        )
        return TestComponent(component_code(code), certificates, keys, self.integrated_ca)

    def installation(self, code: str) -> bytes:
        """The certificate that an administrator hands over (503 cl. 7.6), in DER."""
        key = rsa_key(f"{code} installation")
        validity = Validity(self.now - timedelta(minutes=5), self.now + YEAR)
        return issue_installation(code, spki(key), self.issuer, validity)


@functools.cache
def shared_pki() -> TestPki:
    """The one that most tests need."""
    return TestPki()


@functools.cache
def shared_endpoint(code: str) -> TestComponent:
    return shared_pki().component(code)
