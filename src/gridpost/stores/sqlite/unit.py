"""The unit of work of one work: message box and journal over one connection."""

from __future__ import annotations

import sqlite3

from gridpost.stores.sqlite.bodies import WorkFiles
from gridpost.stores.sqlite.box import SqliteBox
from gridpost.stores.sqlite.journal import SqliteJournal


class SqliteUnit:
    """core.ports.UnitOfWork. Made anew for each work, because each work undoes its own files."""

    __slots__ = ("box", "files", "journal")

    def __init__(self, connection: sqlite3.Connection, files: WorkFiles) -> None:
        self.files = files
        self.box = SqliteBox(connection, files)
        self.journal = SqliteJournal(connection)
