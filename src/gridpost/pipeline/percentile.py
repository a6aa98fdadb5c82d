"""Additive latency histograms: eight buckets for each power of two of microseconds.

Integers decide, so that every engine finds the same bucket; a percentile is off by less than an
eighth of its value. Negative latencies have a bucket of their own and are never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

SUB_BITS = 3
NEGATIVE = -1
LINEAR = 1 << SUB_BITS  # below this many microseconds each value is a bucket


def bucket(microseconds: int) -> int:
    if microseconds < 0:
        return NEGATIVE
    if microseconds < LINEAR:
        return microseconds
    exponent = microseconds.bit_length() - 1
    sub = (microseconds >> (exponent - SUB_BITS)) - LINEAR
    return ((exponent - SUB_BITS + 1) << SUB_BITS) + sub


def lower(number: int) -> int:
    """The smallest value of a bucket."""
    if number < LINEAR:
        return number
    exponent = (number >> SUB_BITS) + SUB_BITS - 1
    return (LINEAR + (number & (LINEAR - 1))) << (exponent - SUB_BITS)


def upper(number: int) -> int:
    """The largest value of a bucket."""
    return number if number < LINEAR else lower(number + 1) - 1


def percentile(histogram: Mapping[int, int], share: float) -> int | None:
    """The upper end of the bucket in which this share of the values ends; None: there are none."""
    known = sorted((number, count) for number, count in histogram.items() if number >= 0)
    total = sum(count for _, count in known)
    if total == 0:
        return None
    wanted = -(-total * round(share * 10_000) // 10_000)  # ceiling, in integers
    running = 0
    for number, count in known:
        running += count
        if running >= wanted:
            return upper(number)
    return None
