"""When a component asks for new certificates by itself (503 cl. 7.6, 8.5), and what it warns of."""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog

from gridpost.core.certificate import Certificate, expiring
from gridpost.core.enrolment import Enrolment, EnrolmentState
from gridpost.core.refusal import Refusal
from gridpost.services.directory_client.context import ClientContext
from gridpost.services.directory_client.cycle import Cycle
from gridpost.services.directory_client.enrolment import Enroller

log = structlog.get_logger(__name__)

AUTOMATIC = "automatic renewal"

# A directory that refused an extension is asked again after this time, not at once.
_AFTER_REFUSAL = timedelta(hours=6)
_LOOK = timedelta(hours=1)


class Renewal:
    def __init__(self, context: ClientContext, enroller: Enroller) -> None:
        self._context = context
        self._enroller = enroller
        self._refused_at: datetime | None = None
        self._begun_at: datetime | None = None
        self._cycle = Cycle(self.attempt)

    def due(self, now: datetime) -> list[Certificate]:
        """The newest certificates of their kind that end within the anticipation period.

        A certificate of a shorter life than that period is due in its second half: otherwise each
        new one would be due at once.
        """
        own = self._context.keys.certificates()
        return [
            c
            for c in expiring(own, now, self._context.settings.anticipation)
            # With one that has expired no directory lets us in.
            if timedelta(0) <= c.not_after - now <= (c.not_after - c.not_before) / 2
        ]

    async def run(self) -> None:
        """Until cancelled: finish what was begun, and begin what is due."""
        await self._cycle.run()

    def wake(self) -> None:
        """Look now rather than in a while."""
        self._cycle.wake()

    async def attempt(self) -> timedelta:
        """One look; how long to wait for the next."""
        try:
            delay = await self._enroller.step()
            if delay is not None:
                return delay
            if not await self._begin():
                return _LOOK
        except Refusal as refusal:
            log.warning("renewal failed", reason=refusal.message, id=refusal.id)
            return _LOOK
        except Exception:
            # A bug of ours must not end the loop: the certificates would run out unnoticed.
            log.exception("renewal failed")
            return _LOOK
        return timedelta(0)

    async def _begin(self) -> bool:
        now = self._context.clock.now()
        before = await self._enroller.current()
        due = self.due(now)
        if before is None or not due:
            return False
        # Whatever a directory issues, it is not asked for more all the time.
        if self._begun_at is not None and now - self._begun_at < _LOOK:
            return False
        if before.extension and before.state is EnrolmentState.REJECTED:
            self._refused_at = self._refused_at or now
            if now - self._refused_at < _AFTER_REFUSAL:
                return False
        self._refused_at = None
        external = _external(before)
        outside = [c for c in due if c.der in external]
        if outside:
            # Only its administrator can get a new one from an EXTERNAL CA.
            for certificate in outside:
                log.warning(
                    "external certificate ends",
                    kind=certificate.kind,
                    not_after=certificate.not_after.isoformat(),
                )
            return False
        log.info("certificates end soon", kinds=sorted(c.kind for c in due))
        self._begun_at = now
        await self._enroller.renew(by=AUTOMATIC)
        return True


def _external(enrolment: Enrolment) -> set[bytes]:
    return {c.der for c in enrolment.request.certificates}
