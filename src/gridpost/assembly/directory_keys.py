"""The keys of a component-directory: its INTEGRATED CAs and the certificate of its own connections.

The key of the ROOT CA is never here: the directory writes a certification request, and takes back
what the ROOT CA made of it (503 cl. 8.3.2). After a renewal the older INTEGRATED CA stays, because
certificates that it issued are still in use (8.5).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding

from gridpost.core.certificate import Certificate, CertificateKind, of_kind
from gridpost.core.https import TlsCredentials
from gridpost.core.identifiers import ComponentCode
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.component_directory.authority import Authority
from gridpost.services.component_directory.papers import NewKey
from gridpost.stores.keys import rsa_operations
from gridpost.stores.keys.files import FileKeyring
from gridpost.wire.x509 import (
    CaRequest,
    Issuer,
    Purpose,
    Validity,
    integrated_ca_name,
    issue,
    public_key,
    public_key_bytes,
    read_certificate,
    verify_chain,
    write_ca_request,
)

REQUEST_FILE = "integrated-ca.csr"


def make_key() -> NewKey:
    """A key pair for somebody else."""
    key = rsa_operations.generate()
    return NewKey(rsa_operations.to_pkcs8(key), public_key_bytes(key.public_key()))


class HasContact(Protocol):
    @property
    def organization(self) -> str: ...


class KeyOwner(Protocol):
    """What is needed of a configuration; a node of MADES 1.1 has an INTEGRATED CA as well."""

    @property
    def code(self) -> str: ...

    @property
    def home(self) -> Path: ...

    @property
    def contact(self) -> HasContact: ...

    def passphrase(self) -> bytes | None: ...

    def trusted_roots(self) -> tuple[bytes, ...]: ...


class DirectoryKeys:
    """Over a folder; `reload` sees what the command line has put there in the meantime."""

    def __init__(self, configuration: KeyOwner) -> None:
        self._configuration = configuration
        configuration.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.reload()

    def configure(self, configuration: KeyOwner) -> None:
        """Other roots, another contact; the folder stays."""
        self._configuration = configuration

    def reload(self) -> None:
        self._ring = FileKeyring(
            self._configuration.home / "keys", self._configuration.passphrase()
        )

    def state(self) -> frozenset[tuple[str, int, int]]:
        """Tells whether `reload` would see anything new."""
        found = set()
        for file in (self._configuration.home / "keys").iterdir():
            with suppress(FileNotFoundError):
                status = file.stat()
                found.add((file.name, status.st_mtime_ns, status.st_size))
        return frozenset(found)

    def roots(self) -> tuple[bytes, ...]:
        return self._configuration.trusted_roots()

    @property
    def authorities(self) -> list[Certificate]:
        return of_kind(self._ring.certificates(), CertificateKind.INTEGRATED_CA)

    @property
    def own(self) -> list[Certificate]:
        return of_kind(self._ring.certificates(), CertificateKind.AUTHENTICATION)

    def issuers(self) -> list[Issuer]:
        return [
            Issuer(c.der, self._ring.sign_function(public_key_bytes(public_key(c.der))))
            for c in self.authorities
        ]

    def request(self) -> Path:
        """A new key for an INTEGRATED CA, and the request to have it certified (PKCS#10, PEM)."""
        spki = self._ring.create_key()
        request = CaRequest(
            integrated_ca_name(self._configuration.code),
            self._configuration.contact.organization,
            spki,
        )
        der = write_ca_request(request, self._ring.sign_function(spki))
        file = self._configuration.home / REQUEST_FILE
        file.write_bytes(x509.load_der_x509_csr(der).public_bytes(Encoding.PEM))
        return file

    def install_authority(self, der: bytes, at: datetime) -> Certificate:
        """The answer of the ROOT CA. Refused unless it is ours, a CA, and of a trusted root."""
        certificate = read_certificate(der, CertificateKind.INTEGRATED_CA)
        if certificate.subject_code != integrated_ca_name(self._configuration.code):
            raise Refusal(
                Rule.BAD_CERTIFICATE,
                f"the certificate is that of '{certificate.subject_code}', not of "
                f"'{integrated_ca_name(self._configuration.code)}'",
            )
        self._prove(certificate, at)
        self._ring.install(certificate)
        return certificate

    def _prove(self, authority: Certificate, at: datetime) -> None:
        """Issue something with it and verify that as a peer would: then the whole chain is good."""
        spki = public_key_bytes(public_key(authority.der))
        issuer = Issuer(authority.der, self._ring.sign_function(spki))
        probe = _issue_probe(self._configuration.code, spki, issuer, at)
        verify_chain(
            [probe, authority.der], self._configuration.trusted_roots(), at, Purpose.SERVER
        )

    async def renew_own(self, authority: Authority, at: datetime, ahead: timedelta) -> bool:
        """A new AUTHENTICATION certificate when there is none, it ends soon, or the CA changed."""
        newest = authority.current(at).certificate
        good = [
            c
            for c in self.own
            if c.valid_at(at) and c.not_after - at > ahead and issued_by(c, newest)
        ]
        if good:
            return False
        spki = self._ring.create_key()
        code = ComponentCode(self._configuration.code)
        certificate, _ = await authority.certify_own(code, spki, at)
        self._ring.install(certificate)
        return True

    def credentials(self, at: Callable[[], datetime]) -> Callable[[], TlsCredentials]:
        """503 cl. 8.4.1: own certificate and its issuer; the newest valid one."""

        def current() -> TlsCredentials:
            valid = [c for c in self.own if c.valid_at(at())]
            if not valid:
                raise Refusal(Rule.CERTIFICATE_EXPIRED, "no own certificate is valid")
            newest = max(valid, key=lambda c: c.not_before)
            issuer = next(c for c in self.authorities if issued_by(newest, c.der))
            spki = public_key_bytes(public_key(newest.der))
            return TlsCredentials(
                (newest.der, issuer.der),
                self._ring.export_key(spki),
                self._configuration.trusted_roots(),
            )

        return current

    def published(self) -> tuple[Certificate, ...]:
        """503 Table 18: what stands in the directory's own entry."""
        return tuple(sorted((*self.own, *self.authorities), key=lambda c: (c.kind, c.not_before)))


def issued_by(certificate: Certificate, issuer: bytes) -> bool:
    try:
        x509.load_der_x509_certificate(certificate.der).verify_directly_issued_by(
            x509.load_der_x509_certificate(issuer)
        )
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _issue_probe(code: str, spki: bytes, issuer: Issuer, at: datetime) -> bytes:
    return issue(
        CertificateKind.AUTHENTICATION,
        code,
        spki,
        issuer,
        Validity.starting(at, timedelta(minutes=5)),
    )
