"""A small market for tests of capacity: areas, borders and users that exist nowhere else."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from gridpost.core.allocation import Order, Party, Role
from gridpost.core.capacity import Book, Border, Interconnector, Market
from gridpost.core.market_time import MarketTime, Period

EON, RWE, DK1, RTE = "10YDE-EON------1", "10YDE-RWENET---I", "10YDK-1--------W", "10YFR-RTE------C"
APG, CEPS = "10YAT-APG------L", "10YCZ-CEPS-----N"
GROUP, OTHER_GROUP = "11XEEX-INTRA---D", "10X1001A1001A450"

ZONE = MarketTime.of("Europe/Berlin")
DAY = date(2026, 3, 10)
NOW = datetime(2026, 3, 9, 20, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)

DE_DK = Border("DE-DK", (Interconnector(EON, DK1),))
DE_FR = Border("DE-FR", (Interconnector(RWE, RTE), Interconnector(EON, RTE)), common_atc=True)
AT_CZ = Border(
    "AT-CZ",
    (Interconnector(APG, CEPS),),
    unit=timedelta(minutes=15),
    ramping=500,
    opening_time=time(12, 0),
    closure=timedelta(minutes=30),
)


def market(*borders: Border) -> Market:
    return Market(ZONE, borders or (DE_DK, DE_FR, AT_CZ))


def book(*borders: Border, day: date = DAY, quantity: int = 1000) -> Book:
    """Every unit of the day offers the same quantity both ways."""
    made = Book(market(*borders))
    for pool in made.pools.values():
        for period in ZONE.periods(day, pool.border.unit):
            for direction in (0, 1):
                pool.offer(direction, period.start, quantity)
    return made


def hour(number: int, day: date = DAY, unit: timedelta = HOUR) -> Period:
    return ZONE.periods(day, unit)[number]


def party(
    name: str = "u1", groups: tuple[str, ...] = (GROUP,), borders: set[str] | None = None
) -> Party:
    return Party(name, frozenset(Role), groups, frozenset(borders or {"DE-DK", "DE-FR", "AT-CZ"}))


def order(
    quantity: int,
    period: Period | None = None,
    areas: tuple[str, str] = (EON, DK1),
    client_id: str = "c",
    bm_code: str = "",
    part: int = 0,
) -> Order:
    return Order(client_id, bm_code, *areas, period or hour(12), quantity, part)
