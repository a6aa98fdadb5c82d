"""What an endpoint or broker keeps of component-directories: its copy, its own entry, its enrolment.

The copy is written by delete and replace (503 cl. 7.7.2), subsystem by subsystem, and only where
something has changed: most synchronisations write a few numbers.
"""

from __future__ import annotations

import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Collection, Sequence
from typing import Any

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

DIRECTORY_CLIENT = (
    """
    CREATE TABLE copied_subsystem (
        component_directory TEXT PRIMARY KEY,
        place INTEGER NOT NULL,
        content_id TEXT NOT NULL,
        valid_until INTEGER
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE copied_component (
        component_directory TEXT NOT NULL
            REFERENCES copied_subsystem (component_directory) ON DELETE CASCADE,
        line INTEGER NOT NULL,
        component TEXT NOT NULL,
        PRIMARY KEY (component_directory, line)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE own_entry (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        component TEXT NOT NULL,
        revision INTEGER NOT NULL,
        pushed INTEGER NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE enrolment (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        state TEXT NOT NULL,
        record TEXT NOT NULL
    ) STRICT
    """,
)


class SqliteDirectoryCopy:
    """core.ports.DirectoryCopy."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def load(self) -> Sequence[Subsystem]:
        rows = self._connection.execute(
            "SELECT component_directory, content_id, valid_until FROM copied_subsystem ORDER BY place"
        ).fetchall()
        return [
            Subsystem(
                ComponentCode(code),
                content_id,
                tuple(read_component(text) for (text,) in self._components(code)),
                None if until is None else from_microseconds(until),
            )
            for code, content_id, until in rows
        ]

    def save(self, subsystems: Sequence[Subsystem], changed: Collection[str]) -> None:
        rows = self._connection.execute(
            "SELECT component_directory, content_id FROM copied_subsystem"
        )
        held: dict[str, str] = dict(rows.fetchall())
        wanted = {s.component_directory for s in subsystems}
        for code in held.keys() - wanted:
            self._delete(code)
        for place, subsystem in enumerate(subsystems):
            code, until = subsystem.component_directory, subsystem.valid_until
            if code in changed or held.get(code) != subsystem.content_id:
                self._delete(code)
            self._connection.execute(
                "INSERT INTO copied_subsystem VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE "
                "SET place = excluded.place, valid_until = excluded.valid_until",
                (
                    code,
                    place,
                    subsystem.content_id,
                    None if until is None else to_microseconds(until),
                ),
            )
            if code in changed or held.get(code) != subsystem.content_id:
                self._connection.executemany(
                    "INSERT INTO copied_component VALUES (?, ?, ?)",
                    [
                        (code, line, write_component(component))
                        for line, component in enumerate(subsystem.components)
                    ],
                )

    def _components(self, code: str) -> sqlite3.Cursor:
        return self._connection.execute(
            "SELECT component FROM copied_component WHERE component_directory = ? ORDER BY line",
            (code,),
        )

    def _delete(self, code: str) -> None:
        for table in ("copied_component", "copied_subsystem"):
            self._connection.execute(f"DELETE FROM {table} WHERE component_directory = ?", (code,))


class SqliteOwnEntry:
    """core.ports.OwnEntryStore."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def load(self) -> OwnEntry | None:
        row = self._connection.execute(
            "SELECT component, revision, pushed FROM own_entry"
        ).fetchone()
        return None if row is None else OwnEntry(read_component(row[0]), row[1], row[2])

    def save(self, entry: OwnEntry) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO own_entry VALUES (1, ?, ?, ?)",
            (write_component(entry.component), entry.revision, entry.pushed),
        )


class SqliteEnrolment:
    """core.ports.EnrolmentStore. Private keys are not here: they are in the keyring."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def load(self) -> Enrolment | None:
        row = self._connection.execute("SELECT state, record FROM enrolment").fetchone()
        return None if row is None else _read(row[0], read_json(row[1]))

    def save(self, enrolment: Enrolment) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO enrolment VALUES (1, ?, ?)",
            (enrolment.state.value, write_json(_plain(enrolment))),
        )


class SqliteClientUnit:
    """core.ports.DirectoryClientWork in a database that holds no message box."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.directory_copy = SqliteDirectoryCopy(connection)
        self.own_entry = SqliteOwnEntry(connection)
        self.enrolment = SqliteEnrolment(connection)
        self.journal = SqliteJournal(connection)


def _plain(enrolment: Enrolment) -> dict[str, Any]:
    home = enrolment.home
    return {
        "home": {
            "code": home.code,
            "urls": list(home.urls),
            "certificates": write_certificates(home.certificates),
            "roots": [b64encode(root).decode("ascii") for root in home.roots],
        },
        "request": write_request(enrolment.request),
        "extension": enrolment.extension,
        "connect_with": write_certificates((enrolment.connect_with,)),
        "registration_id": enrolment.registration_id,
        "reason": enrolment.reason,
        "certificates": write_certificates(enrolment.certificates),
    }


def _read(state: str, plain: dict[str, Any]) -> Enrolment:
    home = plain["home"]
    (connect_with,) = read_certificates(plain["connect_with"])
    return Enrolment(
        EnrolmentState(state),
        Home(
            ComponentCode(home["code"]),
            tuple(home["urls"]),
            read_certificates(home["certificates"]),
            tuple(b64decode(root) for root in home["roots"]),
        ),
        read_request(plain["request"]),
        plain["extension"],
        connect_with,
        plain["registration_id"],
        plain["reason"],
        read_certificates(plain["certificates"]),
    )
