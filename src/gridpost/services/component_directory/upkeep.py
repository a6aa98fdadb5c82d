"""What a component-directory looks after by itself: certificates to renew, figures, old journal rows.

503 cl. 10: the administrator is warned before a certificate expires; the warning stands in the
log, in the metrics and in the health report until the certificate has been renewed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from gridpost.core.certificate import Certificate, CertificateKind, expiring
from gridpost.core.component import Component
from gridpost.core.directory_ports import RegistryStore
from gridpost.core.ports import Clock
from gridpost.core.registration import RegistrationStatus
from gridpost.core.registry_office import published
from gridpost.services.component_directory.metrics import DirectoryMetrics
from gridpost.services.component_directory.publication import Publication
from gridpost.services.component_directory.synchroniser import PeerState, Synchroniser
from gridpost.wire.x509 import read_certificate

log = structlog.get_logger(__name__)

ROUND = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Expiring:
    """A certificate that must be renewed."""

    component: str
    kind: str
    certificate_id: str
    not_after: datetime


@dataclass(frozen=True, slots=True)
class Health:
    """What an operator sees at one glance."""

    expiring: tuple[Expiring, ...]
    peers: tuple[PeerState, ...]
    pending: int
    components: int

    @property
    def status(self) -> str:
        troubled = any(p.failed_at is not None for p in self.peers)
        return "warning" if self.expiring or troubled else "ok"


class Upkeep:
    def __init__(
        self,
        store: RegistryStore,
        clock: Clock,
        publication: Publication,
        metrics: DirectoryMetrics,
        synchroniser: Synchroniser,
        roots: Callable[[], Sequence[bytes]],
        renew_own: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._publication = publication
        self._metrics = metrics
        self._synchroniser = synchroniser
        self._roots = roots
        self._renew_own = renew_own

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:
                # The directory serves on; the next round tries again.
                log.exception("upkeep failed")
            await asyncio.sleep(ROUND.total_seconds())

    async def look(self) -> Health:
        """One round: renew what is ours, warn of what is others', tidy the journal."""
        await self._renew_own()
        health = await self.health()
        for found in health.expiring:
            over = found.not_after < self._clock.now()
            log.warning(
                "certificate has expired" if over else "certificate expires soon",
                component=found.component,
                kind=found.kind,
                certificate_id=found.certificate_id,
                not_after=found.not_after.isoformat(),
            )
        self._metrics.expiring({(e.component, e.kind): e.not_after for e in health.expiring})
        self._metrics.books(health.components, health.pending)
        retention = self._publication.settings.journal_retention
        await self._store.run(lambda unit: unit.journal.prune(self._clock.now(), retention))
        return health

    async def health(self) -> Health:
        own = await self._store.read(lambda unit: unit.entries.own())
        pending = await self._store.read(
            lambda unit: unit.registrations.count(RegistrationStatus.PENDING)
        )
        found = [
            Expiring(component.code, c.kind, c.certificate_id, c.not_after)
            for component in own
            for c in self._ending(self._in_use(component))
        ]
        roots = [read_certificate(r, CertificateKind.INTEGRATED_CA) for r in self._roots()]
        found += [
            Expiring("ROOT CA", "ROOT_CA", c.certificate_id, c.not_after)
            for c in self._ending(roots)
        ]
        return Health(tuple(found), self._synchroniser.states, pending, len(own))

    def _ending(self, certificates: Sequence[Certificate]) -> list[Certificate]:
        return expiring(certificates, self._clock.now(), self._publication.settings.expiry_warning)

    def _in_use(self, component: Component) -> Sequence[Certificate]:
        """Whoever has not renewed for so long that nobody is told its certificate has gone."""
        grace = self._publication.settings.published_after_expiry
        return published(component, self._clock.now(), grace).certificates
