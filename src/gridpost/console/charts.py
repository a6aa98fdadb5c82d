"""Traffic and delivery times as columns of numbers for the charts of an overview."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from gridpost.core.delivery import Side, State
from gridpost.core.message_box import Brief

SPANS = {
    "1h": (timedelta(hours=1), timedelta(minutes=1)),
    "24h": (timedelta(days=1), timedelta(minutes=15)),
    "7d": (timedelta(days=7), timedelta(hours=2)),
}
_DONE = frozenset({State.DELIVERED, State.RECEIVED, State.TRACED})


def traffic(briefs: Sequence[Brief], since: datetime, now: datetime, step: timedelta) -> list[Any]:
    """[times, sent, received, failed]: how many in each step."""
    times, slots = _slots(since, now, step)
    sent, received, failed = [0] * slots, [0] * slots, [0] * slots
    for brief in briefs:
        slot = _slot(brief.arrived_at, since, step, slots)
        (sent if brief.side is Side.SENT else received)[slot] += 1
        if brief.state in (State.FAILED, State.REFUSED, State.EXPIRED):
            failed[slot] += 1
    return [times, sent, received, failed]


def latencies(
    briefs: Sequence[Brief], since: datetime, now: datetime, step: timedelta
) -> list[Any]:
    """[times, median, 95th percentile]: seconds from acceptance to the last good status."""
    times, slots = _slots(since, now, step)
    found: list[list[float]] = [[] for _ in range(slots)]
    for brief in briefs:
        if brief.side is Side.SENT and brief.state in _DONE:
            slot = _slot(brief.arrived_at, since, step, slots)
            found[slot].append((brief.changed_at - brief.arrived_at).total_seconds())
    ordered = [sorted(values) for values in found]
    return [times, [_percentile(v, 0.5) for v in ordered], [_percentile(v, 0.95) for v in ordered]]


def overall(briefs: Sequence[Brief]) -> tuple[float | None, float | None]:
    values = sorted(
        (b.changed_at - b.arrived_at).total_seconds()
        for b in briefs
        if b.side is Side.SENT and b.state in _DONE
    )
    return _percentile(values, 0.5), _percentile(values, 0.95)


def _slots(since: datetime, now: datetime, step: timedelta) -> tuple[list[int], int]:
    slots = max(1, -((since - now) // step))
    return [int((since + step * i).timestamp()) for i in range(slots)], slots


def _slot(at: datetime, since: datetime, step: timedelta, slots: int) -> int:
    return min(slots - 1, max(0, (at - since) // step))


def _percentile(ordered: Sequence[float], part: float) -> float | None:
    """The nearest rank."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
