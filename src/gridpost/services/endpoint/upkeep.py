"""What an endpoint looks after by itself: expired messages, old ones, old journal rows, certificates.

503 cl. 10: the administrator is warned before a certificate expires, until it has been renewed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from gridpost.core.certificate import Certificate, expiring
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.expiry import Expiry

log = structlog.get_logger(__name__)

_BATCH = 1000


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    expiry_look: timedelta = timedelta(seconds=1)
    """503 cl. 5.7: at most this late is a message said to have expired."""
    tidy_look: timedelta = timedelta(minutes=10)
    journal_retention: timedelta = timedelta(days=365)
    expiry_warning: timedelta = timedelta(days=30)


class Upkeep:
    def __init__(
        self,
        context: EndpointContext,
        expiry: Expiry,
        certificates: Callable[[], Sequence[Certificate]],
        settings: UpkeepSettings | None = None,
    ) -> None:
        self._context = context
        self._expiry = expiry
        self._certificates = certificates
        self.settings = settings or UpkeepSettings()
        self.on_expired: Callable[[int], None] = lambda messages: None
        self.other_certificates: Callable[[], Sequence[Certificate]] = tuple
        """Those of another network, which are renewed on their own."""

    async def watch_expiry(self) -> None:
        """Until cancelled."""
        while True:
            expired = _BATCH
            while expired == _BATCH:
                expired = await self._expiry.round(_BATCH)
                self.on_expired(expired)
            await asyncio.sleep(self.settings.expiry_look.total_seconds())

    async def tidy(self) -> None:
        """Until cancelled."""
        while True:
            await self.tidy_once()
            await asyncio.sleep(self.settings.tidy_look.total_seconds())

    async def tidy_once(self) -> None:
        for certificate in self.ending():
            over = certificate.not_after < self._context.clock.now()
            log.warning(
                "certificate has expired" if over else "certificate expires soon",
                kind=certificate.kind,
                certificate_id=certificate.certificate_id,
                not_after=certificate.not_after.isoformat(),
            )
        while True:
            purged = await self._expiry.purge(_BATCH)
            if max(purged.contents, purged.entries, purged.identifiers) < _BATCH:
                break
        while (
            await self._context.store.run(lambda work: work.controls.tidy_papers(_BATCH)) == _BATCH
        ):
            pass
        now, retention = self._context.clock.now(), self.settings.journal_retention
        while await self._context.store.run(
            lambda work: work.journal.prune(now, retention, limit=_BATCH)
        ):
            pass

    def ending(self) -> list[Certificate]:
        """Of our own certificates, those that end soon or have ended and have no successor."""
        now, warning = self._context.clock.now(), self.settings.expiry_warning
        return [
            certificate
            for held in (self._certificates(), self.other_certificates())
            for certificate in expiring(held, now, warning)
        ]
