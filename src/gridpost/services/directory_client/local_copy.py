"""The local copy of the directory (503 cl. 7.1): what is in force now, and who hears of a change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from gridpost.core import directory_journal
from gridpost.core.component import Component, ComponentType
from gridpost.core.enrolment import Home
from gridpost.core.identifiers import ComponentCode
from gridpost.core.ports import DirectoryClientStore, DirectoryClientWork
from gridpost.core.synchronisation import Directory, Merge, Subsystem

Listener = Callable[[Directory, frozenset[ComponentCode]], None]


class LocalCopy:
    """The copy in memory is always the one in the store: it changes after the commit."""

    def __init__(self, store: DirectoryClientStore) -> None:
        self._store = store
        self._current = Directory()
        self._home: Home | None = None
        self._listeners: list[Listener] = []

    def __call__(self) -> Directory:
        return self._current

    @property
    def home(self) -> Home | None:
        """The component-directory that this component is registered with."""
        return self._home

    def on_change(self, listener: Listener) -> None:
        """Told after each synchronisation: the copy, and which subsystems are new, other or gone."""
        self._listeners.append(listener)

    async def load(self) -> Directory:
        """After a start: what was committed last, with the validity it had."""

        def read(work: DirectoryClientWork) -> tuple[tuple[Subsystem, ...], Home | None]:
            enrolment = work.enrolment.load()
            return tuple(work.directory_copy.load()), enrolment.home if enrolment else None

        subsystems, self._home = await self._store.read(read)
        self._current = Directory.of(subsystems)
        return self._current

    async def take(self, merge: Merge, at: datetime) -> None:
        """503 cl. 7.7.2: delete and replace, in one transaction; the journal keeps what changed."""
        subsystems = tuple(merge.directory.subsystems.values())
        news = list(
            directory_journal.rows(
                _components(self._current, merge.changed),
                _components(merge.directory, merge.changed),
                at,
            )
        )

        def save(work: DirectoryClientWork) -> None:
            work.directory_copy.save(subsystems, merge.changed)
            for row in news:
                work.journal.append(row)

        await self._store.run(save)
        self._current = merge.directory
        for listener in self._listeners:
            listener(merge.directory, merge.changed)

    def directory_entry(self, code: ComponentCode) -> Component | None:
        """A component-directory, as last published.

        Also when that is no longer valid: it is needed to get valid data again, and its certificate
        still has to lead to a trusted root (see divergences, lapsed directory entries).
        """
        for subsystem in self._current.subsystems.values():
            for component in subsystem.components:
                if component.code == code and component.type is ComponentType.COMPONENT_DIRECTORY:
                    return component
        return self._home.entry() if self._home is not None and self._home.code == code else None

    def own_entry(self, code: ComponentCode, at: datetime) -> Component | None:
        """This component as the directory publishes it."""
        return self._current.find(code, at)


def _components(directory: Directory, of: frozenset[ComponentCode]) -> list[Component]:
    return [
        component
        for code in sorted(of)
        if (subsystem := directory.subsystems.get(code)) is not None
        for component in subsystem.components
    ]
