"""Up to when a figure is complete: the column that every row of gold has, added in one place."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gridpost.pipeline.completeness import COLUMN

JOURNALS = "journals"
"""Of tables that name no component otherwise: those whose journals a row was made from."""
# Columns by which the other tables name them; a foreign party has no mark and does not count.
_NAMED = ("sender_code", "receiver_code", "component", "seen_by")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def with_completeness(made: DataFrame, marks: Mapping[str, datetime]) -> DataFrame:
    """`marks`: up to when the journal of each component is in the lake without a hole."""
    if not marks:
        return made.withColumn(COLUMN, F.lit(None).cast("timestamp"))
    named = [F.col(name) for name in _NAMED if name in made.columns]
    behind = F.col(JOURNALS) if JOURNALS in made.columns else F.array(*named)
    known = F.create_map(
        *(part for name, at in sorted(marks.items()) for part in (F.lit(name), _moment(at)))
    )
    least = F.array_min(F.transform(behind, lambda name: F.try_element_at(known, name)))
    end = F.date_add("day", 1).cast("timestamp")
    return made.withColumn(COLUMN, F.when(least.isNotNull(), F.least(least, end)))


def _moment(at: datetime) -> Column:
    return F.timestamp_micros(F.lit((at - _EPOCH) // timedelta(microseconds=1)))
