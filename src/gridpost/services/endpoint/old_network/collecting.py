"""Downloads from the home node, and from no other one (MADES 1.1 cl. 3.8, 4.2.2)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from gridpost.core.journal import refusal_row
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.node_session import Downloaded
from gridpost.services.endpoint.old_network.arrival import OldArrival
from gridpost.services.endpoint.old_network.network import NOT_ASKED, OldNetwork
from gridpost.services.endpoint.transfer import BackOff

log = structlog.get_logger(__name__)


class NetworkRejected(Exception):
    """Cl. 4.2.2: a rejected component logs the error and stops running."""


class Collecting:
    def __init__(
        self, network: OldNetwork, *, alone: bool, back_off: BackOff | None = None
    ) -> None:
        """`alone`: this endpoint has no other network, so that a rejection ends it."""
        self._network = network
        self._alone = alone
        self._arrival = OldArrival(network)
        self._back_off = back_off or BackOff()
        self._wake = asyncio.Event()

    async def run(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            # Another process of this endpoint may go on.
            self._network.problem = NOT_ASKED
            raise

    async def _run(self) -> None:
        failures = 0
        while True:
            self._wake.clear()
            try:
                more = await self._whole_round()
                failures = 0
            except Refusal as refusal:
                if refusal.rule is Rule.ENDPOINT_VERSION:
                    return self._reject(refusal)
                self._troubled(refusal, failures)
                await self._pause(self._back_off.after(failures).total_seconds())
                failures += 1
                continue
            if not more:
                await self._pause(self._network.settings.poll.total_seconds())

    async def _whole_round(self) -> bool:
        """A stop lets what is under way end: what was stored is confirmed, and connections close."""
        work = asyncio.ensure_future(self.round())
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            with suppress(Refusal):
                await work
            raise

    async def round(self) -> bool:
        """One download; is there more to fetch at once?"""
        network = self._network
        await network.refresh_keys()
        downloaded = await network.home.collect()
        network.answered_at = network.context.clock.now()
        if network.problem:
            log.info("home node answers", node=network.settings.node)
            network.problem = ""
            network.on_open()
        for metadata, body in downloaded.messages:
            await self._arrival.take(metadata, body)
        await self._log_unreadable(downloaded)
        # Cl. 5.3.3.5: all or none; what comes again although it is stored is a duplicate.
        done: list[str] = [metadata.message_id for metadata, _ in downloaded.messages]
        done += [message_id for message_id, _ in downloaded.unreadable]
        if done:
            await network.home.confirm(done)
        return bool(downloaded.waiting)

    async def _log_unreadable(self, downloaded: Downloaded) -> None:
        """Cl. 3.8: logged, and then the node may forget it."""
        context = self._network.context
        now = context.clock.now()
        for message_id, refusal in downloaded.unreadable:
            row = refusal_row(
                refusal, now, peer=self._network.settings.node, message_id=message_id, security=True
            )
            await context.store.run(lambda work, row=row: work.journal.append(row))  # type: ignore[misc]

    def _reject(self, refusal: Refusal) -> None:
        log.error("rejected by the network", reason=refusal.message, id=refusal.id)
        self._network.rejected = refusal
        self._network.problem = refusal.message
        if self._alone:
            raise NetworkRejected(refusal.message)

    def _troubled(self, refusal: Refusal, failures: int) -> None:
        if not failures or self._network.problem != refusal.message:
            log.warning(
                "home node", node=self._network.settings.node, reason=refusal.message, id=refusal.id
            )
        self._network.problem = refusal.message

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
