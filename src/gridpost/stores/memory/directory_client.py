"""What a client of the directory keeps, kept nowhere: the memory twin, for tests and trials."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from gridpost.core.enrolment import Enrolment
from gridpost.core.journal import JournalRow, Recorded
from gridpost.core.own_entry import OwnEntry
from gridpost.core.synchronisation import Subsystem

T = TypeVar("T")


class MemoryDirectoryCopy:
    """core.ports.DirectoryCopy."""

    def __init__(self, state: dict[str, object]) -> None:
        self._state = state

    def load(self) -> Sequence[Subsystem]:
        found = self._state.get("subsystems", ())
        assert isinstance(found, tuple)
        return found

    def save(self, subsystems: Sequence[Subsystem], changed: Collection[str]) -> None:
        self._state["subsystems"] = tuple(subsystems)


class MemoryOwnEntry:
    """core.ports.OwnEntryStore."""

    def __init__(self, state: dict[str, object]) -> None:
        self._state = state

    def load(self) -> OwnEntry | None:
        found = self._state.get("own_entry")
        return found if isinstance(found, OwnEntry) else None

    def save(self, entry: OwnEntry) -> None:
        self._state["own_entry"] = entry


class MemoryEnrolment:
    """core.ports.EnrolmentStore."""

    def __init__(self, state: dict[str, object]) -> None:
        self._state = state

    def load(self) -> Enrolment | None:
        found = self._state.get("enrolment")
        return found if isinstance(found, Enrolment) else None

    def save(self, enrolment: Enrolment) -> None:
        self._state["enrolment"] = enrolment


class MemoryClientJournal:
    """core.ports.Journal."""

    def __init__(self, rows: list[JournalRow]) -> None:
        self._rows = rows

    def append(self, row: JournalRow) -> int:
        self._rows.append(row)
        return len(self._rows)

    def read(self, after: int, limit: int) -> Sequence[Recorded]:
        chosen = enumerate(self._rows[after : after + limit], start=after + 1)
        return [Recorded(number, row) for number, row in chosen]

    def exported(self) -> int:
        return 0

    def mark_exported(self, sequence: int) -> None:
        """Nothing is ever exported from memory."""

    def prune(
        self,
        now: datetime,
        retention: timedelta,
        *,
        keep_exported: timedelta | None = None,
        limit: int = 10_000,
    ) -> int:
        return 0


class MemoryClientWork:
    """core.ports.DirectoryClientWork."""

    def __init__(self, state: dict[str, object], rows: list[JournalRow]) -> None:
        self.directory_copy = MemoryDirectoryCopy(state)
        self.own_entry = MemoryOwnEntry(state)
        self.enrolment = MemoryEnrolment(state)
        self.journal = MemoryClientJournal(rows)


class MemoryClientStore:
    """core.ports.DirectoryClientStore. A work that raises leaves nothing behind."""

    def __init__(self) -> None:
        self._state: dict[str, object] = {}
        self._rows: list[JournalRow] = []

    async def run(self, work: Callable[[MemoryClientWork], T]) -> T:
        state, rows = dict(self._state), list(self._rows)
        result = work(MemoryClientWork(state, rows))
        self._state, self._rows = state, rows
        return result

    async def read(self, work: Callable[[MemoryClientWork], T]) -> T:
        return work(MemoryClientWork(dict(self._state), list(self._rows)))
