"""The books of the registry office in SQLite: registrations, invitations and the ledger of certificates."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from gridpost.core.registration import Registration, RegistrationStatus
from gridpost.core.registry_office import Invitation, IssuedCertificate
from gridpost.stores.registry_rows import (
    INVITATION,
    LINE,
    REGISTRATION,
    read_invitation,
    read_line,
    read_registration,
    write_decision,
    write_invitation,
    write_line,
    write_registration,
    write_time,
)
from gridpost.stores.values import to_microseconds

_ADD_REGISTRATION = f"""
    INSERT INTO registration ({REGISTRATION}, code) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SAVE_REGISTRATION = """
    UPDATE registration SET status = ?, reason = ?, decided_at = ?, decided_by = ?, issued = ?
    WHERE registration_id = ?
"""
_FIND_REGISTRATION = f"SELECT {REGISTRATION} FROM registration WHERE registration_id = ?"
_REGISTRATIONS_OF = f"""
    SELECT {REGISTRATION} FROM registration WHERE code = ? ORDER BY number DESC
"""
_SEARCH = f"""
    SELECT {REGISTRATION} FROM registration WHERE :status IS NULL OR status = :status
    ORDER BY number DESC LIMIT :limit
"""
_COUNT = "SELECT count(*) FROM registration WHERE status = ?"

_ADD_INVITATION = f"INSERT INTO invitation ({INVITATION}) VALUES (?, ?, ?, ?, ?, ?, ?)"
_SAVE_INVITATION = """
    UPDATE invitation SET registration_id = ?, withdrawn_at = ? WHERE fingerprint = ?
"""
_FIND_INVITATION = f"SELECT {INVITATION} FROM invitation WHERE fingerprint = ?"
_INVITATIONS_OF = f"SELECT {INVITATION} FROM invitation WHERE code = ? ORDER BY created_at"

_RECORD = f"""
    INSERT INTO ledger ({LINE}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (fingerprint) DO NOTHING
"""
_FIND_LINE = f"SELECT {LINE} FROM ledger WHERE fingerprint = ?"
_LINES_OF_KEY = f"SELECT {LINE} FROM ledger WHERE key_digest = ?"
_REVOKE = f"""
    UPDATE ledger SET revoked_at = ? WHERE code = ? AND revoked_at IS NULL RETURNING {LINE}
"""


class SqliteRegistrations:
    """core.directory_ports.Registrations."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, registration: Registration) -> None:
        try:
            self._connection.execute(_ADD_REGISTRATION, write_registration(registration))
        except sqlite3.IntegrityError:
            raise ValueError("this registration is in the books already") from None

    def save(self, registration: Registration) -> None:
        saved = self._connection.execute(_SAVE_REGISTRATION, write_decision(registration))
        if saved.rowcount == 0:
            raise KeyError(registration.registration_id)

    def find(self, registration_id: str) -> Registration | None:
        found = self._connection.execute(_FIND_REGISTRATION, (registration_id,)).fetchone()
        return None if found is None else read_registration(found)

    def of_component(self, code: str) -> Sequence[Registration]:
        rows = self._connection.execute(_REGISTRATIONS_OF, (code,)).fetchall()
        return [read_registration(row) for row in rows]

    def search(self, status: RegistrationStatus | None, limit: int) -> Sequence[Registration]:
        wanted = None if status is None else status.value
        rows = self._connection.execute(_SEARCH, {"status": wanted, "limit": limit}).fetchall()
        return [read_registration(row) for row in rows]

    def count(self, status: RegistrationStatus) -> int:
        return int(self._connection.execute(_COUNT, (status.value,)).fetchone()[0])


class SqliteInvitations:
    """core.directory_ports.Invitations."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, invitation: Invitation) -> None:
        try:
            self._connection.execute(_ADD_INVITATION, write_invitation(invitation))
        except sqlite3.IntegrityError:
            raise ValueError("this invitation is in the books already") from None

    def save(self, invitation: Invitation) -> None:
        saved = self._connection.execute(
            _SAVE_INVITATION,
            (
                invitation.registration_id,
                write_time(invitation.withdrawn_at),
                invitation.fingerprint,
            ),
        )
        if saved.rowcount == 0:
            raise KeyError(invitation.fingerprint.hex())

    def find(self, fingerprint: bytes) -> Invitation | None:
        found = self._connection.execute(_FIND_INVITATION, (fingerprint,)).fetchone()
        return None if found is None else read_invitation(found)

    def of_component(self, code: str) -> Sequence[Invitation]:
        rows = self._connection.execute(_INVITATIONS_OF, (code,)).fetchall()
        return [read_invitation(row) for row in rows]


class SqliteLedger:
    """core.directory_ports.Ledger."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def record(self, line: IssuedCertificate) -> None:
        self._connection.execute(_RECORD, write_line(line))

    def find(self, fingerprint: bytes) -> IssuedCertificate | None:
        found = self._connection.execute(_FIND_LINE, (fingerprint,)).fetchone()
        return None if found is None else read_line(found)

    def of_key(self, key_digest: bytes) -> Sequence[IssuedCertificate]:
        rows = self._connection.execute(_LINES_OF_KEY, (key_digest,)).fetchall()
        return [read_line(row) for row in rows]

    def revoke(self, code: str, at: datetime) -> Sequence[IssuedCertificate]:
        rows = self._connection.execute(_REVOKE, (to_microseconds(at), code)).fetchall()
        return [read_line(row) for row in rows]
