"""Histograms: the bucket of a value holds it, and percentiles are off by less than an eighth."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gridpost.pipeline.percentile import NEGATIVE, bucket, lower, percentile, upper

values = st.integers(0, 2**52)


@given(values)
def test_a_bucket_holds_its_value(value):
    number = bucket(value)
    assert lower(number) <= value <= upper(number)
    assert upper(number) + 1 == lower(number + 1)
    assert upper(number) <= value * 9 / 8 or value < 8


@given(values, values)
def test_buckets_keep_the_order(one, other):
    assert (bucket(one) <= bucket(other)) or one > other


def test_negative_values_have_a_bucket_of_their_own():
    assert bucket(-1) == bucket(-(10**12)) == NEGATIVE
    assert percentile({NEGATIVE: 5}, 0.5) is None


@given(st.lists(values, min_size=1, max_size=60), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_percentile_is_the_end_of_the_right_bucket(found, share):
    ordered = sorted(found)
    exact = ordered[-(-len(ordered) * round(share * 10_000) // 10_000) - 1]
    assert percentile(Counter(map(bucket, found)), share) == upper(bucket(exact))
