"""Market time: which delivery day an instant belongs to, and the market time units of a day.

Days are those of the market's zone; everything else is UTC. A day has 23, 24 or 25 hours, and its
units follow each other without a gap, because they are counted in elapsed time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule

UNITS = (timedelta(minutes=15), timedelta(minutes=30), timedelta(hours=1))


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """From `start`, up to and without `end`; both in UTC."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class MarketTime:
    """The clock of one market."""

    zone: ZoneInfo

    @classmethod
    def of(cls, name: str) -> MarketTime:
        try:
            return cls(ZoneInfo(name))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise Refusal(
                Rule.USAGE, f"'{clip(name)}' is not a time zone; write one like Europe/Brussels"
            ) from None

    def day_of(self, instant: datetime) -> date:
        return _day_of(self.zone, instant)

    def start_of(self, day: date) -> datetime:
        return self.at(day, time(0))

    def at(self, day: date, clock: time) -> datetime:
        """A time of a day, in UTC. One that the clock change skips is that much later."""
        return _at(self.zone, day, clock)

    def end_of(self, day: date) -> datetime:
        return self.start_of(day + timedelta(days=1))

    def periods(self, day: date, unit: timedelta) -> tuple[Period, ...]:
        return _periods(self, day, unit)

    def unit_at(self, start: datetime, unit: timedelta) -> Period | None:
        """The market time unit that starts at an instant; None: none does."""
        return _unit_at(self, start, unit)


# Periods of a market are few, and asked for again and again.
_KNOWN = 4096


@lru_cache(_KNOWN)
def _day_of(zone: ZoneInfo, instant: datetime) -> date:
    return instant.astimezone(zone).date()


@lru_cache(_KNOWN)
def _at(zone: ZoneInfo, day: date, clock: time) -> datetime:
    return datetime.combine(day, clock, zone).astimezone(UTC)


@lru_cache(_KNOWN)
def _unit_at(market: MarketTime, start: datetime, unit: timedelta) -> Period | None:
    elapsed = start - market.start_of(market.day_of(start))
    return Period(start, start + unit) if not elapsed % unit else None


@lru_cache(maxsize=256)
def _periods(market: MarketTime, day: date, unit: timedelta) -> tuple[Period, ...]:
    periods = []
    start, end = market.start_of(day), market.end_of(day)
    while start < end:
        periods.append(Period(start, start + unit))
        start += unit
    return tuple(periods)
