"""Where followers of a journal were, in the database: whichever process follows next goes on from there."""

from __future__ import annotations

from gridpost.stores.postgres.session import connect
from gridpost.stores.postgres.settings import PostgresSettings

_LOAD = "SELECT value FROM meta WHERE name = %s"
_SAVE = """
    INSERT INTO meta (name, value) VALUES (%s, %s)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""


class PostgresCursor:
    """`services.operations.journal_follow.Cursor`, for one instance of a journal."""

    def __init__(self, settings: PostgresSettings, follower: str, instance: str) -> None:
        self._settings = settings
        self._name = f"cursor {follower} {instance}"

    def load(self) -> int | None:
        with connect(self._settings) as connection:
            found = connection.execute(_LOAD, (self._name,)).fetchone()
        return None if found is None else int(found[0])

    def save(self, sequence: int) -> None:
        with connect(self._settings) as connection:
            connection.execute(_SAVE, (self._name, str(sequence)))
