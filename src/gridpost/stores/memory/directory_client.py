"""What a client of the directory keeps, kept nowhere: the memory twin, for tests and trials."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from gridpost.core.enrolment import Enrolment
from gridpost.core.own_entry import OwnEntry
from gridpost.core.synchronisation import Subsystem
from gridpost.stores.memory.journal import MemoryJournal
from gridpost.stores.memory.state import State

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


class MemoryClientWork:
    """core.ports.DirectoryClientWork."""

    def __init__(self, state: dict[str, object], tables: State) -> None:
        self.directory_copy = MemoryDirectoryCopy(state)
        self.own_entry = MemoryOwnEntry(state)
        self.enrolment = MemoryEnrolment(state)
        self.journal = MemoryJournal(tables)


class MemoryClientStore:
    """core.ports.DirectoryClientStore. A work that raises leaves nothing behind."""

    def __init__(self) -> None:
        self._state: dict[str, object] = {}
        self._tables = State()

    async def run(self, work: Callable[[MemoryClientWork], T]) -> T:
        state, tables = dict(self._state), self._tables.copy()
        result = work(MemoryClientWork(state, tables))
        self._state, self._tables = state, tables
        return result

    async def read(self, work: Callable[[MemoryClientWork], T]) -> T:
        return work(MemoryClientWork(dict(self._state), self._tables.copy()))
