"""Numbers, times and periods of market documents: exact, or a contradiction that is named.

A position becomes a time by its resolution from the start of its period, in UTC; days of 23 and 25
hours need no rule of their own that way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from gridpost.core.instant import Instant

SCALE = 8
Moments = np.ndarray[Any, np.dtype[np.int64]]
"""Microseconds since 1970."""
# To megawatts and megawatt-hours.
FACTORS = {
    "MAW": Decimal(1),
    "MWH": Decimal(1),
    "KWT": Decimal("0.001"),
    "KWH": Decimal("0.001"),
    "GWH": Decimal(1000),
}
# Currency for one of these; a price becomes currency for one megawatt-hour.
PRICE_FACTORS = {
    "MWH": Decimal(1),
    "MAW": Decimal(1),
    "KWH": Decimal(1000),
    "KWT": Decimal(1000),
    "GWH": Decimal("0.001"),
}
# What the tables hold without a look: most numbers of most documents.
_PLAIN_NUMBER = re.compile(r"[+-]?\d{1,29}(?:\.\d{1,8})?")
# Atomic, and not possessive: in the first releases of Python 3.11 a match of that includes a repetition that
# began and did not end.
_PLAIN_NUMBERS = re.compile(rf"(?>{_PLAIN_NUMBER.pattern}(?: {_PLAIN_NUMBER.pattern})*)")
_RESOLUTION = re.compile(
    r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?"
)
_MAX_POINTS = 1_000_000
QUARTER_US = 15 * 60 * 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = EPOCH.toordinal()


class Contradiction(Exception):
    """The document cannot mean what it says."""


@dataclass(frozen=True, slots=True)
class Steps:
    start: datetime
    end: datetime
    resolution: str
    step: timedelta | None
    months: int

    def at(self, position: int, zone: ZoneInfo) -> datetime:
        """Where a position starts; days and months are those of the market's zone."""
        if self.step is not None:
            return self.start + (position - 1) * self.step
        local = self.start.astimezone(zone)
        if self.months < 0:
            moved = local.replace(tzinfo=None) + timedelta(days=-self.months * (position - 1))
            return moved.replace(tzinfo=zone).astimezone(self.start.tzinfo)
        month = local.month - 1 + self.months * (position - 1)
        moved = local.replace(year=local.year + month // 12, month=month % 12 + 1)
        return moved.astimezone(self.start.tzinfo)

    def extents(self, positions: Sequence[int], zone: ZoneInfo) -> tuple[Moments, Moments]:
        """Where positions start and end, in microseconds."""
        if self.step is not None:
            first, step = _us(self.start), self.step // timedelta(microseconds=1)
            starts = first + (np.asarray(positions, np.int64) - 1) * step
            return starts, starts + step
        return (
            np.array([_us(self.at(position, zone)) for position in positions], np.int64),
            np.array([_us(self.at(position + 1, zone)) for position in positions], np.int64),
        )

    def count(self, zone: ZoneInfo) -> int:
        if self.step is not None:
            whole, rest = divmod(self.end - self.start, self.step)
            if rest:
                raise Contradiction("the period is not a multiple of its resolution")
        else:
            whole = 0
            while self.at(whole + 1, zone) < self.end:
                whole += 1
            if self.at(whole + 1, zone) != self.end:
                raise Contradiction("the period is not a multiple of its resolution")
        if not 0 < whole <= _MAX_POINTS:
            raise Contradiction(f"a period of {whole} positions")
        return int(whole)


def _us(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


@lru_cache(maxsize=65536)
def day_of(quarter: int, zone: str) -> int:
    """The local day, in days since 1970; every zone is a whole number of quarters off UTC."""
    at = datetime.fromtimestamp(quarter * QUARTER_US // 1_000_000, ZoneInfo(zone))
    return at.toordinal() - EPOCH_DAY


@lru_cache(maxsize=256)
def resolution_of(text: str) -> tuple[timedelta | None, int]:
    """A fixed step, or months (positive) or days (negative) of the calendar."""
    match = _RESOLUTION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise Contradiction(f"resolution {text!r} is not known")
    years, months, days, hours, minutes, seconds = (int(g or 0) for g in match.groups())
    fixed = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    calendar = years * 12 + months
    if sum(map(bool, (fixed, calendar, days))) != 1:
        raise Contradiction(f"resolution {text!r} is not known")
    if fixed:
        return fixed, 0
    return None, calendar or -days


def numbers(texts: list[str | None]) -> list[str | None]:
    """All at once where they are plain."""
    if None not in texts and _PLAIN_NUMBERS.fullmatch(" ".join(texts)):  # type: ignore[arg-type]
        return texts
    return [_number(text) for text in texts]


def _number(text: str | None) -> str | None:
    """As the tables hold it, never rounded: what does not fit is a problem of the document."""
    if text is None or _PLAIN_NUMBER.fullmatch(text):
        return text
    try:
        return _fitting(Decimal(text))
    except InvalidOperation:
        raise Contradiction(f"{text!r} is not a number") from None


def times(values: list[str | None], factor: Decimal | None) -> list[str | None]:
    if factor is None:
        return [None] * len(values)
    if factor == 1:
        return values
    return [None if v is None else _fitting(Decimal(v) * factor) for v in values]


def _fitting(value: Decimal) -> str:
    if not value.is_finite():
        raise Contradiction(f"{value} is not a number")
    scaled = value.quantize(Decimal(1).scaleb(-SCALE))
    if scaled != value or abs(value) >= Decimal(10) ** 29:
        raise Contradiction(f"{value} has more digits than the tables hold")
    return f"{scaled:f}"


@lru_cache(maxsize=4096)
def time_of(text: str | None) -> datetime | None:
    if text is None:
        return None
    # Intervals are written without seconds: 2026-03-28T23:00Z.
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\dZ", text):
        text = f"{text[:-1]}:00Z"
    return Instant.parse(text).at
