"""Facts of a capacity service: what was available and allocated, what was broadcast, who was logged in.

`day` is the UTC day of delivery for what has a period, and otherwise that of the fact itself.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from gridpost.core.journal import AllocationRow, AtcRow, BroadcastRow, SessionRow
from gridpost.pipeline.silver.facts import LINEAGE

# One unit and direction of a border in the books of one service.
PLACE = ("component", "border", "out_area", "in_area", "period_start")


def atc(bronze: DataFrame) -> DataFrame:
    a = AtcRow.KIND
    return bronze.where(F.col("kind") == a).select(
        *LINEAGE,
        "time",
        f"{a}.border",
        f"{a}.out_area",
        f"{a}.in_area",
        F.to_date(f"{a}.day").alias("delivery_day"),
        f"{a}.period_start",
        f"{a}.period_end",
        f"{a}.quantity",
        f"{a}.offered",
        f"{a}.allocated",
        f"{a}.event",
        f"{a}.status",
        f"{a}.broadcast_id",
        F.to_date(f"{a}.period_start").alias("day"),
    )


def allocations(bronze: DataFrame) -> DataFrame:
    a = AllocationRow.KIND
    return bronze.where(F.col("kind") == a).select(
        *LINEAGE,
        "time",
        f"{a}.allocation_id",
        f"{a}.border",
        f"{a}.out_area",
        f"{a}.in_area",
        f"{a}.period_start",
        f"{a}.period_end",
        f"{a}.quantity",
        f"{a}.requested",
        f"{a}.balancing_group",
        f"{a}.user",
        f"{a}.client_id",
        f"{a}.correlation_id",
        f"{a}.allocation_type",
        f"{a}.event",
        *(_pool(f"{a}.pool_{area}", f"{a}.{area}") for area in ("out_area", "in_area")),
        F.to_date(f"{a}.period_start").alias("day"),
    )


def _pool(known: str, asked: str) -> Column:
    """Journals from before it was written down have it for no border with common ATC."""
    given = F.nullif(F.col(known), F.lit(""))
    return F.coalesce(given, F.col(asked)).alias(known.rpartition(".")[2])


def broadcasts(bronze: DataFrame) -> DataFrame:
    b = BroadcastRow.KIND
    return bronze.where(F.col("kind") == b).select(
        *LINEAGE,
        "time",
        f"{b}.broadcast_id",
        f"{b}.exchange",
        f"{b}.event",
        f"{b}.border",
        f"{b}.balancing_group",
        f"{b}.out_area",
        f"{b}.in_area",
        F.to_date(F.nullif(f"{b}.day", F.lit(""))).alias("delivery_day"),
        f"{b}.entries",
        f"{b}.sequence_id",
        f"{b}.run",
        F.to_date("time").alias("day"),
    )


def sessions(bronze: DataFrame) -> DataFrame:
    """Rows that begin or end what a user is told; each ends what an earlier one of its user began."""
    s = SessionRow.KIND
    return bronze.where(F.col("kind") == s).select(
        *LINEAGE,
        "time",
        f"{s}.user",
        f"{s}.event",
        f"{s}.arguments",
        f"{s}.filtered",
        f"{s}.balancing_groups",
        f"{s}.run",
        F.to_date("time").alias("day"),
    )


def atc_as_of(found: DataFrame, moment: datetime | None = None) -> DataFrame:
    """For each unit and direction what the last broadcast said, at a moment or up to now."""
    seen = found if moment is None else found.where(F.col("time") <= F.lit(moment))
    newest = Window.partitionBy(*PLACE).orderBy(F.col("time").desc(), F.col("sequence").desc())
    return (
        seen.withColumn("rank", F.row_number().over(newest)).where(F.col("rank") == 1).drop("rank")
    )
