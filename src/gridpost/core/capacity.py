"""Transfer capacity: borders, interconnectors, and the book of what is offered and allocated.

Only this file decides how much is available. For each interconnector, or for a border whose
capacity is common to its interconnectors, for each market time unit and each direction:

    available = max(0, min(offered - allocated + allocated the opposite way, what ramping permits))

Quantities are kW as integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from enum import StrEnum

from gridpost.core.eic import eic
from gridpost.core.market_time import UNITS, MarketTime, Period
from gridpost.core.refusal import Refusal, Rule

FORWARD, BACKWARD = 0, 1
"""From the first area of an interconnector to the second, and the opposite way."""
DIRECTIONS = (FORWARD, BACKWARD)


class Status(StrEnum):
    ALLOCATION = "ALLOCATION"
    HALT = "HALT"


class Trigger(StrEnum):
    """CMM 3.1.1.2.1: the event that a broadcast tells of."""

    PUBLISH = "PUBLISH"
    ADJUST_CAPACITY = "ADJUST_CAPACITY"
    ON_BEHALF = "ON_BEHALF"
    ALLOCATION = "ALLOCATION"
    ALLOCATION_PMI = "ALLOCATION_PMI"


@dataclass(frozen=True, slots=True)
class Interconnector:
    """Two delivery areas. On one border all first areas lie on the same side."""

    area1: str
    area2: str

    def areas(self, direction: int) -> tuple[str, str]:
        """The outbound and the inbound area."""
        return (self.area1, self.area2) if direction == FORWARD else (self.area2, self.area1)

    def __str__(self) -> str:
        return f"{self.area1}/{self.area2}"


@dataclass(frozen=True, slots=True)
class Border:
    """Its short name, its interconnectors (the leading one first) and its rules."""

    name: str
    interconnectors: tuple[Interconnector, ...]
    unit: timedelta = timedelta(hours=1)
    common_atc: bool = False
    ramping: int | None = None
    """By how much the net position may differ between one unit and the next, in kW."""
    opening_days: int = 1
    opening_time: time = time(15, 0)
    """Allocation for a delivery day starts this many days before it, at this time of the market."""
    closure: timedelta = timedelta(hours=1)
    """Allocation of a unit ends this long before it starts."""

    def opens_at(self, clock: MarketTime, day: date) -> datetime:
        return clock.at(day - timedelta(days=self.opening_days), self.opening_time)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pair of areas lies: whose capacity it takes, and which way."""

    border: Border
    interconnector: Interconnector
    pool: str
    direction: int


class Market:
    """Reference data, checked as a whole when it is made."""

    def __init__(self, clock: MarketTime, borders: Iterable[Border]) -> None:
        self.clock = clock
        self.borders = {border.name: border for border in borders}
        self._places: dict[tuple[str, str], Place] = {}
        for border in self.borders.values():
            self._check(border)
            for interconnector in border.interconnectors:
                for direction in DIRECTIONS:
                    areas = interconnector.areas(direction)
                    if areas in self._places:
                        raise Refusal(
                            Rule.REFERENCE_DATA,
                            f"the interconnector {interconnector} stands in two places",
                        )
                    name = pool_name(border, interconnector)
                    self._places[areas] = Place(border, interconnector, name, direction)

    def place(self, out_area: str, in_area: str) -> Place | None:
        return self._places.get((out_area, in_area))

    def pools(self) -> Iterator[tuple[str, Border, Interconnector]]:
        """Name, border and the interconnector that broadcasts are about (CMM 5.4.2)."""
        for border in self.borders.values():
            leading = border.interconnectors[:1]
            for interconnector in leading if border.common_atc else border.interconnectors:
                yield pool_name(border, interconnector), border, interconnector

    @staticmethod
    def _check(border: Border) -> None:
        if not border.interconnectors:
            raise Refusal(Rule.REFERENCE_DATA, f"the border {border.name} has no interconnector")
        if border.unit not in UNITS:
            raise Refusal(
                Rule.REFERENCE_DATA,
                f"the market time unit of {border.name} must be 15, 30 or 60 minutes",
            )
        if border.ramping is not None and border.ramping < 0:
            raise Refusal(Rule.REFERENCE_DATA, f"the ramping of {border.name} is negative")
        for interconnector in border.interconnectors:
            if eic(interconnector.area1) == eic(interconnector.area2):
                raise Refusal(
                    Rule.REFERENCE_DATA,
                    f"{interconnector} on {border.name} joins an area to itself",
                )


