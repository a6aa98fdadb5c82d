"""Bodies too large for a queue: they wait in a folder that all processes of a bus share."""

from __future__ import annotations

import asyncio
from hashlib import sha256

import structlog

from gridpost.assembly.bus_links import ClaimsSection
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.mailboxes import FolderBox

log = structlog.get_logger(__name__)

_TIDY_SECONDS = 3600.0


class FolderClaims:
    """services.bus.Claims: a file for each body, named by what it holds, for a time."""

    def __init__(self, section: ClaimsSection, limit: int, clock: Clock) -> None:
        self.above = section.above
        self._period = section.keep
        self._clock = clock
        self._box = FolderBox(section.folder, limit)
        section.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    async def run(self) -> None:
        while True:
            try:
                await self.tidy()
            except Refusal as refusal:
                log.error("claims not removed", reason=refusal.message)
            await asyncio.sleep(min(self._period.total_seconds() / 4, _TIDY_SECONDS))

    async def tidy(self) -> int:
        """Whoever has not redeemed a claim within the time does so no more."""
        return await self._box.remove_before((self._clock.now() - self._period).timestamp())

    async def keep(self, body: bytes) -> str:
        name = sha256(body).hexdigest()
        await self._box.put(name, body)
        return name

    async def redeem(self, claim: str) -> bytes:
        if len(claim) != 64 or not claim.isalnum():
            raise Refusal(Rule.BAD_VALUE, "that is no claim")
        body = await self._box.get(claim)
        if sha256(body).hexdigest() != claim:
            raise Refusal(Rule.ADAPTER, f"the claim {claim} holds other bytes")
        return body
