"""The certification authority of the subsystem: which certificates a registration leads to (503 cl. 8.3).

Holds the INTEGRATED CAs, of which the newest valid one issues. During a renewal the older ones stay,
because certificates that they issued are still shown and verified (8.5).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta

from cryptography.hazmat.primitives.asymmetric import rsa

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.identifiers import ComponentCode
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import RegistrationRequest
from gridpost.core.registry_office import IssuedCertificate, check_external
from gridpost.wire.x509 import (
    KEY_BITS,
    Issuer,
    Validity,
    issue,
    issue_installation,
    public_key,
    public_key_bytes,
    read_certificate,
    read_public_key,
)


def fingerprint(der: bytes) -> bytes:
    """How certificates are told apart in the books."""
    return hashlib.sha256(der).digest()


def key_digest(der: bytes) -> bytes:
    """The public key of a certificate in the books."""
    return hashlib.sha256(public_key_bytes(public_key(der))).digest()


def key_digests(request: RegistrationRequest) -> list[tuple[CertificateKind, bytes]]:
    """All keys that a request brings; one that cannot be used is refused (503 cl. 8.2)."""
    try:
        # Encoded again: two encodings of one key are one key.
        keys = [
            (k.kind, hashlib.sha256(public_key_bytes(_issuable(k.spki))).digest())
            for k in request.public_keys
        ]
        return keys + [(c.kind, key_digest(c.der)) for c in request.certificates]
    except Refusal as refusal:
        raise Refusal(Rule.REGISTRATION_KEYS, refusal.message, refusal.details) from refusal


def _issuable(spki: bytes) -> rsa.RSAPublicKey:
    key = read_public_key(spki)
    if key.key_size not in KEY_BITS:
        raise Refusal(
            Rule.REGISTRATION_KEYS,
            f"certificates are issued for keys of {', '.join(map(str, KEY_BITS))} bits, "
            f"not of {key.key_size}",
        )
    return key


def ledger_line(
    certificate: Certificate, code: ComponentCode, kind: str | None = None
) -> IssuedCertificate:
    return IssuedCertificate(
        fingerprint(certificate.der),
        key_digest(certificate.der),
        code,
        kind or certificate.kind.value,
        certificate.certificate_id,
        certificate.not_after,
    )


class Authority:
    """The INTEGRATED CA of this subsystem. Signing runs in a thread: RSA releases the lock."""

    def __init__(self, issuers: Sequence[Issuer], validity: timedelta) -> None:
        self.validity = validity
        self.replace(issuers)

    def replace(self, issuers: Sequence[Issuer]) -> None:
        """503 cl. 8.5: take over a renewed INTEGRATED CA while running."""
        read = [
            (read_certificate(i.certificate, CertificateKind.INTEGRATED_CA), i) for i in issuers
        ]
        self._issuers = sorted(read, key=lambda pair: pair[0].not_before, reverse=True)

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """All INTEGRATED_CA certificates, newest first."""
        return tuple(certificate for certificate, _ in self._issuers)

    def current(self, at: datetime) -> Issuer:
        for certificate, issuer in self._issuers:
            if certificate.valid_at(at):
                return issuer
        raise Refusal(
            Rule.INTERNAL,
            "no INTEGRATED CA certificate is valid: renew it with 'gridpost directory init'",
        )

    async def certify(self, request: RegistrationRequest, at: datetime) -> tuple[Certificate, ...]:
        """503 cl. 7.6: a certificate per generated key, and the external ones as they are."""
        return await asyncio.to_thread(self._certify, request, at)

    async def certify_own(
        self, code: ComponentCode, spki: bytes, at: datetime
    ) -> tuple[Certificate, bytes]:
        """503 cl. 8.3.2: the directory's own AUTHENTICATION certificate, and its issuer's."""
        issuer = self.current(at)
        der = await asyncio.to_thread(
            issue, CertificateKind.AUTHENTICATION, code, spki, issuer, self._period(at)
        )
        return read_certificate(der, CertificateKind.AUTHENTICATION), issuer.certificate

    async def invite(
        self, code: ComponentCode, spki: bytes, at: datetime, lasting: timedelta
    ) -> tuple[Certificate, bytes]:
        """An installation certificate (503 cl. 7.6), and its issuer's."""
        issuer = self.current(at)
        der = await asyncio.to_thread(
            issue_installation, code, spki, issuer, Validity.starting(at, lasting)
        )
        return read_certificate(der, CertificateKind.AUTHENTICATION), issuer.certificate

    def _certify(self, request: RegistrationRequest, at: datetime) -> tuple[Certificate, ...]:
        issuer = self.current(at)
        issued = [
            read_certificate(issue(k.kind, request.code, k.spki, issuer, self._period(at)), k.kind)
            for k in request.public_keys
        ]
        # 503 cl. 8.2: the certificate ID is ours to write for whatever we publish.
        external = [read_certificate(c.der, c.kind) for c in request.certificates]
        for certificate in external:
            check_external(certificate, at)
        return (*issued, *external)

    def _period(self, at: datetime) -> Validity:
        return Validity.starting(at, self.validity)
