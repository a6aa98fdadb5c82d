"""What a client of the component-directory keeps in SQLite: copy, own entry, registration.

The tables can stand in any database of a component; `TABLES` is part of that database's migrations.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from typing import Any

from gridpost.core.certificate import Certificate
from gridpost.core.enrolment import Enrolment, EnrolmentState, Home
from gridpost.core.identifiers import ComponentCode
from gridpost.core.own_entry import OwnEntry
from gridpost.core.synchronisation import Subsystem
from gridpost.stores.directory_values import (
    read_certificates,
    read_component,
    read_request,
    write_certificates,
    write_component,
    write_request,
)
from gridpost.stores.sqlite.journal import SqliteJournal
from gridpost.stores.values import from_microseconds, read_json, to_microseconds, write_json

TABLES = (
    """
    CREATE TABLE copied_subsystem (
        place INTEGER NOT NULL,
        component_directory TEXT PRIMARY KEY,
        content_id TEXT NOT NULL,
        valid_until INTEGER,
        components TEXT NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE TABLE directory_client (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
)
_SAVE = "INSERT OR REPLACE INTO directory_client (name, value) VALUES (?, ?)"
_LOAD = "SELECT value FROM directory_client WHERE name = ?"


class SqliteDirectoryCopy:
    """core.ports.DirectoryCopy."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def load(self) -> Sequence[Subsystem]:
        rows = self._connection.execute(
            "SELECT component_directory, content_id, valid_until, components "
            "FROM copied_subsystem ORDER BY place"
        ).fetchall()
        return [
            Subsystem(
                ComponentCode(code),
                content_id,
                tuple(read_component(text) for text in read_json(components)),
                None if valid_until is None else from_microseconds(valid_until),
            )
            for code, content_id, valid_until, components in rows
        ]

    def save(self, subsystems: Sequence[Subsystem], changed: Collection[str]) -> None:
        execute = self._connection.execute
        kept = {s.component_directory for s in subsystems}
        for (code,) in execute("SELECT component_directory FROM copied_subsystem").fetchall():
            if code not in kept or code in changed:
                execute("DELETE FROM copied_subsystem WHERE component_directory = ?", (code,))
        for place, subsystem in enumerate(subsystems):
            until = subsystem.valid_until
            valid_until = None if until is None else to_microseconds(until)
            known = execute(
                "UPDATE copied_subsystem SET place = ?, valid_until = ? "
                "WHERE component_directory = ?",
                (place, valid_until, subsystem.component_directory),
            ).rowcount
            if not known:
                components = write_json([write_component(c) for c in subsystem.components])
                execute(
                    "INSERT INTO copied_subsystem VALUES (?, ?, ?, ?, ?)",
                    (
                        place,
                        subsystem.component_directory,
                        subsystem.content_id,
                        valid_until,
                        components,
                    ),
                )


class SqliteOwnEntry:
    """core.ports.OwnEntryStore."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def load(self) -> OwnEntry | None:
        found = self._connection.execute(_LOAD, ("own_entry",)).fetchone()
        if found is None:
            return None
        plain: dict[str, Any] = read_json(found[0])
        return OwnEntry(read_component(plain["component"]), plain["revision"], plain["pushed"])

    def save(self, entry: OwnEntry) -> None:
        value = write_json(
            {
                "component": write_component(entry.component),
                "revision": entry.revision,
                "pushed": entry.pushed,
            }
        )
        self._connection.execute(_SAVE, ("own_entry", value))


class SqliteEnrolment:
    """core.ports.EnrolmentStore."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def load(self) -> Enrolment | None:
        found = self._connection.execute(_LOAD, ("enrolment",)).fetchone()
        if found is None:
            return None
        plain: dict[str, Any] = read_json(found[0])
        home = plain["home"]
        return Enrolment(
            EnrolmentState(plain["state"]),
            Home(
                ComponentCode(home["code"]),
                tuple(home["urls"]),
                read_certificates(home["certificates"]),
                tuple(bytes.fromhex(root) for root in home["roots"]),
            ),
            read_request(plain["request"]),
            plain["extension"],
            _one(plain["connect_with"]),
            plain["registration_id"],
            plain["reason"],
            read_certificates(plain["certificates"]),
        )

    def save(self, enrolment: Enrolment) -> None:
        home = enrolment.home
        value = write_json(
            {
                "state": enrolment.state,
                "home": {
                    "code": home.code,
                    "urls": home.urls,
                    "certificates": write_certificates(home.certificates),
                    "roots": [root.hex() for root in home.roots],
                },
                "request": write_request(enrolment.request),
                "extension": enrolment.extension,
                "connect_with": write_certificates([enrolment.connect_with]),
                "registration_id": enrolment.registration_id,
                "reason": enrolment.reason,
                "certificates": write_certificates(enrolment.certificates),
            }
        )
        self._connection.execute(_SAVE, ("enrolment", value))


class SqliteClientUnit:
    """core.ports.DirectoryClientWork."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.directory_copy = SqliteDirectoryCopy(connection)
        self.own_entry = SqliteOwnEntry(connection)
        self.enrolment = SqliteEnrolment(connection)
        self.journal = SqliteJournal(connection)


def _one(text: str) -> Certificate:
    (certificate,) = read_certificates(text)
    return certificate
