"""EIC codes: what the check character catches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.eic import check_character, eic
from gridpost.core.refusal import Refusal, Rule


@pytest.mark.parametrize(
    "code",
    [
        "10YDE-EON------1",
        "10YDK-1--------W",
        "10YFR-RTE------C",
        "10YDE-RWENET---I",
        "11XEEX-INTRA---D",
    ],
)
def test_codes_in_use_pass(code):
    assert eic(code) == code


@pytest.mark.parametrize(
    "code", ["", "10YDE-EON-----1", "10YDE-EON------2", "10yde-eon------1", "1" * 17]
)
def test_what_is_too_short_or_has_a_wrong_check_character_is_refused(code):
    with pytest.raises(Refusal) as refused:
        eic(code)
    assert refused.value.rule is Rule.BAD_EIC


@given(
    st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", min_size=12, max_size=12), st.integers(0, 13)
)
def test_two_neighbours_that_changed_places_are_noticed(middle, place):
    stem = f"10Y{middle}"
    swapped = stem[:place] + stem[place + 1] + stem[place] + stem[place + 2 :]
    if swapped != stem:
        assert check_character(swapped) != check_character(stem)
