"""Messages whose time is over get their EXPIRE event, and retention removes what nobody needs (5.7, 5.9)."""

from __future__ import annotations

from gridpost.core.delivery import Event, Occurrence, State
from gridpost.core.message_box import Purged, Retention
from gridpost.core.ports import UnitOfWork
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.tracking import happen

REASON = "the message expired before its delivery was acknowledged"


class Expiry:
    def __init__(self, context: EndpointContext, retention: Retention | None = None) -> None:
        self._context = context
        self._retention = retention or Retention()

    async def round(self, limit: int = 1000) -> int:
        """Expire what is due; nothing is ever sent to say so (503 cl. 5.7)."""
        now = self._context.clock.now()

        def expire(work: UnitOfWork) -> int:
            due = work.box.expired(now, limit)
            for entry in due:
                sent = entry.delivery.state is not State.WAITING
                happen(work, entry, Occurrence(Event.EXPIRE, REASON if sent else ""), now)
            work.box.drop_expired_transfers(now)
            return len(due)

        return await self._context.store.run(expire)

    async def purge(self, limit: int = 1000) -> Purged:
        now = self._context.clock.now()
        return await self._context.store.run(
            lambda work: work.box.purge(self._retention, now, limit)
        )
