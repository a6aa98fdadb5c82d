"""The duties of a running endpoint, and what happens when one of them fails.

What the world does to a duty (a refusal, the network, a full disk) is logged and the duty is begun
again, later each time. A programming error ends the process: going on would hide it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from gridpost.core.links import LinkRefused
from gridpost.core.refusal import Refusal

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Duty:
    name: str
    run: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Restarts:
    first: float = 0.5
    longest: float = 60.0
    healthy: float = 300.0
    """A duty that ran this long begins with the first pause again."""


class EndpointService:
    def __init__(self, duties: Sequence[Duty], restarts: Restarts | None = None) -> None:
        self._duties = tuple(duties)
        self._restarts = restarts or Restarts()

    def add(self, duty: Duty) -> None:
        """Before it runs."""
        self._duties = (*self._duties, duty)

    async def run(self) -> None:
        """Until cancelled; then every duty ends in its own orderly way."""
        async with asyncio.TaskGroup() as group:
            for duty in self._duties:
                group.create_task(self._keep(duty), name=duty.name)

    async def _keep(self, duty: Duty) -> None:
        pause = self._restarts.first
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await duty.run()
                return
            except Refusal as refusal:
                log.error(
                    "duty failed",
                    duty=duty.name,
                    reason=refusal.message,
                    more=refusal.details,
                    id=refusal.id,
                )
            except (OSError, LinkRefused) as error:
                log.exception("duty failed", duty=duty.name, reason=str(error))
            if loop.time() - began >= self._restarts.healthy:
                pause = self._restarts.first
            await asyncio.sleep(pause)
            pause = min(self._restarts.longest, 2 * pause)