def pool_name(border: Border, interconnector: Interconnector) -> str:
    return border.name if border.common_atc else f"{border.name} {interconnector}"


Taken = Mapping[tuple[int, datetime], int]
"""Direction and start of a unit -> what a request has taken that is not in the book yet."""
_NOTHING: Taken = {}


@dataclass(slots=True)
class Pool:
    """Capacity that is sold as one: of an interconnector, or of a border with common ATC."""

    name: str
    border: Border
    interconnector: Interconnector
    offered: tuple[dict[datetime, int], dict[datetime, int]] = field(
        default_factory=lambda: ({}, {})
    )
    allocated: tuple[dict[datetime, int], dict[datetime, int]] = field(
        default_factory=lambda: ({}, {})
    )
    announced: tuple[dict[datetime, int], dict[datetime, int]] = field(
        default_factory=lambda: ({}, {})
    )
    """What the last broadcast said of each unit."""
    status: Status = Status.ALLOCATION

    def published(self, start: datetime) -> bool:
        return start in self.offered[FORWARD] or start in self.offered[BACKWARD]

    def net(self, start: datetime, taken: Taken = _NOTHING) -> int:
        """The net position, forward counted positive."""
        position = self.allocated[FORWARD].get(start, 0) - self.allocated[BACKWARD].get(start, 0)
        if taken:
            position += taken.get((FORWARD, start), 0) - taken.get((BACKWARD, start), 0)
        return position

    def available(self, direction: int, start: datetime, taken: Taken = _NOTHING) -> int:
        sign = 1 if direction == FORWARD else -1
        net = self.net(start, taken)
        room = self.offered[direction].get(start, 0) - sign * net
        ramping = self.border.ramping
        if ramping is not None:
            for neighbour in self.neighbours(start):
                room = min(room, ramping + sign * (self.net(neighbour, taken) - net))
        return max(0, room)

    def neighbours(self, start: datetime) -> list[datetime]:
        """Units beside this one that have capacity at all."""
        unit = self.border.unit
        return [at for at in (start - unit, start + unit) if self.published(at)]

    def shortfall(self, direction: int, start: datetime) -> int:
        """By how much more is allocated than is offered since the offer was lowered."""
        sign = 1 if direction == FORWARD else -1
        return max(0, sign * self.net(start) - self.offered[direction].get(start, 0))

    def affected(self, starts: Iterable[datetime]) -> list[datetime]:
        """Units whose availability can change with the net positions of these."""
        touched = set(starts)
        if self.border.ramping is not None:
            for start in tuple(touched):
                touched.update(self.neighbours(start))
        return sorted(touched)

    def offer(self, direction: int, start: datetime, quantity: int) -> None:
        self.offered[direction][start] = quantity

    def allocate(self, direction: int, start: datetime, quantity: int) -> None:
        allocated = self.allocated[direction]
        allocated[start] = allocated.get(start, 0) + quantity

    def announce(
        self, direction: int, starts: Iterable[datetime], *, full: bool
    ) -> list[tuple[datetime, int]]:
        """What a broadcast has to say now, remembered as said."""
        announced = self.announced[direction]
        said = []
        for start in starts:
            quantity = self.available(direction, start)
            if full or announced.get(start) != quantity:
                announced[start] = quantity
                said.append((start, quantity))
        return said

    def forget(self, before: datetime) -> None:
        for book in (*self.offered, *self.allocated, *self.announced):
            for start in [start for start in book if start < before]:
                del book[start]


