"""Certificates as the directory publishes them: kinds, whose they are, which one to use and until when.

Nothing here parses or verifies X.509; `wire/x509.py` reads a certificate into these values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class CertificateKind(StrEnum):
    """503 Table 19."""

    AUTHENTICATION = "AUTHENTICATION"
    ENCRYPTION = "ENCRYPTION"
    SIGNING = "SIGNING"
    INTEGRATED_CA = "INTEGRATED_CA"


@dataclass(frozen=True, slots=True)
class Certificate:
    """503 Table 19, with the facts of the certificate that rules look at.

    `certificate_id` is the text that the directory published: for foreign certificates it is
    opaque (see divergences, certificate ID).
    """

    certificate_id: str
    kind: CertificateKind
    der: bytes
    not_before: datetime
    not_after: datetime
    subject_code: str = ""
    """Common name of the subject; empty when there is none."""

    def valid_at(self, at: datetime) -> bool:
        """RFC 5280 4.1.2.5: both ends belong to the validity period."""
        return self.not_before <= at <= self.not_after


def of_kind(certificates: Iterable[Certificate], kind: CertificateKind) -> list[Certificate]:
    return [certificate for certificate in certificates if certificate.kind is kind]


def select(
    certificates: Iterable[Certificate], kind: CertificateKind, at: datetime
) -> Certificate | None:
    """503 cl. 8.5: among the valid ones of a kind, the one that expires first."""
    valid = [c for c in of_kind(certificates, kind) if c.valid_at(at)]
    return min(valid, key=lambda c: (c.not_after, c.certificate_id), default=None)


def expiring(
    certificates: Iterable[Certificate], at: datetime, warning: timedelta
) -> list[Certificate]:
    """503 cl. 10: certificates without a later one of their kind that end within `warning`.

    Those that have expired are among them: until there is a later one they are what is in use.
    """
    known = list(certificates)
    return [
        c
        for c in known
        if c.not_after <= at + warning
        and not any(o.kind is c.kind and o.not_after > c.not_after for o in known)
    ]


def still_published(certificate: Certificate, at: datetime, grace: timedelta) -> bool:
    """503 cl. 8.5: the home directory goes on publishing for a while after expiry."""
    return at <= certificate.not_after + grace
