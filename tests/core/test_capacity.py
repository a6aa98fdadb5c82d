"""The book of capacity and what ACE, AON and IOC take from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.allocation import AllocationType, apply, decide
from gridpost.core.capacity import (
    BACKWARD,
    FORWARD,
    Interconnector,
    Offer,
    Status,
    check_offers,
    in_units,
)
from gridpost.core.refusal import Refusal, Rule
from support.capacity_market import (
    APG,
    AT_CZ,
    CEPS,
    DAY,
    DE_DK,
    DE_FR,
    DK1,
    EON,
    GROUP,
    NOW,
    OTHER_GROUP,
    RTE,
    RWE,
    ZONE,
    book,
    hour,
    market,
    order,
    party,
)  # fmt: skip

ACE, AON, IOC = AllocationType.ACE, AllocationType.AON, AllocationType.IOC


def pool_of(made, areas=(EON, DK1)):
    return made.place(*areas)[0]


def offer(made, quantities, direction=FORWARD, areas=(EON, DK1)):
    for number, quantity in quantities.items():
        pool_of(made, areas).offer(direction, hour(number).start, quantity)


def confirmed(decision):
    return [outcome.confirmed for outcome in decision.outcomes]


@pytest.mark.req("cmm-5.3.2-g")
def test_ace_confirms_one_quantity_that_is_available_in_all_periods():
    made = book()
    offer(made, {10: 900, 11: 400, 12: 700})
    decision = decide(made, ACE, [order(1000, hour(n)) for n in (10, 11, 12)], party(), NOW)
    assert confirmed(decision) == [400, 400, 400]


def test_ace_confirms_the_smallest_of_the_requested_quantities_where_they_differ():
    decision = decide(
        book(), ACE, [order(q, hour(n)) for n, q in ((10, 700), (11, 300))], party(), NOW
    )
    assert confirmed(decision) == [300, 300]


def test_ace_with_nothing_in_one_period_is_refused_as_a_whole():
    made = book()
    offer(made, {11: 0})
    decision = decide(made, ACE, [order(10, hour(n)) for n in (10, 11)], party(), NOW)
    assert not decision.grants
    assert not any(outcome.success for outcome in decision.outcomes)


def test_ace_shares_a_period_of_a_common_border_between_two_interconnectors():
    orders = [order(900, hour(9), (RWE, RTE)), order(900, hour(9), (EON, RTE), part=1)]
    assert confirmed(decide(book(), ACE, orders, party(), NOW)) == [500, 500]


def test_ace_finds_the_quantity_that_fits_where_orders_narrow_each_other():
    """Opposite ways in neighbouring units: each takes from the ramping of the other."""
    first, second = (hour(number, unit=AT_CZ.unit) for number in (40, 41))
    orders = [order(500, first, (CEPS, APG)), order(500, second, (APG, CEPS), part=1)]
    assert confirmed(decide(book(), ACE, orders, party(), NOW)) == [250, 250]
    orders.append(order(700, second, (CEPS, APG), part=2))
    assert confirmed(decide(book(), ACE, orders, party(), NOW)) == [250, 250, 250]


@pytest.mark.req("cmm-5.3.2-f")
def test_aon_takes_all_or_nothing():
    made = book()
    offer(made, {11: 999})
    orders = [order(1000, hour(n)) for n in (10, 11, 12)]
    assert decide(made, AON, orders, party(), NOW).grants == ()
    offer(made, {11: 1000})
    assert confirmed(decide(made, AON, orders, party(), NOW)) == [1000] * 3


@pytest.mark.req("cmm-5.3.2-e")
def test_ioc_takes_what_there_is_in_each_period():
    made = book()
    offer(made, {10: 600, 11: 2000, 12: 0})
    decision = decide(made, IOC, [order(1000, hour(n)) for n in (10, 11, 12)], party(), NOW)
    assert confirmed(decision) == [600, 1000, None]
    assert [outcome.success for outcome in decision.outcomes] == [True, True, False]


@pytest.mark.req("cmm-5.2.2-h")
@pytest.mark.parametrize(("kind", "wanted"), [(IOC, [1000, None]), (AON, [None, None])])
def test_borders_are_independent_under_ioc_only(kind, wanted):
    made = book()
    pool_of(made, (RWE, RTE)).offer(FORWARD, hour(12).start, 0)
    orders = [order(1000), order(10, areas=(RWE, RTE), part=1)]
    assert confirmed(decide(made, kind, orders, party(), NOW)) == wanted


@pytest.mark.req("cmm-5.4.2-f")
def test_what_is_allocated_one_way_is_available_the_other_way():
    made = book()
    apply(made, decide(made, AON, [order(300)], party(), NOW).grants)
    pool = pool_of(made)
    assert [pool.available(d, hour(12).start) for d in (FORWARD, BACKWARD)] == [700, 1300]
    back = decide(made, AON, [order(1300, areas=(DK1, EON))], party(), NOW)
    apply(made, back.grants)
    assert [pool.available(d, hour(12).start) for d in (FORWARD, BACKWARD)] == [2000, 0]


@pytest.mark.req("cmm-5.4.2-j")
def test_all_interconnectors_of_a_common_border_take_the_same_capacity():
    made = book()
    apply(made, decide(made, AON, [order(400, areas=(EON, RTE))], party(), NOW).grants)
    assert pool_of(made, (RWE, RTE)).available(FORWARD, hour(12).start) == 600
    assert pool_of(made, (RWE, RTE)).interconnector == Interconnector(RWE, RTE)


def test_ramping_limits_the_step_between_neighbouring_units():
    made = book()
    unit = AT_CZ.unit
    first, second = hour(40, unit=unit), hour(41, unit=unit)
    pool = pool_of(made, (APG, CEPS))
    assert pool.available(FORWARD, first.start) == 500
    apply(made, decide(made, AON, [order(500, first, (APG, CEPS))], party(), NOW).grants)
    assert pool.available(FORWARD, first.start) == 0
    assert pool.available(FORWARD, second.start) == 500
    assert pool.available(BACKWARD, second.start) == 0
    assert pool.affected([second.start]) == [
        first.start, second.start, hour(42, unit=unit).start
    ]  # fmt: skip


def test_an_offer_below_what_is_allocated_leaves_nothing_and_a_shortfall():
    made = book()
    apply(made, decide(made, AON, [order(800)], party(), NOW).grants)
    offer(made, {12: 500})
    pool = pool_of(made)
    assert pool.available(FORWARD, hour(12).start) == 0
    assert pool.shortfall(FORWARD, hour(12).start) == 300
    assert pool.allocated[FORWARD][hour(12).start] == 800


def reason(made, wanted, who=None, kind=IOC, now=NOW):
    [outcome] = decide(made, kind, [wanted], who or party(), now).outcomes
    assert not outcome.success
    return outcome.message


def test_each_way_in_which_an_order_can_be_wrong_is_named():
    made = book()
    assert "No interconnector leads from" in reason(made, order(1, areas=(DK1, RTE)))
    assert "no access to the border" in reason(made, order(1), party(borders={"AT-CZ"}))
    assert OTHER_GROUP in reason(made, order(1, bm_code=OTHER_GROUP))
    half = replace(hour(12), end=hour(12).start + timedelta(minutes=30))
    assert "60 minutes" in reason(made, order(1, half))
    backwards = replace(hour(12), end=hour(12).start)
    assert "periodEnd" in reason(made, order(1, backwards))
    assert "published" in reason(made, order(1, hour(1, DAY + timedelta(days=3))))
    assert "not opened" in reason(made, order(1), now=NOW - timedelta(hours=12))
    assert "closed" in reason(made, order(1), now=hour(12).start - DE_DK.closure)
    pool_of(made).status = Status.HALT
    assert reason(made, order(1)) == "The service is in HALT."


def test_gates_open_and_close_to_the_second():
    made = book()
    opening = DE_DK.opens_at(ZONE, DAY)
    closing = hour(12).start - DE_DK.closure
    second = timedelta(seconds=1)
    taken = [
        bool(decide(made, AON, [order(1)], party(), at).grants)
        for at in (opening - second, opening, closing - second, closing)
    ]
    assert taken == [False, True, True, False]


@pytest.mark.parametrize("kind", [AON, ACE])
def test_one_invalid_order_fails_a_request_that_stands_or_falls_as_a_whole(kind):
    orders = [order(1), order(1, hour(13), bm_code=OTHER_GROUP)]
    decision = decide(book(), kind, orders, party(), NOW)
    assert decision.grants == ()
    assert OTHER_GROUP in decision.outcomes[1].message


def test_the_same_period_twice_fails_both_in_one_element_and_none_in_two():
    made = book()
    twice = [order(1), order(1)]
    assert decide(made, IOC, twice, party(), NOW).grants == ()
    apart = [order(1), order(1, part=1)]
    assert len(decide(made, IOC, apart, party(), NOW).grants) == 2


def test_an_empty_group_means_the_default_one():
    [grant] = decide(book(), AON, [order(1)], party(groups=(GROUP, OTHER_GROUP)), NOW).grants
    assert grant.group == GROUP


@pytest.mark.parametrize(
    "wrong",
    [
        Offer(DK1, RTE, hour(1).start, 5),
        Offer(EON, RTE, hour(1).start, 5),
        Offer(EON, DK1, hour(1).start, -1),
        Offer(EON, DK1, hour(1).start + timedelta(minutes=15), 5),
    ],
)
def test_an_offer_that_fits_no_unit_is_refused(wrong):
    with pytest.raises(Refusal):
        check_offers(book(), [wrong])


def test_an_offer_for_a_longer_period_counts_in_each_unit_of_it():
    hourly = Offer(APG, CEPS, hour(10).start, 700, timedelta(hours=1))
    quarters = in_units(market(), [hourly])
    assert [(found.start, found.quantity) for found in quarters] == [
        (hour(40 + number, unit=AT_CZ.unit).start, 700) for number in range(4)
    ]
    check_offers(book(), quarters)
    same = [
        Offer(EON, DK1, hour(10).start, 5, timedelta(hours=1)),
        Offer(EON, DK1, hour(10).start, 5),
    ]
    assert in_units(market(), same) == same
    unknown = [Offer(DK1, RTE, hour(10).start, 5, timedelta(hours=1))]
    assert in_units(market(), unknown) == unknown
    for shorter in (timedelta(minutes=30), timedelta(minutes=90)):
        with pytest.raises(Refusal) as refused:
            in_units(market(), [Offer(EON, DK1, hour(10).start, 5, shorter)])
        assert "60 minutes" in refused.value.message


def test_reference_data_that_contradicts_itself_is_refused():
    for borders in (
        (DE_DK, replace(DE_DK, name="DE-DK2")),
        (replace(DE_DK, interconnectors=()),),
        (replace(DE_DK, unit=timedelta(minutes=20)),),
        (replace(DE_DK, ramping=-1),),
        (replace(DE_DK, interconnectors=(Interconnector(EON, EON),)),),
    ):
        with pytest.raises(Refusal) as refused:
            market(*borders)
        assert refused.value.rule is Rule.REFERENCE_DATA


def test_days_open_at_the_opening_of_their_border_and_end_with_their_last_unit():
    made = book(DE_DK)
    pool = pool_of(made)
    opening = DE_DK.opens_at(ZONE, DAY)
    assert made.next_opening(opening - timedelta(days=3)) == opening
    assert made.open_days(pool, opening - timedelta(seconds=1)) == []
    assert made.open_days(pool, opening) == [DAY]
    assert made.next_opening(opening) is None
    assert made.open_days(pool, ZONE.end_of(DAY)) == []
    made.forget(ZONE.end_of(DAY))
    assert not pool.published(hour(1).start)


def test_a_border_or_one_of_its_interconnectors_is_halted():
    made = book(replace(DE_FR, common_atc=False), DE_DK)
    made.set_status("DE-FR", f"{RTE}/{EON}", Status.HALT)
    halted = [pool.name for pool in made.pools.values() if pool.status is Status.HALT]
    assert halted == [f"DE-FR {EON}/{RTE}"]
    assert len(made.set_status("DE-FR", "", Status.HALT)) == 2
    for border, interconnector in (("XX", ""), ("DE-FR", "A/B")):
        with pytest.raises(Refusal) as refused:
            made.set_status(border, interconnector, Status.HALT)
        assert refused.value.rule is Rule.AREA_UNKNOWN


# -- the law, for any sequence of requests

BORDERS = (
    DE_DK,
    DE_FR,
    AT_CZ,
    replace(DE_DK, name="R", interconnectors=(Interconnector(APG, RTE),), ramping=300),
)
FORTH = [(EON, DK1), (RWE, RTE), (EON, RTE), (APG, CEPS), (APG, RTE)]
AREAS = [*FORTH, *((into, out) for out, into in FORTH)]


@st.composite
def requests(draw):
    orders = []
    for part in range(draw(st.integers(1, 3))):
        areas = draw(st.sampled_from(AREAS))
        unit = AT_CZ.unit if APG in areas and CEPS in areas else DE_DK.unit
        for number in draw(st.lists(st.integers(10, 14), min_size=1, max_size=4, unique=True)):
            orders.append(
                order(draw(st.integers(1, 1500)), hour(number, unit=unit), areas, part=part)
            )
    return draw(st.sampled_from(AllocationType)), orders


@given(st.lists(requests(), min_size=1, max_size=12))
def test_no_request_takes_more_than_was_available_when_it_began(sequence):
    made = book(*BORDERS)
    everywhere = party(borders={border.name for border in BORDERS})
    for kind, orders in sequence:
        before = {
            (name, d, start): pool.available(d, start)
            for name, pool in made.pools.items()
            for d in (FORWARD, BACKWARD)
            for start in pool.offered[d]
        }
        decision = decide(made, kind, orders, everywhere, NOW)
        taken: dict = {}
        for grant in decision.grants:
            slot = (grant.place.pool, grant.place.direction, grant.order.period.start)
            taken[slot] = taken.get(slot, 0) + grant.quantity
            assert 0 < grant.quantity <= grant.order.quantity
        assert all(quantity <= before[slot] for slot, quantity in taken.items())
        if kind is AON:
            assert len(decision.grants) in (0, len(orders))
        if kind is ACE and decision.grants:
            assert len(decision.grants) == len(orders)
            assert len({grant.quantity for grant in decision.grants}) == 1
        if kind is ACE:
            # One more for each would not have fitted, where that much was asked for.
            [given] = {grant.quantity for grant in decision.grants} or {0}
            if given < min(wanted.quantity for wanted in orders):
                more = [replace(wanted, quantity=given + 1) for wanted in orders]
                assert decide(made, AON, more, everywhere, NOW).grants == ()
        apply(made, decision.grants)
        for pool in made.pools.values():
            for d, sign in ((FORWARD, 1), (BACKWARD, -1)):
                for start, offered in pool.offered[d].items():
                    net = pool.allocated[FORWARD].get(start, 0) - pool.allocated[BACKWARD].get(
                        start, 0
                    )
                    room = offered - sign * net
                    assert room >= 0
                    if pool.border.ramping is not None:
                        for other in (start - pool.border.unit, start + pool.border.unit):
                            if other in pool.offered[d]:
                                step = pool.net(other) - pool.net(start)
                                assert abs(step) <= pool.border.ramping
                                room = min(room, pool.border.ramping + sign * step)
                    assert pool.available(d, start) == max(0, room)


@given(st.lists(st.tuples(st.integers(1, 900), st.integers(0, 900)), min_size=1, max_size=6))
def test_ace_is_the_smallest_of_all_requested_and_available(pairs):
    made = book(DE_DK)
    offer(made, {number + 5: available for number, (_, available) in enumerate(pairs)})
    orders = [order(wanted, hour(number + 5)) for number, (wanted, _) in enumerate(pairs)]
    smallest = min(min(pair) for pair in pairs)
    decision = decide(made, ACE, orders, party(), NOW)
    assert confirmed(decision) == [smallest or None] * len(pairs)
