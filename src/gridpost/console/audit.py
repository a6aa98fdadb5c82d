"""The audit log of a console: every action with who and when, in the component's own journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from gridpost.core.journal import AdministrationRow, Recorded, refusal_row
from gridpost.core.ports import Clock, Journal
from gridpost.core.refusal import Refusal

T = TypeVar("T")


class Journalled(Protocol):
    @property
    def journal(self) -> Journal: ...


class JournalStore(Protocol):
    """The part of any component's store that a console needs."""

    async def run(self, work: Callable[[Journalled], T]) -> T: ...

    async def read(self, work: Callable[[Journalled], T]) -> T: ...


class Audit:
    def __init__(self, store: JournalStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def row(self, actor: str, action: str, target: str = "", reason: str = "") -> AdministrationRow:
        """For an action that commits it by itself."""
        return AdministrationRow(
            self._clock.now(), actor=actor, action=action, target=target, reason=reason
        )

    async def wrote(self, actor: str, action: str, target: str = "", reason: str = "") -> None:
        row = self.row(actor, action, target, reason)
        await self._store.run(lambda work: work.journal.append(row))

    async def refused(self, refusal: Refusal, actor: str, security: bool) -> None:
        row = refusal_row(refusal, self._clock.now(), peer=actor, security=security)
        await self._store.run(lambda work: work.journal.append(row))

    async def page(self, kind: str, limit: int, before: int | None = None) -> Sequence[Recorded]:
        """Newest first."""
        return await self._store.read(lambda work: work.journal.latest(kind, limit, before))
