"""Histogram buckets in the words of Spark; what a bucket is, says `pipeline.percentile`."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from gridpost.pipeline.percentile import LINEAR, NEGATIVE, SUB_BITS


def bucket_column(value: Column) -> Column:
    """`bucket` in Spark's words. Digits of the binary number are counted: a logarithm takes far longer."""
    exponent = F.length(F.bin(value)) - 1
    sub = F.call_function("shiftright", value, exponent - SUB_BITS) - LINEAR
    large = (exponent - SUB_BITS + 1) * LINEAR + sub
    return (
        F.when(value < 0, F.lit(NEGATIVE)).when(value < LINEAR, value).otherwise(large).cast("int")
    )


def power_of_two(exponent: Column) -> Column:
    return F.call_function("shiftleft", F.lit(1).cast("long"), exponent)
