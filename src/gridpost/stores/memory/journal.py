"""The journal in memory. Rows pass through the text that databases hold, so that nothing differs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gridpost.core.journal import LISTED_KINDS, JournalRow, Recorded
from gridpost.stores import journal_rows
from gridpost.stores.memory.state import State
from gridpost.stores.values import to_microseconds


class MemoryJournal:
    """core.ports.Journal."""

    def __init__(self, tables: State) -> None:
        self._tables = tables

    def append(self, row: JournalRow) -> int:
        stored = journal_rows.write(row)
        self._tables.last_row += 1
        self._tables.journal[self._tables.last_row] = stored
        return self._tables.last_row

    def read(self, after: int, limit: int) -> Sequence[Recorded]:
        later = [sequence for sequence in self._tables.journal if sequence > after]
        return [
            Recorded(sequence, journal_rows.read(self._tables.journal[sequence]))
            for sequence in later[:limit]
        ]

    def listed(self, after: int, limit: int) -> Sequence[Recorded]:
        found = [
            Recorded(sequence, journal_rows.read(stored))
            for sequence, stored in self._tables.journal.items()
            if stored.kind in LISTED_KINDS and sequence > after
        ]
        return found[:limit]

    def latest(self, kind: str, limit: int, before: int | None = None) -> Sequence[Recorded]:
        if kind not in LISTED_KINDS:
            raise KeyError(kind)
        found = [
            Recorded(sequence, journal_rows.read(stored))
            for sequence, stored in self._tables.journal.items()
            if stored.kind == kind and (before is None or sequence < before)
        ]
        return found[::-1][:limit]

    def exported(self) -> int:
        return self._tables.exported

    def mark_exported(self, sequence: int) -> None:
        last = self._tables.last_row
        if sequence > last:
            raise ValueError(f"the journal ends at {last}: {sequence} cannot have been exported")
        self._tables.exported = max(self._tables.exported, sequence)

    def prune(
        self,
        now: datetime,
        retention: timedelta,
        *,
        keep_exported: timedelta | None = None,
        limit: int = 10_000,
    ) -> int:
        kept_for = retention if keep_exported is None else min(retention, keep_exported)
        old: list[int] = []
        for sequence, stored in list(self._tables.journal.items())[:limit]:
            exported = sequence <= self._tables.exported
            if stored.at > to_microseconds(now - (kept_for if exported else retention)):
                break
            old.append(sequence)
        for sequence in old:
            del self._tables.journal[sequence]
        return len(old)
