"""Which allocations a request gets (CMM 5.2.2): all contracts equal, all or nothing, or what there is.

The law of this file: an allocation takes no more than was available when its request began, and no
more than is left after the allocations before it in the same request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from gridpost.core.capacity import Book, Place, Pool, Status
from gridpost.core.market_time import Period

ALLOCATED = "Allocated"
IN_HALT = "The service is in HALT."


class AllocationType(StrEnum):
    ACE = "ACE"
    AON = "AON"
    IOC = "IOC"


class Role(StrEnum):
    """CMM 2.3."""

    EXPLICIT_PARTICIPANT = "explicit-participant"
    ALLOCATION_REPORTING = "allocation-reporting"


@dataclass(frozen=True, slots=True)
class Party:
    """A user of the interface, and what it may do."""

    name: str
    roles: frozenset[Role]
    groups: tuple[str, ...]
    """EIC codes of its balancing groups, the default one first."""
    borders: frozenset[str]

    def group(self, bm_code: str) -> str | None:
        """The group that a bmCode means; None: not one of this user's."""
        if not bm_code:
            return self.groups[0] if self.groups else None
        return bm_code if bm_code in self.groups else None


@dataclass(frozen=True, slots=True)
class Order:
    """One wanted allocation: an Alc of a request."""

    client_id: str
    bm_code: str
    out_area: str
    in_area: str
    period: Period
    quantity: int
    part: int = 0
    """Which Allocations element of the request it stands in."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one order; the allocation id is given by the ledger."""

    client_id: str
    success: bool
    message: str
    allocation_id: int | None = None
    confirmed: int | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """An order that gets something."""

    number: int
    """Of the order in its request."""
    order: Order
    place: Place
    group: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Decision:
    """Outcomes in the order of the request, and what is to be written and taken."""

    outcomes: tuple[Outcome, ...]
    grants: tuple[Grant, ...]


@dataclass(slots=True)
class _Draft:
    """What a request takes before it is decided as a whole."""

    book: Book
    taken: dict[str, dict[tuple[int, datetime], int]] = field(default_factory=dict)

    def available(self, place: Place, start: datetime) -> int:
        pool = self.book.pools[place.pool]
        taken = self.taken.get(place.pool, {})
        slot = (place.direction, start)
        at_first = pool.available(place.direction, start) - taken.get(slot, 0)
        return max(0, min(at_first, pool.available(place.direction, start, taken)))

    def take(self, place: Place, start: datetime, quantity: int) -> None:
        taken = self.taken.setdefault(place.pool, {})
        slot = (place.direction, start)
        taken[slot] = taken.get(slot, 0) + quantity


@dataclass(frozen=True, slots=True)
class _Valid:
    number: int
    order: Order
    place: Place
    group: str


def decide(
    book: Book, kind: AllocationType, orders: Sequence[Order], party: Party, now: datetime
) -> Decision:
    """Nothing is changed: whoever commits the grants applies them."""
    valid, failed = _examine(book, orders, party, now)
    if failed and kind is not AllocationType.IOC:
        first = min(failed)
        reason = f"Not allocated: {orders[first].client_id or 'another item'} of the same request failed."
        return _refused(
            orders, {number: failed.get(number, reason) for number in range(len(orders))}
        )
    if kind is AllocationType.IOC:
        grants = _immediate(book, valid, failed)
    elif kind is AllocationType.AON:
        grants = _all_or_nothing(book, valid, failed)
    else:
        grants = _equal(book, valid, failed)
    if not grants:
        return _refused(orders, failed)
    granted = {grant.number: grant for grant in grants}
    outcomes = tuple(
        Outcome(order.client_id, True, ALLOCATED, confirmed=granted[number].quantity)
        if number in granted
        else Outcome(order.client_id, False, failed[number])
        for number, order in enumerate(orders)
    )
    return Decision(outcomes, tuple(grants))


def apply(book: Book, grants: Iterable[Grant]) -> dict[str, set[datetime]]:
    """Put committed grants into the book; the units that were touched, by pool."""
    touched: dict[str, set[datetime]] = {}
    for grant in grants:
        start = grant.order.period.start
        book.pools[grant.place.pool].allocate(grant.place.direction, start, grant.quantity)
        touched.setdefault(grant.place.pool, set()).add(start)
    return touched


