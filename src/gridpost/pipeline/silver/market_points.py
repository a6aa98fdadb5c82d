"""Points of market documents by column, and which of them a period holds by the rules of its curve.

No point is ever an object: a period is kept as lines of text, the lines of many documents become
columns at once, and their times are counted by numpy.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from decimal import Decimal
from itertools import repeat
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from pyarrow import csv

from gridpost.pipeline.silver.market_runs import Run, Said
from gridpost.pipeline.silver.market_values import (
    FACTORS,
    PRICE_FACTORS,
    QUARTER_US,
    SCALE,
    Contradiction,
    Moments,
    Steps,
    day_of,
    numbers,
    times,
)

DECIMAL = pa.decimal128(38, SCALE)
TIME = pa.timestamp("us", tz="UTC")
SEQUENTIAL, POINTS, BLOCKS = "A01", "A02", "A03"
OVERLAPPING, BREAKPOINTS = "A04", "A05"
CURVES = (SEQUENTIAL, POINTS, BLOCKS, OVERLAPPING, BREAKPOINTS)
POINT = pa.struct(
    [
        ("series_mrid", pa.string()),
        ("business_type", pa.string()),
        ("in_domain", pa.string()),
        ("out_domain", pa.string()),
        ("curve_type", pa.string()),
        ("resolution", pa.string()),
        ("unit", pa.string()),
        ("currency", pa.string()),
        ("position", pa.int64()),
        ("start", TIME),
        ("end", TIME),
        ("delivery_day", pa.date32()),
        ("quantity", DECIMAL),
        ("quantity_normalised", DECIMAL),
        ("price", DECIMAL),
        ("price_normalised", DECIMAL),
        ("carried", pa.bool_()),
    ]
)
_LINE = {"position": pa.int64(), "quantity": DECIMAL, "price": DECIMAL}
Texts = list[str | None]


@dataclass(frozen=True, slots=True)
class Series:
    """What a series says of all its points."""

    mrid: str | None
    business_type: str | None
    in_domain: str | None
    out_domain: str | None
    curve: str
    unit: str
    currency: str | None
    price_unit: str


@dataclass(frozen=True, slots=True)
class _Period:
    says: tuple[str | None, ...]
    lines: bytes
    starts: Moments
    ends: Moments
    days: Moments
    carried: list[bool] | None
    normalised: tuple[Texts | Decimal | None, Texts | Decimal | None]
    """Of quantities and prices: texts, or one where they are normal, or None where they cannot be."""

    def __len__(self) -> int:
        return len(self.starts)


class Points:
    """Of many documents."""

    def __init__(self) -> None:
        self._periods: list[_Period] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def cut(self, length: int) -> None:
        """Forget what came after so many of them."""
        while self._length > length:
            self._length -= len(self._periods.pop())

    def add(self, series: Series, period: Steps, read: Run | Said, zone: str) -> None:
        count = period.count(ZoneInfo(zone))
        factors = FACTORS.get(series.unit), PRICE_FACTORS.get(series.price_unit)
        normalised: tuple[Texts | Decimal | None, Texts | Decimal | None] = factors
        carried: list[bool] | None = None
        plain = all(factor in (None, 1) for factor in factors)
        lines = read.lines(count) if plain and isinstance(read, Run) else None
        positions: range | list[int] = range(1, count + 1)
        if lines is None:
            said = read.said() if isinstance(read, Run) else read
            positions, carried, quantities, prices = _held(said, series.curve, count)
            pairs = zip(positions, quantities, prices, strict=True)
            lines = "".join(f"{n},{q or ''},{p or ''}\n" for n, q, p in pairs).encode()
            if not plain:
                normalised = times(quantities, factors[0]), times(prices, factors[1])
        starts, ends = period.extents(positions, ZoneInfo(zone))
        self._periods.append(
            _Period(
                (
                    *(series.mrid, series.business_type, series.in_domain, series.out_domain),
                    *(series.curve, period.resolution, series.unit, series.currency),
                ),
                lines,
                starts,
                ends,
                _days(starts, zone),
                carried,
                normalised,
            )
        )
        self._length += len(starts)

    def to_arrow(self) -> pa.StructArray:
        periods = self._periods
        if not self._length:
            return pa.array([], POINT)
        lengths = [len(period) for period in periods]
        of = pa.array(np.repeat(np.arange(len(periods)), lengths))
        columns: list[pa.Array] = [
            pa.array(values, pa.string()).take(of)
            for values in zip(*(period.says for period in periods), strict=True)
        ]
        position, quantity, price = _columns(b"".join(period.lines for period in periods))
        starts, ends, days = (
            np.concatenate([getattr(period, name) for period in periods])
            for name in ("starts", "ends", "days")
        )
        carried = np.zeros(self._length, bool)
        at = 0
        for period in periods:
            if period.carried is not None:
                carried[at : at + len(period)] = period.carried
            at += len(period)
        columns += [
            position,
            pa.array(starts).cast(TIME),
            pa.array(ends).cast(TIME),
            pa.array(days.astype(np.int32)).cast(pa.date32()),
            quantity,
            self._normalised(0, quantity),
            price,
            self._normalised(1, price),
            pa.array(carried),
        ]
        return pa.StructArray.from_arrays(columns, fields=list(POINT))

    def _normalised(self, which: int, said: pa.Array) -> pa.Array:
        # Most are in the unit that they are normalised to.
        if all(period.normalised[which] == 1 for period in self._periods):
            return said
        pieces, at = [], 0
        for period in self._periods:
            normal = period.normalised[which]
            if isinstance(normal, list):
                pieces.append(pa.array(normal, pa.string()).cast(DECIMAL))
            elif normal is None:
                pieces.append(pa.nulls(len(period), DECIMAL))
            else:
                pieces.append(said.slice(at, len(period)))
            at += len(period)
        return pa.concat_arrays(pieces)


def _columns(lines: bytes) -> list[pa.Array]:
    read = csv.read_csv(
        pa.BufferReader(lines),
        csv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=list(_LINE)),
        convert_options=csv.ConvertOptions(column_types=_LINE),
    )
    return [column.combine_chunks() for column in read.columns]


def _held(said: Said, curve: str, count: int) -> tuple[list[int], list[bool], Texts, Texts]:
    """What holds at which position, by the rules of its curve."""
    found: dict[int, tuple[str | None, str | None]] = {}
    for text, quantity, price in zip(*said, strict=True):
        position = int(text) if text.isdigit() else 0
        if not 1 <= position <= count:
            raise Contradiction(f"position {text} of {count}")
        if position in found:
            raise Contradiction(f"position {position} twice")
        found[position] = quantity, price
    if curve == SEQUENTIAL and len(found) != count:
        missing = next(p for p in range(1, count + 1) if p not in found)
        raise Contradiction(f"position {missing} is missing, which curve type A01 does not allow")
    if curve == BLOCKS and 1 not in found:
        raise Contradiction("position 1 is missing: nothing to carry forward")
    positions = list(range(1, count + 1)) if curve == BLOCKS else sorted(found)
    # A03: a value holds until the next one.
    last: tuple[str | None, str | None] = (None, None)
    held = [last := found.get(position, last) for position in positions]
    return (
        positions,
        [position not in found for position in positions],
        numbers([q for q, _ in held]),
        numbers([p for _, p in held]),
    )


def _days(starts: Moments, zone: str) -> Moments:
    """Times are in order: a day is looked up where it begins, not for each of them."""
    found: list[int] = []
    while len(found) < len(starts):
        day = day_of(int(starts[len(found)]) // QUARTER_US, zone)
        end = bisect_right(
            starts, day, lo=len(found), key=lambda at: day_of(int(at) // QUARTER_US, zone)
        )
        found.extend(repeat(day, end - len(found)))
    return np.array(found, np.int64)
