"""The books of the registry office in SQLite: registrations, invitations and the ledger of certificates."""

from __future__ import annotations

import sqlite3
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

_REGISTRATION = """
    registration_id, request, status, submitted_at, submitted_by, extension, reason, decided_at,
    decided_by, issued
"""
_ADD_REGISTRATION = f"""
    INSERT INTO registration ({_REGISTRATION}, code) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SAVE_REGISTRATION = """
    UPDATE registration SET status = ?, reason = ?, decided_at = ?, decided_by = ?, issued = ?
    WHERE registration_id = ?
"""
_FIND_REGISTRATION = f"SELECT {_REGISTRATION} FROM registration WHERE registration_id = ?"
_REGISTRATIONS_OF = f"""
    SELECT {_REGISTRATION} FROM registration WHERE code = ? ORDER BY number DESC
"""
_SEARCH = f"""
    SELECT {_REGISTRATION} FROM registration WHERE ?1 IS NULL OR status = ?1
    ORDER BY number DESC LIMIT ?2
"""
_COUNT = "SELECT count(*) FROM registration WHERE status = ?"

_INVITATION = "fingerprint, code, created_at, created_by, expires_at, registration_id, withdrawn_at"
_ADD_INVITATION = f"INSERT INTO invitation ({_INVITATION}) VALUES (?, ?, ?, ?, ?, ?, ?)"
_SAVE_INVITATION = """
    UPDATE invitation SET registration_id = ?, withdrawn_at = ? WHERE fingerprint = ?
"""
_FIND_INVITATION = f"SELECT {_INVITATION} FROM invitation WHERE fingerprint = ?"
_INVITATIONS_OF = f"SELECT {_INVITATION} FROM invitation WHERE code = ? ORDER BY created_at"

_LINE = "fingerprint, key_digest, code, kind, certificate_id, not_after, revoked_at"
_RECORD = f"""
    INSERT INTO ledger ({_LINE}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (fingerprint) DO NOTHING
"""
_FIND_LINE = f"SELECT {_LINE} FROM ledger WHERE fingerprint = ?"
_LINES_OF_KEY = f"SELECT {_LINE} FROM ledger WHERE key_digest = ?"
_REVOKE = f"""
    UPDATE ledger SET revoked_at = ? WHERE code = ? AND revoked_at IS NULL RETURNING {_LINE}
"""


class SqliteRegistrations:
    """core.directory_ports.Registrations."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, registration: Registration) -> None:
        try:
            self._connection.execute(
                _ADD_REGISTRATION,
                (
                    registration.registration_id,
                    write_request(registration.request),
                    registration.status.value,
                    to_microseconds(registration.submitted_at),
                    registration.submitted_by,
                    int(registration.extension),
                    registration.reason,
                    _time(registration.decided_at),
                    registration.decided_by,
                    write_certificates(registration.issued),
                    registration.request.code,
                ),
            )
        except sqlite3.IntegrityError:
            raise ValueError("this registration is in the books already") from None

    def save(self, registration: Registration) -> None:
        saved = self._connection.execute(
            _SAVE_REGISTRATION,
            (
                registration.status.value,
                registration.reason,
                _time(registration.decided_at),
                registration.decided_by,
                write_certificates(registration.issued),
                registration.registration_id,
            ),
        )
        if saved.rowcount == 0:
            raise KeyError(registration.registration_id)

    def find(self, registration_id: str) -> Registration | None:
        found = self._connection.execute(_FIND_REGISTRATION, (registration_id,)).fetchone()
        return None if found is None else _registration(found)

    def of_component(self, code: str) -> Sequence[Registration]:
        rows = self._connection.execute(_REGISTRATIONS_OF, (code,)).fetchall()
        return [_registration(row) for row in rows]

    def search(self, status: RegistrationStatus | None, limit: int) -> Sequence[Registration]:
        wanted = None if status is None else status.value
        rows = self._connection.execute(_SEARCH, (wanted, limit)).fetchall()
        return [_registration(row) for row in rows]

    def count(self, status: RegistrationStatus) -> int:
        return int(self._connection.execute(_COUNT, (status.value,)).fetchone()[0])


class SqliteInvitations:
    """core.directory_ports.Invitations."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, invitation: Invitation) -> None:
        try:
            self._connection.execute(
                _ADD_INVITATION,
                (
                    invitation.fingerprint,
                    invitation.code,
                    to_microseconds(invitation.created_at),
                    invitation.created_by,
                    to_microseconds(invitation.expires_at),
                    invitation.registration_id,
                    _time(invitation.withdrawn_at),
                ),
            )
        except sqlite3.IntegrityError:
            raise ValueError("this invitation is in the books already") from None

    def save(self, invitation: Invitation) -> None:
        saved = self._connection.execute(
            _SAVE_INVITATION,
            (
                invitation.registration_id,
                _time(invitation.withdrawn_at),
                invitation.fingerprint,
            ),
        )
        if saved.rowcount == 0:
            raise KeyError(invitation.fingerprint.hex())

    def find(self, fingerprint: bytes) -> Invitation | None:
        found = self._connection.execute(_FIND_INVITATION, (fingerprint,)).fetchone()
        return None if found is None else _invitation(found)

    def of_component(self, code: str) -> Sequence[Invitation]:
        rows = self._connection.execute(_INVITATIONS_OF, (code,)).fetchall()
        return [_invitation(row) for row in rows]


class SqliteLedger:
    """core.directory_ports.Ledger."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def record(self, line: IssuedCertificate) -> None:
        self._connection.execute(
            _RECORD,
            (
                line.fingerprint,
                line.key_digest,
                line.code,
                line.kind,
                line.certificate_id,
                to_microseconds(line.not_after),
                _time(line.revoked_at),
            ),
        )

    def find(self, fingerprint: bytes) -> IssuedCertificate | None:
        found = self._connection.execute(_FIND_LINE, (fingerprint,)).fetchone()
        return None if found is None else _line(found)

    def of_key(self, key_digest: bytes) -> Sequence[IssuedCertificate]:
        rows = self._connection.execute(_LINES_OF_KEY, (key_digest,)).fetchall()
        return [_line(row) for row in rows]

    def revoke(self, code: str, at: datetime) -> Sequence[IssuedCertificate]:
        rows = self._connection.execute(_REVOKE, (to_microseconds(at), code)).fetchall()
        return [_line(row) for row in rows]


def _registration(row: Sequence[Any]) -> Registration:
    identifier, request, status, at, by, extension, reason, decided_at, decided_by, issued = row
    return Registration(
        identifier,
        read_request(request),
        RegistrationStatus(status),
        from_microseconds(at),
        by,
        bool(extension),
        reason,
        _read_time(decided_at),
        decided_by,
        read_certificates(issued),
    )


def _invitation(row: Sequence[Any]) -> Invitation:
    fingerprint, code, created_at, created_by, expires_at, registration_id, withdrawn_at = row
    return Invitation(
        fingerprint,
        ComponentCode(code),
        from_microseconds(created_at),
        created_by,
        from_microseconds(expires_at),
        registration_id,
        _read_time(withdrawn_at),
    )


def _line(row: Sequence[Any]) -> IssuedCertificate:
    fingerprint, key_digest, code, kind, certificate_id, not_after, revoked_at = row
    return IssuedCertificate(
        fingerprint,
        key_digest,
        ComponentCode(code),
        kind,
        certificate_id,
        from_microseconds(not_after),
        _read_time(revoked_at),
    )


def _time(at: datetime | None) -> int | None:
    return None if at is None else to_microseconds(at)


def _read_time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else from_microseconds(microseconds)
