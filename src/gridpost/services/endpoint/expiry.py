"""Messages whose time is over get their EXPIRE event, and retention removes what nobody needs (5.7, 5.9)."""

from __future__ import annotations

from gridpost.core.delivery import Decision, Event, Occurrence, Side
from gridpost.core.message_box import BoxEntry, Purged, Retention
from gridpost.core.ports import UnitOfWork
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.tracking import happen

REASON = "the message expired before its delivery was acknowledged"


class Expiry:
    def __init__(self, context: EndpointContext, retention: Retention | None = None) -> None:
        self._context = context
        self.retention = retention or Retention()

    async def round(self, limit: int = 1000) -> int:
        """Expire what is due; nothing is ever sent to say so (503 cl. 5.7)."""
        now = self._context.clock.now()

        def expire(work: UnitOfWork) -> list[tuple[BoxEntry, Decision]]:
            done = []
            for entry in work.box.expired(now, limit):
                sent = entry.delivery.side is Side.SENT
                occurrence = Occurrence(Event.EXPIRE, REASON if sent else "")
                done.append((entry, happen(work, entry, occurrence, now)))
            work.box.drop_expired_transfers(now)
            return done

        done = await self._context.store.run(expire)
        for entry, decision in done:
            self._context.signals.decided(entry, decision)
        return len(done)

    async def purge(self, limit: int = 1000) -> Purged:
        now = self._context.clock.now()
        return await self._context.store.run(
            lambda work: work.box.purge(self.retention, now, limit)
        )
