"""One transaction of a bus in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from gridpost.core.journal import JournalRow
from gridpost.stores.bus_unit import SqlBusUnit
from gridpost.stores.sqlite.journal import SqliteJournal


class SqliteBusUnit(SqlBusUnit):
    """core.bus.BusUnit."""

    __slots__ = ("_connection", "_journal")

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection
        self._journal = SqliteJournal(connection)

    def _run(self, statement: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._connection.execute(statement, parameters)

    def _run_all(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._connection.executemany(statement, rows)

    @property
    def journal(self) -> SqliteJournal:
        return self._journal

    def record(self, row: JournalRow) -> None:
        self._journal.append(row)

    def prune(self, now: datetime, retention: timedelta, keep_exported: timedelta) -> int:
        return self._journal.prune(now, retention, keep_exported=keep_exported)