class Book:
    """What is offered and allocated now: the sum of the ledger."""

    def __init__(self, market: Market) -> None:
        self.market = market
        self.pools = {
            name: Pool(name, border, interconnector)
            for name, border, interconnector in market.pools()
        }

    def place(self, out_area: str, in_area: str) -> tuple[Pool, int] | None:
        place = self.market.place(out_area, in_area)
        return None if place is None else (self.pools[place.pool], place.direction)

    def periods(self, pool: Pool, day: date) -> list[Period]:
        """The units of a day for which capacity is published."""
        units = self.market.clock.periods(day, pool.border.unit)
        return [period for period in units if pool.published(period.start)]

    def open_days(self, pool: Pool, now: datetime) -> list[date]:
        """Days with published capacity whose allocation has started and that have not ended."""
        clock = self.market.clock
        starts = {*pool.offered[FORWARD], *pool.offered[BACKWARD]}
        days = {clock.day_of(start) for start in starts if start + pool.border.unit > now}
        return sorted(day for day in days if pool.border.opens_at(clock, day) <= now)

    def next_opening(self, now: datetime) -> datetime | None:
        """When allocation of a further published day starts."""
        clock = self.market.clock
        openings = {
            pool.border.opens_at(clock, clock.day_of(start))
            for pool in self.pools.values()
            for start in (*pool.offered[FORWARD], *pool.offered[BACKWARD])
        }
        return min((at for at in openings if at > now), default=None)

    def set_status(self, border: str, interconnector: str, status: Status) -> list[Pool]:
        """Of a whole border, or of one interconnector of it."""
        pools = self.pools_of(border, interconnector)
        for pool in pools:
            pool.status = status
        return pools

    def pools_of(self, border: str, interconnector: str = "") -> list[Pool]:
        known = self.market.borders.get(border)
        if known is None:
            raise Refusal(Rule.AREA_UNKNOWN, f"there is no border {border}")
        if not interconnector:
            return [pool for pool in self.pools.values() if pool.border.name == border]
        for found in known.interconnectors:
            if interconnector in (str(found), f"{found.area2}/{found.area1}"):
                return [self.pools[pool_name(known, found)]]
        raise Refusal(
            Rule.AREA_UNKNOWN,
            f"the border {border} has no interconnector {interconnector}",
            f"it has: {', '.join(map(str, known.interconnectors))}",
        )

    def forget(self, before: datetime) -> None:
        for pool in self.pools.values():
            pool.forget(before)


@dataclass(frozen=True, slots=True)
class Offer:
    """Capacity of one unit in one direction, as published or adjusted."""

    out_area: str
    in_area: str
    start: datetime
    quantity: int
    length: timedelta | None = None
    """Of the period that a document gives it for; None: one market time unit."""


def in_units(market: Market, offers: Sequence[Offer]) -> list[Offer]:
    """An offer for a longer period counts in each market time unit of it."""
    found: list[Offer] = []
    for offer in offers:
        place = market.place(offer.out_area, offer.in_area)
        unit = None if place is None else place.border.unit
        if unit is None or offer.length is None or offer.length == unit:
            found.append(offer)
        elif offer.length % unit:
            raise Refusal(
                Rule.BAD_CAPACITY,
                f"periods of {_minutes(offer.length)} minutes are no whole market time units of "
                f"{_minutes(unit)} minutes",
            )
        else:
            found += [
                replace(offer, start=offer.start + number * unit, length=unit)
                for number in range(offer.length // unit)
            ]
    return found


def check_offers(book: Book, offers: Sequence[Offer]) -> None:
    """Capacity comes for whole market time units of known interconnectors, and is not negative."""
    for offer in offers:
        place = book.market.place(offer.out_area, offer.in_area)
        if place is None:
            raise Refusal(
                Rule.AREA_UNKNOWN,
                f"no interconnector leads from {offer.out_area} to {offer.in_area}",
            )
        border, interconnector = place.border, place.interconnector
        if border.common_atc and interconnector != border.interconnectors[0]:
            raise Refusal(
                Rule.BAD_CAPACITY,
                f"the capacity of {border.name} is common: publish it for its leading "
                f"interconnector {border.interconnectors[0]}",
            )
        if offer.quantity < 0:
            raise Refusal(Rule.BAD_CAPACITY, f"{offer.quantity} kW: capacity is not negative")
        if book.market.clock.unit_at(offer.start, border.unit) is None:
            raise Refusal(
                Rule.BAD_CAPACITY,
                f"no market time unit of {border.name} ({_minutes(border.unit)} minutes) starts at "
                f"{offer.start.isoformat()}",
            )


def _minutes(length: timedelta) -> int:
    return length // timedelta(minutes=1)
