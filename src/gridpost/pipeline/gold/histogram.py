"""Histogram buckets in the words of Spark; what a bucket is, says `pipeline.percentile`."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from gridpost.pipeline.percentile import LINEAR, NEGATIVE, SUB_BITS


def bucket_column(value: Column) -> Column:
    """`bucket` in Spark's words. The logarithm is only a guess that integers correct."""
    safe = F.greatest(value, F.lit(LINEAR))
    guess = F.floor(F.log2(safe)).cast("int")
    exponent = (
        F.when(power_of_two(guess) > safe, guess - 1)
        .when(power_of_two(guess + 1) <= safe, guess + 1)
        .otherwise(guess)
    )
    sub = F.call_function("div", safe, power_of_two(exponent - SUB_BITS)) - LINEAR
    large = (exponent - SUB_BITS + 1).cast("long") * LINEAR + sub
    return (
        F.when(value < 0, F.lit(NEGATIVE)).when(value < LINEAR, value).otherwise(large).cast("int")
    )


def power_of_two(exponent: Column) -> Column:
    return F.call_function("shiftleft", F.lit(1).cast("long"), exponent)