def _immediate(book: Book, valid: list[_Valid], failed: dict[int, str]) -> list[Grant]:
    draft = _Draft(book)
    grants = []
    for item in valid:
        start = item.order.period.start
        quantity = min(item.order.quantity, draft.available(item.place, start))
        if quantity:
            draft.take(item.place, start, quantity)
            grants.append(Grant(item.number, item.order, item.place, item.group, quantity))
        else:
            failed[item.number] = "Not allocated: no capacity is available in this period."
    return grants


def _all_or_nothing(book: Book, valid: list[_Valid], failed: dict[int, str]) -> list[Grant]:
    draft = _Draft(book)
    grants = []
    for item in valid:
        start = item.order.period.start
        available = draft.available(item.place, start)
        if available < item.order.quantity:
            failed.update(
                {
                    other.number: "Not allocated: all or nothing, and another period lacks capacity."
                    for other in valid
                }
            )
            failed[item.number] = (
                f"Not allocated: {item.order.quantity} kW requested, {available} kW available."
            )
            return []
        draft.take(item.place, start, item.order.quantity)
        grants.append(Grant(item.number, item.order, item.place, item.group, item.order.quantity))
    return grants


def _equal(book: Book, valid: list[_Valid], failed: dict[int, str]) -> list[Grant]:
    """One quantity for all: the smallest of what is requested and of what is available."""
    at_first = _Draft(book)
    most = min(
        min(item.order.quantity, at_first.available(item.place, item.order.period.start))
        for item in valid
    )
    quantity = most if _fits(book, valid, most) else _largest_below(book, valid, most)
    if quantity:
        return [Grant(item.number, item.order, item.place, item.group, quantity) for item in valid]
    text = "Not allocated: no capacity is available in all periods of the request."
    failed.update({item.number: text for item in valid})
    return []


def _largest_below(book: Book, valid: list[_Valid], most: int) -> int:
    """Where orders take from each other: two for the same unit, or opposite ways beside a ramping.

    If a quantity fits, every smaller one does: each limit is a straight line in it that holds at 0.
    """
    fits, fails = 0, most
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if _fits(book, valid, middle):
            fits = middle
        else:
            fails = middle
    return fits


def _fits(book: Book, valid: list[_Valid], quantity: int) -> bool:
    draft = _Draft(book)
    for item in valid:
        start = item.order.period.start
        if draft.available(item.place, start) < quantity:
            return False
        draft.take(item.place, start, quantity)
    return True


def _examine(
    book: Book, orders: Sequence[Order], party: Party, now: datetime
) -> tuple[list[_Valid], dict[int, str]]:
    valid: list[_Valid] = []
    failed: dict[int, str] = {}
    seen: dict[tuple[int, datetime], int] = {}
    for number, order in enumerate(orders):
        place = book.market.place(order.out_area, order.in_area)
        group = party.group(order.bm_code)
        if place is None:
            failed[number] = f"No interconnector leads from {order.out_area} to {order.in_area}."
            continue
        reason = _objection(book, book.pools[place.pool], order, party, now)
        twin = seen.setdefault((order.part, order.period.start), number)
        if reason is None and group is None:
            reason = f"The balancing group {order.bm_code or '(none)'} is not one of {party.name}."
        if reason is None and twin != number:
            reason = "The same period stands twice in one Allocations element."
            failed.setdefault(twin, reason)
        if reason is not None:
            failed[number] = reason
        elif group is not None:
            valid.append(_Valid(number, order, place, group))
    return [item for item in valid if item.number not in failed], failed


def _objection(book: Book, pool: Pool, order: Order, party: Party, now: datetime) -> str | None:
    border, start = pool.border, order.period.start
    if border.name not in party.borders:
        return f"{party.name} has no access to the border {border.name}."
    if pool.status is Status.HALT:
        return IN_HALT
    if order.period.end <= start:
        return "periodEnd is not after periodStart."
    if order.quantity <= 0:
        return "The quantity must be more than 0 kW."
    if book.market.clock.unit_at(start, border.unit) != order.period:
        minutes = int(border.unit.total_seconds()) // 60
        return f"The period is not exactly one market time unit of {minutes} minutes."
    if not pool.published(start):
        return f"No capacity of {border.name} is published for this period."
    if now < border.opens_at(book.market.clock, book.market.clock.day_of(start)):
        return f"Allocation of {border.name} has not opened for this delivery day."
    if now >= start - border.closure:
        return f"Allocation of {border.name} is closed for this period."
    return None


def _refused(orders: Sequence[Order], reasons: dict[int, str]) -> Decision:
    return Decision(
        tuple(Outcome(order.client_id, False, reasons[n]) for n, order in enumerate(orders)), ()
    )
