"""Who gets events without taking them from a queue, and what is too large to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from gridpost.core.refusal import Refusal
from gridpost.services.bus.settings import ANY
from gridpost.wire.envelope.transform import Treatment

log = structlog.get_logger(__name__)

Deliver = Callable[[bytes], Awaitable[None]]
"""Returns when the event was taken; a Refusal says why not, and whether it may be tried again."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """61968-100 cl. 4.4: retry rules for a listener; events wait behind the one that is tried."""

    name: str
    deliver: Deliver
    verb: str = ANY
    noun: str = ANY
    retries: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0)
    treatment: Treatment = field(default_factory=Treatment)

    async def take(self, body: bytes) -> Refusal | None:
        """Why it was not taken, after every attempt: the event goes to the dead letters."""
        last = None
        for pause in (0.0, *self.retries):
            await asyncio.sleep(pause)
            try:
                await self.deliver(self.treatment(body))
                return None
            except Refusal as refusal:
                last = refusal
                log.warning("a subscriber failed", subscriber=self.name, reason=refusal.message)
                if not refusal.retryable:
                    break
        return last


class Claims(Protocol):
    """Bodies that are too large for a queue; whoever takes the message fetches its body here."""

    above: int

    async def keep(self, body: bytes) -> str: ...

    async def redeem(self, claim: str) -> bytes: ...
