"""The keys of a node while it runs (MADES 1.1 cl. 3.16.7): renewed and replaced without a restart."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog

from gridpost.assembly.directory_keys import DirectoryKeys, KeyOwner
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal
from gridpost.services.component_directory.authority import Authority
from gridpost.services.node.directory import NodeDirectory

log = structlog.get_logger(__name__)

LOOK_SECONDS = 30.0
"""Cl. 3.16.7.2 allows five minutes for a new certificate."""


class KeyUpkeep:
    """What the command line imports counts at the next look, and our own certificate never ends."""

    def __init__(
        self,
        keys: DirectoryKeys,
        authority: Authority,
        directory: NodeDirectory,
        clock: Clock,
        ahead: timedelta,
    ) -> None:
        """`ahead`: how long before its end our own certificate is replaced."""
        self._keys = keys
        self._authority = authority
        self._directory = directory
        self._clock = clock
        self._ahead = ahead
        self._seen = keys.state()
        self._looking = asyncio.Lock()

    async def configure(self, configuration: KeyOwner, ahead: timedelta) -> None:
        """Other roots count for the next connection."""
        self._keys.configure(configuration)
        self._ahead = ahead
        await self.look()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Refusal as refusal:
                log.error("keys not read again", refusal=refusal.id, reason=refusal.message)

    async def look(self) -> None:
        async with self._looking:
            state = self._keys.state()
            if state != self._seen:
                # A half-written folder is refused, and looked at again.
                self._keys.reload()
                self._seen = state
                self._authority.replace(self._keys.issuers())
                log.info("keys read again")
            if await self._keys.renew_own(self._authority, self._clock.now(), self._ahead):
                log.info("own certificate renewed")
            await self._directory.say_own(self._keys.own)
