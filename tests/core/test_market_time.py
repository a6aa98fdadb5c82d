"""Delivery days of a market, also those on which the clock changes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.market_time import UNITS, MarketTime
from gridpost.core.refusal import Refusal

BERLIN = MarketTime.of("Europe/Berlin")


@pytest.mark.parametrize(
    ("day", "hours"), [(date(2026, 3, 28), 24), (date(2026, 3, 29), 23), (date(2026, 10, 25), 25)]
)
@pytest.mark.parametrize("unit", UNITS)
def test_a_day_has_as_many_units_as_its_hours_hold(day, hours, unit):
    periods = BERLIN.periods(day, unit)
    assert len(periods) == hours * (timedelta(hours=1) // unit)
    assert all(a.end == b.start for a, b in pairwise(periods))
    assert (periods[0].start, periods[-1].end) == (BERLIN.start_of(day), BERLIN.end_of(day))


def test_a_summer_day_starts_at_22_utc_of_the_day_before():
    assert BERLIN.start_of(date(2014, 7, 11)) == datetime(2014, 7, 10, 22, tzinfo=UTC)
    assert BERLIN.day_of(datetime(2014, 7, 10, 22, tzinfo=UTC)) == date(2014, 7, 11)


@given(st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)), st.sampled_from(UNITS))
def test_every_instant_lies_in_one_unit_of_its_day(moment, unit):
    instant = moment.replace(tzinfo=UTC)
    periods = BERLIN.periods(BERLIN.day_of(instant), unit)
    [found] = [p for p in periods if p.start <= instant < p.end]
    assert BERLIN.unit_at(found.start, unit) == found
    assert BERLIN.unit_at(found.start + timedelta(minutes=1), unit) is None


def test_an_unknown_zone_is_refused():
    with pytest.raises(Refusal):
        MarketTime.of("Europe/Atlantis")
