"""What a group of operations does to the tables, inside a transaction that the committer owns.

The law of this file: a number and a place in the journal are given in the order of submission, and
both are taken back when the transaction is rolled back (`reset`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gridpost.core.identifiers import clip
from gridpost.core.queues import CountFailure, Hold, Operation, Put, Remove
from gridpost.stores import journal_rows
from gridpost.stores.sqlite.queues.files import Staged
from gridpost.stores.sqlite.statements import for_each, insert_rows
from gridpost.stores.values import to_microseconds

_KNOWN: Final = "INSERT INTO known (message_id, queue, number, expires_at)"
# An id whose time has passed but which was not forgotten yet counts as new.
_KNOWN_AGAIN: Final = (
    "ON CONFLICT DO UPDATE SET number = excluded.number, expires_at = excluded.expires_at "
    "WHERE known.expires_at <= {}"
)
_NUMBER_OF: Final = "SELECT number FROM known WHERE message_id = ? AND queue = ?"
_MESSAGE: Final = (
    "INSERT INTO message (number, queue, message_id, sender, message_type, stored_at, expires_at, "
    "size, priority, deliveries, file, start, body)"
)
_JOURNAL: Final = "INSERT INTO journal (sequence, at, kind, schema_version, payload)"
_LAST_ROW: Final = (
    "SELECT coalesce((SELECT max(sequence) FROM journal), (SELECT pruned FROM journal_state))"
)
_LAST_NUMBER: Final = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'message'), 0)"
_HANDED_OUT: Final = "UPDATE queue SET handed_out = max(handed_out, ?) WHERE code = ?"
_ANY_FILE: Final = "SELECT EXISTS (SELECT 1 FROM message WHERE file IS NOT NULL)"
_ACTIVATE: Final = (
    "INSERT INTO queue (code, active) VALUES (?, 1) ON CONFLICT DO UPDATE SET active = 1 "
    "RETURNING queue"
)


@dataclass(frozen=True, slots=True)
class HandedOut:
    """The highest number that consumers of each queue were given. No fact for the journal."""

    marks: Mapping[str, int]


Step = Operation | HandedOut
Group = Iterable[tuple[Step, Staged | None]]


class Writer:
    """Applies operations. Used by one thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._queues: dict[str, int] = {}
        self._next_number = 1
        self._next_row = 1
        self._has_files = False
        self.reset()

    def reset(self) -> None:
        """Know again only what the database knows."""
        execute = self._connection.execute
        self._queues = dict(execute("SELECT code, queue FROM queue WHERE active = 1").fetchall())
        self._next_number = execute(_LAST_NUMBER).fetchone()[0] + 1
        self._next_row = execute(_LAST_ROW).fetchone()[0] + 1
        self._has_files = bool(execute(_ANY_FILE).fetchone()[0])

    def apply(self, group: Group, now: datetime) -> set[str]:
        """Do everything; the files of messages that are gone once this is committed."""
        puts: list[tuple[Put, Staged | None]] = []
        removed: list[int] = []
        for operation, staged in group:
            kind = type(operation)
            if kind is Put:
                assert isinstance(operation, Put)
                puts.append((operation, staged))
                operation.message.number = self._next_number
                self._next_number += 1
            elif kind is Remove:
                assert isinstance(operation, Remove)
                removed.append(operation.message.number)
            elif kind is HandedOut:
                assert isinstance(operation, HandedOut)
                for code, number in operation.marks.items():
                    self._connection.execute(_HANDED_OUT, (number, code))
            elif kind is CountFailure:
                assert isinstance(operation, CountFailure)
                self._connection.execute(
                    "UPDATE message SET deliveries = ? WHERE number = ?",
                    (operation.message.deliveries, operation.message.number),
                )
            elif kind is Hold:
                assert isinstance(operation, Hold)
                self._connection.execute(
                    "UPDATE message SET held = ? WHERE number = ?",
                    (clip(operation.reason, 500), operation.message.number),
                )
        if puts:
            self._put(puts, now)
        left = self._remove(removed)
        # After the puts: only now it is known which of them are duplicates.
        rows = [
            operation.written() if isinstance(operation, Put) else operation.row
            for operation, _ in group
            if not isinstance(operation, HandedOut)
        ]
        self._write_down([journal_rows.write(row) for row in rows if row is not None])
        return left

    def activate(self, code: str) -> int:
        found = self._queues.get(code)
        if found is None:
            (found,) = self._connection.execute(_ACTIVATE, (code,)).fetchone()
            self._queues[code] = found
        return int(found)

    def _put(self, puts: Sequence[tuple[Put, Staged | None]], now: datetime) -> None:
        known = []
        messages = []
        for put, staged in puts:
            message = put.message
            queue = self._queues.get(put.queue) or self.activate(put.queue)
            key = bytes.fromhex(message.message_id.replace("-", ""))
            expires_at = to_microseconds(message.expires_at)
            self._has_files = self._has_files or staged is not None
            known.append((key, queue, message.number, expires_at))
            messages.append(
                (
                    message.number,
                    queue,
                    key,
                    message.sender,
                    message.message_type,
                    to_microseconds(message.stored_at),
                    expires_at,
                    message.size,
                    message.priority,
                    message.deliveries,
                    None if staged is None else staged.name,
                    0 if staged is None else staged.start,
                    message.content if staged is None else None,
                )
            )
        again = _KNOWN_AGAIN.format(to_microseconds(now))
        if self._insert_known(known, again) < len(known):
            messages = self._without_duplicates(puts, messages)
        insert_rows(self._connection, _MESSAGE, messages)

    def _insert_known(self, known: list[tuple[Any, ...]], again: str) -> int:
        # `again` differs from group to group: a statement of its own only where it can matter.
        inserted = insert_rows(self._connection, _KNOWN, known, "ON CONFLICT DO NOTHING")
        if inserted < len(known):
            inserted = 0
            for row in known:
                (number,) = self._connection.execute(_NUMBER_OF, row[:2]).fetchone()
                if number != row[2]:
                    self._connection.execute(f"{_KNOWN} VALUES (?, ?, ?, ?) {again}", row)
                    (number,) = self._connection.execute(_NUMBER_OF, row[:2]).fetchone()
                inserted += number == row[2]
        return inserted

    def _without_duplicates(
        self, puts: Sequence[tuple[Put, Staged | None]], messages: list[tuple[Any, ...]]
    ) -> list[tuple[Any, ...]]:
        kept = []
        for (put, _), row in zip(puts, messages, strict=True):
            (number,) = self._connection.execute(_NUMBER_OF, (row[2], row[1])).fetchone()
            put.duplicate = number != row[0]
            if not put.duplicate:
                kept.append(row)
        return kept

    def _remove(self, numbers: list[int]) -> set[str]:
        if not numbers:
            return set()
        left: set[str] = set()
        if self._has_files:
            marks = ",".join(map(str, numbers))
            found = self._connection.execute(
                f"SELECT DISTINCT file FROM message WHERE number IN ({marks}) AND file IS NOT NULL"
            )
            left = {name for (name,) in found.fetchall()}
        for_each(self._connection, "DELETE FROM message WHERE number", numbers)
        return left

    def _write_down(self, rows: Sequence[tuple[Any, ...]]) -> None:
        first = self._next_row
        self._next_row += len(rows)
        insert_rows(self._connection, _JOURNAL, [(first + at, *row) for at, row in enumerate(rows)])
