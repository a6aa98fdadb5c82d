"""The books of the registry office as rows of a database, whichever: what is written and read back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gridpost.core.identifiers import ComponentCode
from gridpost.core.registration import Registration, RegistrationStatus
from gridpost.core.registry_office import Invitation, IssuedCertificate
from gridpost.stores.directory_values import (
    read_certificates,
    read_request,
    write_certificates,
    write_request,
)
from gridpost.stores.values import from_microseconds, to_microseconds

REGISTRATION = """
    registration_id, request, status, submitted_at, submitted_by, extension, reason, decided_at,
    decided_by, issued
"""
INVITATION = "fingerprint, code, created_at, created_by, expires_at, registration_id, withdrawn_at"
LINE = "fingerprint, key_digest, code, kind, certificate_id, not_after, revoked_at"


def write_registration(registration: Registration) -> tuple[Any, ...]:
    """The columns of REGISTRATION, and the code by which it is found."""
    return (
        registration.registration_id,
        write_request(registration.request),
        registration.status.value,
        to_microseconds(registration.submitted_at),
        registration.submitted_by,
        registration.extension,
        registration.reason,
        write_time(registration.decided_at),
        registration.decided_by,
        write_certificates(registration.issued),
        registration.request.code,
    )


def write_decision(registration: Registration) -> tuple[Any, ...]:
    """status, reason, decided_at, decided_by, issued; and the id."""
    return (
        registration.status.value,
        registration.reason,
        write_time(registration.decided_at),
        registration.decided_by,
        write_certificates(registration.issued),
        registration.registration_id,
    )


def read_registration(row: Sequence[Any]) -> Registration:
    identifier, request, status, at, by, extension, reason, decided_at, decided_by, issued = row
    return Registration(
        identifier,
        read_request(request),
        RegistrationStatus(status),
        from_microseconds(at),
        by,
        bool(extension),
        reason,
        read_time(decided_at),
        decided_by,
        read_certificates(issued),
    )


def write_invitation(invitation: Invitation) -> tuple[Any, ...]:
    return (
        invitation.fingerprint,
        invitation.code,
        to_microseconds(invitation.created_at),
        invitation.created_by,
        to_microseconds(invitation.expires_at),
        invitation.registration_id,
        write_time(invitation.withdrawn_at),
    )


def read_invitation(row: Sequence[Any]) -> Invitation:
    fingerprint, code, created_at, created_by, expires_at, registration_id, withdrawn_at = row
    return Invitation(
        fingerprint,
        ComponentCode(code),
        from_microseconds(created_at),
        created_by,
        from_microseconds(expires_at),
        registration_id,
        read_time(withdrawn_at),
    )


def write_line(line: IssuedCertificate) -> tuple[Any, ...]:
    return (
        line.fingerprint,
        line.key_digest,
        line.code,
        line.kind,
        line.certificate_id,
        to_microseconds(line.not_after),
        write_time(line.revoked_at),
    )


def read_line(row: Sequence[Any]) -> IssuedCertificate:
    fingerprint, key_digest, code, kind, certificate_id, not_after, revoked_at = row
    return IssuedCertificate(
        fingerprint,
        key_digest,
        ComponentCode(code),
        kind,
        certificate_id,
        from_microseconds(not_after),
        read_time(revoked_at),
    )


def write_time(at: datetime | None) -> int | None:
    return None if at is None else to_microseconds(at)


def read_time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else from_microseconds(microseconds)
