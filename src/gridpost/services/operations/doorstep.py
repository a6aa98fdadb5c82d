"""Connections that are not let in: told to the journal like every refusal, within bounds.

Anybody can cause them, as often as he likes, so rows wait in memory and are written together, and
beyond a number per round they are only counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import structlog

from gridpost.core.journal import RefusalRow, refusal_row
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule

log = structlog.get_logger(__name__)

ROUND = 60.0
"""Seconds in which at most `most` rows are written."""
TOGETHER = 0.2
"""Seconds for which rows are gathered before they are written."""

SECURITY = frozenset(
    {
        Rule.PEER_UNKNOWN,
        Rule.CHAIN_NOT_TRUSTED,
        Rule.BAD_CERTIFICATE,
        Rule.TLS_HANDSHAKE,
        Rule.CERTIFICATE_EXPIRED,
        Rule.CERTIFICATE_NOT_OF_COMPONENT,
        Rule.CERTIFICATE_REVOKED,
    }
)
"""What says that somebody wanted in who does not belong here."""


class Doorstep:
    """`refused` never waits; `run` writes."""

    def __init__(
        self,
        keep: Callable[[Sequence[RefusalRow]], Awaitable[None]],
        clock: Clock,
        count: Callable[[Rule], None] = lambda rule: None,
        most: int = 100,
        round_seconds: float = ROUND,
    ) -> None:
        """`most`: rows per round; what is beyond becomes one row for each rule."""
        self._keep = keep
        self._clock = clock
        self._count = count
        self.most = most
        self._round = round_seconds
        self._left = most
        self._rows: list[RefusalRow] = []
        self._uncounted: Counter[Rule] = Counter()
        self._came = asyncio.Event()

    def refused(self, refusal: Refusal, address: str) -> None:
        """A connection was not let in, or not let stay."""
        self._count(refusal.rule)
        if self._left <= 0:
            self._uncounted[refusal.rule] += 1
            return
        self._left -= 1
        row = refusal_row(
            refusal, self._clock.now(), peer=address, security=refusal.rule in SECURITY
        )
        log.warning(
            "connection refused",
            refusal=refusal.id,
            rule=refusal.rule.name,
            reason=refusal.message,
            details=refusal.details,
            peer=address,
        )
        self._rows.append(row)
        self._came.set()

    async def run(self) -> None:
        """Until cancelled; what waits then is written first."""
        rounds = asyncio.create_task(self._rounds())
        try:
            while True:
                await self._came.wait()
                await asyncio.sleep(TOGETHER)
                await self._write()
        finally:
            rounds.cancel()
            await self._write()

    async def _rounds(self) -> None:
        while True:
            await asyncio.sleep(self._round)
            self._left = self.most
            now = self._clock.now()
            for rule, count in self._uncounted.items():
                refusal = Refusal(rule, f"{count} more were refused within {self._round:g} s")
                log.warning("connections refused", rule=rule.name, count=count)
                self._rows.append(refusal_row(refusal, now))
                self._came.set()
            self._uncounted.clear()

    async def _write(self) -> None:
        self._came.clear()
        rows, self._rows = self._rows, []
        if not rows:
            return

        try:
            await self._keep(rows)
        except Exception:
            log.exception("refusals not journalled", refusals=[row.refusal_id for row in rows])
