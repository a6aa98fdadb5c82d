"""What the works of one transaction share: rows that go into their tables together, and what is known.

Most tables are only added to, and nobody looks at them again before the transaction ends. Their rows
wait here and go in with one statement a table; whoever does look calls `flush` first. A work that is
undone takes its own rows with it and no others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from gridpost.stores.sqlite.known_entries import KnownEntries
from gridpost.stores.sqlite.lately import LatelyEnqueued
from gridpost.stores.sqlite.statements import insert_rows

_PAPERS = 1_000

Row = tuple[str, Sequence[Any]]
"""What `insert_rows` takes: the head of the statement, and one row of values."""


class Group:
    """Of one connection. Works follow each other, each between `begin_work` and the next one."""

    __slots__ = (
        "_early",
        "_firsts",
        "_kept",
        "_kept_numbers",
        "_numbers",
        "_papers",
        "_rows",
        "connection",
        "entries",
        "lately",
    )

    def __init__(
        self, connection: sqlite3.Connection, lately: LatelyEnqueued | None = None
    ) -> None:
        self.connection = connection
        self.lately = LatelyEnqueued() if lately is None else lately
        self.entries = KnownEntries(connection)
        self._papers: dict[bytes, int] = {}
        self.begin()

    def begin(self) -> None:
        """A transaction begins; nothing of the last one waits any more."""
        self._rows: list[Row] = []
        self._numbers: dict[str, int] = {}
        self._firsts: dict[str, int] = {}
        self.begin_work()

    def begin_work(self) -> None:
        self._kept = len(self._rows)
        self._kept_numbers = self._numbers.copy()
        self._early: list[Row] = []
        """Rows that went into tables since then, and leave them when the work is undone."""

    @property
    def has_rows_of_work(self) -> bool:
        return len(self._early) + len(self._rows) > self._kept

    def undo_work(self) -> None:
        self._rows = (self._early + self._rows)[: self._kept]
        self._numbers = self._kept_numbers
        self._early = []
        self.forget()

    def forget(self) -> None:
        """Something was rolled back, or went in a way that is not followed here."""
        self.entries.clear()
        self.lately.clear()
        self._papers.clear()

    def add(self, head: str, row: Sequence[Any]) -> None:
        self._rows.append((head, row))

    def next_number(self, table: str, last: str) -> int:
        """For a row of a table that is numbered here; `last` asks for the highest number so far."""
        number = self._numbers.get(table)
        if number is None:
            (number,) = self.connection.execute(last).fetchone()
            self._firsts[table] = int(number) + 1
        self._numbers[table] = number = int(number) + 1
        return number

    def is_new(self, table: str, number: int) -> bool:
        """Whether a row may have been given its number in this transaction."""
        return table in self._firsts and number >= self._firsts[table]

    def flush(self) -> None:
        if not self._rows:
            return
        tables: dict[str, list[Sequence[Any]]] = {}
        for head, row in self._rows:
            tables.setdefault(head, []).append(row)
        for head, rows in tables.items():
            insert_rows(self.connection, head, rows)
        self._early += self._rows
        self._rows = []

    def paper(self, digest: bytes) -> int | None:
        """The number of an archived paper, where it was met lately."""
        return self._papers.get(digest)

    def know_paper(self, digest: bytes, number: int) -> None:
        if len(self._papers) >= _PAPERS:
            self._papers.clear()
        self._papers[digest] = number


class NoRows(Group):
    """For work that changes nothing."""

    __slots__ = ()

    def add(self, head: str, row: Sequence[Any]) -> None:
        raise RuntimeError("work that reads must not change anything")
