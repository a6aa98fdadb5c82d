"""The content of the directory as it is published at this moment (503 cl. 7.7, 8.5).

Only this file decides when a published content is built anew: when the books changed, or when the
passing of time takes an expired certificate out of it. Between two changes every synchronisation
is answered from the same content.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gridpost.core.component import Component
from gridpost.core.directory_ports import RegistryStore, RegistryUnit
from gridpost.core.peer_identity import PeerIdentities
from gridpost.core.ports import Clock
from gridpost.core.registry_office import next_withdrawal, published
from gridpost.core.synchronisation import (
    Answer,
    Couple,
    Directory,
    Subsystem,
    answer,
    content_id,
)
from gridpost.services.component_directory.settings import DirectorySettings


@dataclass(frozen=True, slots=True)
class _Content:
    revision: int
    directory: Directory
    identities: PeerIdentities
    until: datetime | None


class Publication:
    """What is published, for whoever synchronises or has to be identified."""

    def __init__(self, store: RegistryStore, clock: Clock, settings: DirectorySettings) -> None:
        self._store = store
        self._clock = clock
        self.settings = settings
        self._content: _Content | None = None

    def reconfigure(self, settings: DirectorySettings) -> None:
        """Other governance rules from now on; the content is built anew by them."""
        self.settings = settings
        self._content = None

    async def directory(self) -> Directory:
        """Own subsystem and replicas; a lapsed replica is there, but finds nothing (503 cl. 7.7.1)."""
        return (await self._current()).directory

    async def identities(self) -> PeerIdentities:
        """Whose certificates are published."""
        return (await self._current()).identities

    async def _current(self) -> _Content:
        at = self._clock.now()
        known = self._content
        if known is not None and (known.until is None or at <= known.until):
            revision = await self._store.read(lambda unit: unit.entries.revision())
            if revision == known.revision:
                return known
        content = await self._store.read(lambda unit: self._build(unit, at))
        self._content = content
        return content

    async def answer(self, couples: Iterable[Couple], *, only_home: bool) -> Answer:
        """503 cl. 7.7.2, for any client: the triplets, and the contents that it does not have."""
        return answer(
            await self.directory(),
            couples,
            home=self.settings.code,
            ttl=self.settings.ttl,
            only_home=only_home,
            at=self._clock.now(),
        )

    async def find(self, code: str) -> Component | None:
        return (await self.directory()).find(code, self._clock.now())

    def _build(self, unit: RegistryUnit, at: datetime) -> _Content:
        stored = unit.entries.own()
        grace = self.settings.published_after_expiry
        own = tuple(published(component, at, grace) for component in stored)
        home = Subsystem(self.settings.code, content_id(own), own)
        directory = Directory.of([home, *unit.entries.replicas()])
        return _Content(
            unit.entries.revision(),
            directory,
            PeerIdentities(directory),
            next_withdrawal(stored, at, grace),
        )
