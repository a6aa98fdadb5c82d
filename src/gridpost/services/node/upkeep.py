"""What a node does by itself: expiry (MADES 1.1 cl. 3.11.3), purge (3.6), and old rows of its journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from gridpost.core.delivery import Side
from gridpost.core.journal import TransferRow
from gridpost.core.node import BoxEntry, PurgeStrategy
from gridpost.core.node_ports import NodeStore, NodeUnit
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal
from gridpost.services.node.settings import NodeSettings

log = structlog.get_logger(__name__)

_AT_ONCE = 1000


class NodeUpkeep:
    def __init__(self, store: NodeStore, clock: Clock, settings: NodeSettings) -> None:
        self._store = store
        self._clock = clock
        self.settings = settings
        self.on_expired: Callable[[int], None] = lambda messages: None

    async def run(self) -> None:
        while True:
            try:
                await self.expire()
                await self.purge()
                await self.prune()
            except Refusal as refusal:
                log.error("upkeep failed", refusal=refusal.id, reason=refusal.message)
            await asyncio.sleep(self.settings.upkeep_cycle.total_seconds())

    async def expire(self) -> list[BoxEntry]:
        """Cl. 3.11.3: the state, the log and the journal."""
        now = self._clock.now()

        def work(unit: NodeUnit) -> list[BoxEntry]:
            entries = unit.expire(now, _AT_ONCE)
            for entry in entries:
                unit.journal.append(
                    TransferRow(
                        now, Side.SENT, entry.message_id, entry.sender, entry.receiver,
                        entry.business_type, "", entry.size, "expired",
                    )
                )  # fmt: skip
            return entries

        expired: list[BoxEntry] = []
        while True:
            entries = await self._store.run(work)
            expired += entries
            self.on_expired(len(entries))
            for entry in entries:
                log.warning(
                    "message expired", message_id=entry.message_id, sender=entry.sender,
                    recipient=entry.receiver, sent=str(entry.transferred_at),
                    expired=str(entry.expires_at),
                )  # fmt: skip
            if len(entries) < _AT_ONCE:
                return expired

    async def purge(self) -> int:
        """Each business-type by its strategy, all others by the default one."""
        purging = self.settings.purging
        named = list(purging.by_type)
        done = 0
        for strategy in (PurgeStrategy.CONTENT, PurgeStrategy.WHOLE):
            types = [name for name in named if purging.by_type[name] is strategy]
            done += await self._purge(strategy, types, False)
            if purging.default is strategy:
                done += await self._purge(strategy, named, True)
        return done

    async def prune(self) -> int:
        """Cl. 3.15.1: rows of the journal that are older than its retention; how many went?"""
        now, retention, total = self._clock.now(), self.settings.journal_retention, 0
        while True:
            gone = await self._store.run(
                lambda unit: unit.journal.prune(now, retention, limit=_AT_ONCE)
            )
            total += gone
            if gone < _AT_ONCE:
                return total

    async def _purge(self, strategy: PurgeStrategy, types: Iterable[str], but: bool) -> int:
        before = self._clock.now() - self.settings.purge_after
        names, total = list(types), 0
        while True:
            done = await self._store.run(
                lambda unit: unit.purge(strategy, names, but, before, _AT_ONCE)
            )
            total += done
            if done < _AT_ONCE:
                return total
