"""What a client missed: gaps in the sequence of its groups, and the allocation data that fills them.

The law of this file: one gap, one recovery (CMM 3.1.1.3.1). Gaps that appear while one is under way share
the next; whatever is refused is asked again later and later, never as fast as it is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, date, datetime, timedelta

import structlog

from gridpost.capacity.settings import ClientSettings
from gridpost.capacity.values import AllocationsRecovered
from gridpost.core.broadcast import X_BG, X_SEQUENCE_ID, login_filter
from gridpost.core.market_time import MarketTime
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.cmm import (
    AllocationData,
    AllocationDataList,
    AllocationDataNtf,
    AllocationDataReq,
    AllocationDataResp,
    ErrorResp,
)
from gridpost.wire.cmm.messages import Message, Request

log = structlog.get_logger(__name__)

_LONGEST_PAUSE = 60.0
_WIDE = 1_000_000


class Recovery:
    """Follows the numbers of broadcasts, and asks when one is missing."""

    def __init__(
        self,
        settings: ClientSettings,
        ask: Callable[[Request], Awaitable[Message]],
        tell: Callable[[AllocationsRecovered], None],
        start: Callable[[Awaitable[None]], asyncio.Task[None]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._ask = ask
        self._tell = tell
        self._start = start
        self._sleep = sleep
        self._clock = MarketTime.of(settings.zone)
        self._sequence: dict[str, int] = {}
        self._groups: set[str] = set(settings.balancing_groups)
        self._seen: dict[str, set[str]] = {}
        self._interconnectors: set[tuple[str, str]] = {
            _joined(*areas) for areas in settings.interconnectors
        }
        self._gaps: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._filtered = login_filter(settings.arguments, _WIDE).restricts_allocations
        self._warned = False
        self.done = 0
        """Recoveries so far."""

    @property
    def idle(self) -> bool:
        return self._task is None or self._task.done()

    def follow(self, headers: dict[str, str], message: AllocationDataNtf) -> None:
        group = headers.get(X_BG, "")
        for part in message.lists:
            self._interconnectors.add(_joined(part.in_area, part.out_area))
            seen = self._seen.setdefault(group, set())
            seen.update(item.allocation_id for item in part.items)
        if self._filtered:
            if not self._warned:
                self._warned = True
                log.warning("a filter restricts broadcasts: gaps cannot be noticed")
            return
        try:
            number = int(headers.get(X_SEQUENCE_ID, ""))
        except ValueError:
            return
        self._groups.add(group)
        last = self._sequence.get(group)
        self._sequence[group] = number
        if last is not None and number != last + 1:
            self._recover({group})

    def logged_in_again(self) -> None:
        """What was broadcast meanwhile is lost for us (CMM 3.1.3)."""
        if self._filtered:
            return
        # The next number of a group is no second gap: the Login came before it.
        self._sequence.clear()
        self._recover(self._groups)

    def _recover(self, groups: set[str]) -> None:
        self._gaps |= groups
        if self._gaps and self.idle:
            self._task = self._start(self._recoveries())

    async def _recoveries(self) -> None:
        pause = self._settings.recovery_pause.total_seconds()
        failures = 0
        while self._gaps:
            wanted, self._gaps = self._gaps, set()
            failed: set[str] = set()
            for group in sorted(wanted):
                try:
                    await self._recover_group(group)
                except Refusal as refusal:
                    log.warning(
                        "recovery failed, it is tried again", group=group, why=refusal.message
                    )
                    failed.add(group)
                await self._sleep(pause)
            self._gaps |= failed
            failures = failures + 1 if failed else 0
            if failed:
                await self._sleep(min(_LONGEST_PAUSE, pause * 2.0 ** min(failures, 16)))

    async def _recover_group(self, group: str) -> None:
        today = self._clock.day_of(datetime.now(UTC))
        days = [today + timedelta(days=number) for number in range(*self._settings.recovery_days)]
        known = self._seen.setdefault(group, set())
        lists: list[AllocationDataList] = []
        for areas in sorted(self._interconnectors):
            lists += await self._allocations(group, areas, days)
        missed: dict[str, AllocationData] = {
            item.allocation_id: item
            for part in lists
            for item in part.items
            if item.allocation_id not in known
        }
        known.update(missed)
        self.done += 1
        self._tell(AllocationsRecovered(group, tuple(missed.values()), tuple(lists)))

    async def _allocations(
        self, group: str, areas: tuple[str, str], days: Sequence[date]
    ) -> tuple[AllocationDataList, ...]:
        """Of whole delivery days; in halves, where the service answers for fewer at once."""
        if not days:
            return ()
        start, end = self._clock.start_of(days[0]), self._clock.end_of(days[-1])
        response = await self._ask(AllocationDataReq(group, start, end, *areas))
        if isinstance(response, AllocationDataResp) and response.success:
            return response.lists
        if isinstance(response, AllocationDataResp) and len(days) > 1:
            middle = len(days) // 2
            first = await self._allocations(group, areas, days[:middle])
            return first + await self._allocations(group, areas, days[middle:])
        if isinstance(response, ErrorResp | AllocationDataResp):
            raise Refusal(Rule.REQUEST_REFUSED, response.message)
        raise Refusal(Rule.REQUEST_REFUSED, f"the service answered {type(response).__name__}")


def _joined(one: str, other: str) -> tuple[str, str]:
    first, second = sorted((one, other))
    return first, second
