"""Works on the ledger: each decides, appends and says what has to be broadcast, in one commit.

Nothing here waits or sends. What a work returns is published after its commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby

from gridpost.core.allocation import AllocationType, Grant, Order, Outcome, Party, decide
from gridpost.core.broadcast import Allocation, AllocationNotice, AtcNotice, Notice
from gridpost.core.capacity import (
    DIRECTIONS,
    Book,
    Offer,
    Pool,
    Status,
    Trigger,
    check_offers,
    in_units,
)
from gridpost.core.capacity_ledger import CapacityUnit, Request, RequestKey
from gridpost.core.journal import AdministrationRow, AllocationRow, AtcRow, BroadcastRow
from gridpost.core.market_time import Period
from gridpost.wire.cmm import Names

FIRST_OUTCOME = "Duplicate request; first outcome: "


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for allocations, with who asks."""

    request: Request
    orders: Sequence[Order]
    party: Party


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcomes of each request for whoever asked, and broadcasts for everybody."""

    outcomes: tuple[tuple[Outcome, ...], ...]
    notices: tuple[Notice, ...] = ()


class Undone(Exception):
    """By our own fault one of several requests failed: nothing of any of them was done."""


def allocate(
    unit: CapacityUnit, names: Names, asked: Sequence[Asked], now: datetime, window: timedelta
) -> Answer:
    """Requests in their order, each on what those before it left.

    Correlation-id and outcome are committed with the allocations (CMM 3.2.2.2). What is broadcast of the
    ATC is the difference between the last broadcast and the values of now (CMM 5.4.2): of requests that
    are committed together it is one for all.
    """
    try:
        return _allocate_all(unit, names, asked, now, window)
    except Exception as error:
        if len(asked) == 1:
            raise
        raise Undone from error


def _allocate_all(
    unit: CapacityUnit, names: Names, asked: Sequence[Asked], now: datetime, window: timedelta
) -> Answer:
    keys = [key for each in asked if (key := _key(each.request)) is not None]
    first = unit.first_outcomes(keys, now - window)
    outcomes: list[tuple[Outcome, ...]] = []
    made: list[tuple[Trigger, list[Allocation]]] = []
    touched: dict[Trigger, dict[str, set[datetime]]] = {}
    for each in asked:
        key = _key(each.request)
        if key in first:
            outcomes.append(tuple(map(_repeated, first[key])))
            continue
        told, grants, allocations = _allocate(unit, each, now)
        outcomes.append(told)
        if key is not None:
            unit.keep_outcome(*key, now, told)
            first[key] = told
        if allocations:
            event = each.request.event
            made.append((event, allocations))
            pools = touched.setdefault(event, {})
            for grant in grants:
                pools.setdefault(grant.place.pool, set()).add(grant.order.period.start)
    notices: list[Notice] = []
    for event, pools in touched.items():
        notices += differences(unit, names, pools, event, now)
    for event, allocations in made:
        notices += _allocation_notices(unit, names, allocations, event, now)
    return Answer(tuple(outcomes), tuple(notices))


def _key(request: Request) -> RequestKey | None:
    """None: whoever gives no correlation-id cannot repeat a request."""
    return (request.user, request.correlation_id) if request.correlation_id else None


def _allocate(
    unit: CapacityUnit, asked: Asked, now: datetime
) -> tuple[tuple[Outcome, ...], tuple[Grant, ...], list[Allocation]]:
    request = asked.request
    kind = AllocationType(request.allocation_type)
    decision = decide(unit.book, kind, asked.orders, asked.party, now)
    grants = decision.grants
    allocations = unit.allocate(grants, request, now) if grants else []
    outcomes = list(decision.outcomes)
    for grant, allocation in zip(grants, allocations, strict=True):
        told = outcomes[grant.number]
        outcomes[grant.number] = Outcome(
            told.client_id, told.success, told.message, allocation.allocation_id, told.confirmed
        )
        unit.note(_allocation_row(unit.book, grant, request, allocation))
    return tuple(outcomes), grants, allocations


def publish(
    unit: CapacityUnit,
    names: Names,
    offers: Sequence[Offer],
    event: Trigger,
    actor: str,
    now: datetime,
) -> list[Notice]:
    """PUBLISH is broadcast in full, ADJUST_CAPACITY as what differs; closed days at their opening."""
    offers = in_units(unit.book.market, offers)
    check_offers(unit.book, offers)
    unit.offer(offers, event, actor, now)
    touched: dict[str, set[datetime]] = {}
    for offer in offers:
        place = unit.book.market.place(offer.out_area, offer.in_area)
        if place is not None:
            touched.setdefault(place.pool, set()).add(offer.start)
    unit.note(
        AdministrationRow(now, actor, event.value, ", ".join(touched), after=str(len(offers)))
    )
    if event is Trigger.ADJUST_CAPACITY:
        return differences(unit, names, touched, event, now)
    clock = unit.book.market.clock
    days = {name: {clock.day_of(start) for start in starts} for name, starts in touched.items()}
    return full(unit, names, days, event, now)


def set_status(
    unit: CapacityUnit,
    names: Names,
    border: str,
    interconnector: str,
    status: Status,
    actor: str,
    now: datetime,
    reason: str = "",
) -> list[Notice]:
    """CMM 5.4.2: everything is broadcast again when allocation resumes."""
    pools = unit.book.pools_of(border, interconnector)
    halted = [pool for pool in pools if pool.status is Status.HALT]
    unit.set_status(border, interconnector, status, actor, now)
    target = f"{border} {interconnector}".strip()
    unit.note(AdministrationRow(now, actor, status.value, target, reason=reason))
    if status is Status.HALT:
        return []
    days = {pool.name: set(unit.book.open_days(pool, now)) for pool in halted}
    return full(unit, names, days, Trigger.PUBLISH, now)


def everything(unit: CapacityUnit, names: Names, now: datetime) -> list[Notice]:
    """All open days of all borders, as a service says them when it starts."""
    days = {pool.name: set(unit.book.open_days(pool, now)) for pool in unit.book.pools.values()}
    return full(unit, names, days, Trigger.PUBLISH, now)


def opened(unit: CapacityUnit, names: Names, since: datetime, now: datetime) -> list[Notice]:
    """Days whose allocation has started after `since`."""
    book = unit.book
    days = {
        pool.name: {
            day
            for day in book.open_days(pool, now)
            if since < pool.border.opens_at(book.market.clock, day)
        }
        for pool in book.pools.values()
    }
    return full(unit, names, days, Trigger.PUBLISH, now)


def full(
    unit: CapacityUnit,
    names: Names,
    days: Mapping[str, Iterable[date]],
    event: Trigger,
    now: datetime,
) -> list[Notice]:
    notices: list[Notice] = []
    for name, wanted in days.items():
        pool = unit.book.pools[name]
        opened_days = set(unit.book.open_days(pool, now))
        for day in sorted(opened_days & set(wanted)):
            starts = [period.start for period in unit.book.periods(pool, day)]
            notices += _atc_notices(unit, names, pool, day, starts, event, now, everything=True)
    return notices


def differences(
    unit: CapacityUnit,
    names: Names,
    touched: Mapping[str, Iterable[datetime]],
    event: Trigger,
    now: datetime,
) -> list[Notice]:
    """CMM 5.4.2: for both directions, what differs from the last broadcast."""
    notices: list[Notice] = []
    book = unit.book
    for name, starts in touched.items():
        pool = book.pools[name]
        for day, same in groupby(pool.affected(starts), key=book.market.clock.day_of):
            if pool.border.opens_at(book.market.clock, day) <= now:
                notices += _atc_notices(
                    unit, names, pool, day, list(same), event, now, everything=False
                )
    return notices


def _atc_notices(
    unit: CapacityUnit,
    names: Names,
    pool: Pool,
    day: date,
    starts: Sequence[datetime],
    event: Trigger,
    now: datetime,
    *,
    everything: bool,
) -> list[Notice]:
    notices: list[Notice] = []
    clock = unit.book.market.clock
    for direction in DIRECTIONS:
        said = pool.announce(direction, starts, full=everything)
        if not said:
            continue
        out_area, in_area = pool.interconnector.areas(direction)
        length = pool.border.unit
        values = tuple((Period(start, start + length), quantity) for start, quantity in said)
        border = pool.border.name
        notice = AtcNotice(border, out_area, in_area, day, clock.start_of(day), event, values)
        notices.append(notice)
        number = unit.next_broadcast_id()
        unit.note(
            BroadcastRow(
                now, number, names.atc(border), event.value, out_area, in_area, len(values),
                border=border, day=day.isoformat(), run=unit.run,
            )
        )  # fmt: skip
        for period, quantity in values:
            unit.note(
                AtcRow(
                    now, border, out_area, in_area, day.isoformat(), period.start, period.end,
                    quantity, pool.offered[direction].get(period.start, 0),
                    pool.allocated[direction].get(period.start, 0), event.value, number,
                    pool.status.value,
                )
            )  # fmt: skip
    return notices


def _allocation_notices(
    unit: CapacityUnit,
    names: Names,
    allocations: Sequence[Allocation],
    event: Trigger,
    now: datetime,
) -> list[Notice]:
    """One for each group and direction of a request."""
    together: dict[tuple[str, str, str], list[Allocation]] = {}
    for allocation in allocations:
        key = (allocation.group, allocation.out_area, allocation.in_area)
        together.setdefault(key, []).append(allocation)
    notices: list[Notice] = []
    for (group, out_area, in_area), same in together.items():
        number = unit.next_sequence_id(group)
        notices.append(AllocationNotice(group, out_area, in_area, event, number, tuple(same)))
        unit.note(
            BroadcastRow(
                now, unit.next_broadcast_id(), names.allocation(group), event.value, out_area, in_area,
                len(same), balancing_group=group, sequence_id=number, run=unit.run,
            )
        )  # fmt: skip
    return notices


def _allocation_row(
    book: Book, grant: Grant, request: Request, allocation: Allocation
) -> AllocationRow:
    place, order = grant.place, grant.order
    pool_areas = book.pools[place.pool].interconnector.areas(place.direction)
    return AllocationRow(
        allocation.at, allocation.allocation_id, place.border.name, allocation.out_area,
        allocation.in_area, allocation.period.start, allocation.period.end, allocation.quantity,
        order.quantity, allocation.group, request.user, order.client_id, request.correlation_id,
        request.allocation_type, request.event.value, *pool_areas,
    )  # fmt: skip


def _repeated(first: Outcome) -> Outcome:
    """CMM 3.2.2.2: a duplicate gets a negative response; ours says what became of the first."""
    if first.success:
        told = f"alclid={first.allocation_id} confQty={first.confirmed}"
    else:
        told = f"refused: {first.message}"
    return Outcome(first.client_id, False, f"{FIRST_OUTCOME}{told}")


def atc_view(book: Book, now: datetime) -> list[dict[str, object]]:
    """For operators: all open days with what is offered, allocated and available."""
    rows: list[dict[str, object]] = []
    for pool in book.pools.values():
        for day in book.open_days(pool, now):
            for period in book.periods(pool, day):
                for direction in DIRECTIONS:
                    out_area, in_area = pool.interconnector.areas(direction)
                    rows.append(
                        {
                            "border": pool.border.name,
                            "out_area": out_area,
                            "in_area": in_area,
                            "day": day.isoformat(),
                            "period_start": period.start.isoformat(),
                            "period_end": period.end.isoformat(),
                            "offered": pool.offered[direction].get(period.start, 0),
                            "allocated": pool.allocated[direction].get(period.start, 0),
                            "available": pool.available(direction, period.start),
                            "shortfall": pool.shortfall(direction, period.start),
                            "status": pool.status.value,
                        }
                    )
    return rows
