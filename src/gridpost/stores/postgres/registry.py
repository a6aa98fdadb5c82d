"""The books of the registry office in PostgreSQL: registrations, invitations, the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gridpost.core.registration import Registration, RegistrationStatus
from gridpost.core.registry_office import Invitation, IssuedCertificate
from gridpost.stores.postgres.session import Connection
from gridpost.stores.postgres.text import storable
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
    INSERT INTO registration ({REGISTRATION}, code)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""
_SAVE_REGISTRATION = """
    UPDATE registration SET status = %s, reason = %s, decided_at = %s, decided_by = %s, issued = %s
    WHERE registration_id = %s
"""
_FIND_REGISTRATION = f"SELECT {REGISTRATION} FROM registration WHERE registration_id = %s"
_REGISTRATIONS_OF = f"""
    SELECT {REGISTRATION} FROM registration WHERE code = %s ORDER BY number DESC
"""
_SEARCH = f"""
    SELECT {REGISTRATION} FROM registration WHERE %(status)s::text IS NULL OR status = %(status)s
    ORDER BY number DESC LIMIT %(limit)s
"""
_COUNT = "SELECT count(*) FROM registration WHERE status = %s"

_ADD_INVITATION = f"""
    INSERT INTO invitation ({INVITATION}) VALUES (%s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT DO NOTHING
"""
_SAVE_INVITATION = """
    UPDATE invitation SET registration_id = %s, withdrawn_at = %s WHERE fingerprint = %s
"""
_FIND_INVITATION = f"SELECT {INVITATION} FROM invitation WHERE fingerprint = %s"
_INVITATIONS_OF = f"SELECT {INVITATION} FROM invitation WHERE code = %s ORDER BY created_at"

_RECORD = f"""
    INSERT INTO ledger ({LINE}) VALUES (%s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (fingerprint) DO NOTHING
"""
_FIND_LINE = f"SELECT {LINE} FROM ledger WHERE fingerprint = %s"
_LINES_OF_KEY = f"SELECT {LINE} FROM ledger WHERE key_digest = %s"
_REVOKE = f"""
    UPDATE ledger SET revoked_at = %s WHERE code = %s AND revoked_at IS NULL RETURNING {LINE}
"""


class PostgresRegistrations:
    """core.directory_ports.Registrations."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, registration: Registration) -> None:
        added = self._connection.execute(_ADD_REGISTRATION, write_registration(registration))
        if added.rowcount == 0:
            raise ValueError("this registration is in the books already")

    def save(self, registration: Registration) -> None:
        saved = self._connection.execute(_SAVE_REGISTRATION, write_decision(registration))
        if saved.rowcount == 0:
            raise KeyError(registration.registration_id)

    def find(self, registration_id: str) -> Registration | None:
        if not storable(registration_id):
            return None
        found = self._connection.execute(_FIND_REGISTRATION, (registration_id,)).fetchone()
        return None if found is None else read_registration(found)

    def of_component(self, code: str) -> Sequence[Registration]:
        if not storable(code):
            return []
        rows = self._connection.execute(_REGISTRATIONS_OF, (code,)).fetchall()
        return [read_registration(row) for row in rows]

    def search(self, status: RegistrationStatus | None, limit: int) -> Sequence[Registration]:
        wanted = None if status is None else status.value
        rows = self._connection.execute(_SEARCH, {"status": wanted, "limit": limit}).fetchall()
        return [read_registration(row) for row in rows]

    def count(self, status: RegistrationStatus) -> int:
        found = self._connection.execute(_COUNT, (status.value,)).fetchone()
        return int(found[0]) if found else 0


class PostgresInvitations:
    """core.directory_ports.Invitations."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, invitation: Invitation) -> None:
        added = self._connection.execute(_ADD_INVITATION, write_invitation(invitation))
        if added.rowcount == 0:
            raise ValueError("this invitation is in the books already")

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
        if not storable(code):
            return []
        rows = self._connection.execute(_INVITATIONS_OF, (code,)).fetchall()
        return [read_invitation(row) for row in rows]


class PostgresLedger:
    """core.directory_ports.Ledger."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
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
        if not storable(code):
            return []
        rows = self._connection.execute(_REVOKE, (to_microseconds(at), code)).fetchall()
        return [read_line(row) for row in rows]
