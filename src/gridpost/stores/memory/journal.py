"""A journal that lives as long as its process."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gridpost.core.journal import JournalRow, Recorded


class MemoryJournal:
    """core.ports.Journal."""

    def __init__(self) -> None:
        self._rows: list[Recorded] = []
        self._last = 0
        self._exported = 0

    def append(self, row: JournalRow) -> int:
        self._last += 1
        self._rows.append(Recorded(self._last, row))
        return self._last

    def read(self, after: int, limit: int) -> Sequence[Recorded]:
        return [row for row in self._rows if row.sequence > after][:limit]

    def exported(self) -> int:
        return self._exported

    def mark_exported(self, sequence: int) -> None:
        if sequence > self._last:
            raise ValueError(f"the journal ends at {self._last}: {sequence} is not in it")
        self._exported = max(self._exported, sequence)

    def prune(
        self,
        now: datetime,
        retention: timedelta,
        *,
        keep_exported: timedelta | None = None,
        limit: int = 10_000,
    ) -> int:
        gone = 0
        while self._rows and gone < limit:
            first = self._rows[0]
            keep = retention
            if keep_exported is not None and first.sequence <= self._exported:
                keep = min(retention, keep_exported)
            if first.row.at > now - keep:
                break
            del self._rows[0]
            gone += 1
        return gone
