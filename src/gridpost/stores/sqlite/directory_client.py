"""What an endpoint or broker keeps of component-directories: its copy, its own entry, its enrolment.

The copy is written by delete and replace (503 cl. 7.7.2), subsystem by subsystem, and only where
something has changed: most synchronisations write a few numbers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from gridpost.core.enrolment import Enrolment
from gridpost.core.identifiers import ComponentCode
from gridpost.core.own_entry import OwnEntry
from gridpost.core.synchronisation import Subsystem
from gridpost.stores.directory_values import read_component, write_component
from gridpost.stores.enrolment_values import read_enrolment, write_enrolment
from gridpost.stores.sqlite.journal import SqliteJournal
from gridpost.stores.values import from_microseconds, to_microseconds

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
        return None if row is None else read_enrolment(row[0], row[1])

    def save(self, enrolment: Enrolment) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO enrolment VALUES (1, ?, ?)",
            (enrolment.state.value, write_enrolment(enrolment)),
        )


class SqliteClientUnit:
    """core.ports.DirectoryClientWork in a database that holds no message box."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.directory_copy = SqliteDirectoryCopy(connection)
        self.own_entry = SqliteOwnEntry(connection)
        self.enrolment = SqliteEnrolment(connection)
        self.journal = SqliteJournal(connection)
