"""Market documents and their points as tables: what was said, and what holds of it now or then."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from gridpost.pipeline.silver.facts import LINEAGE


def documents(parsed: DataFrame) -> DataFrame:
    return parsed.where(F.col("problem").isNull()).drop("listed", "values", "problem")


def quarantine(parsed: DataFrame) -> DataFrame:
    return parsed.where(F.col("problem").isNotNull()).select(
        "day",
        *LINEAGE,
        "message_id",
        "document",
        "document_mrid",
        "revision",
        "known_at",
        "problem",
    )


def points(parsed: DataFrame) -> DataFrame:
    kept = ("day", *LINEAGE, "message_id", "document_mrid", "revision", "known_at")
    return (
        parsed.where(F.col("problem").isNull())
        .select(*kept, F.explode("values").alias("value"))
        .select(*kept, "value.*")
    )


def series(parsed: DataFrame) -> DataFrame:
    kept = (
        *("day", *LINEAGE, "message_id", "document_mrid", "revision", "document", "sender"),
        *("period_start", "period_end", "known_at"),
    )
    return (
        parsed.where(F.col("problem").isNull())
        .select(*kept, F.explode("listed").alias("one"))
        .select(*kept, "one.*")
    )


def holding(found: DataFrame, known_at: datetime | None = None) -> DataFrame:
    """The newest revision of each document, as known at a time; one that was ended holds no more."""
    newest = Window.partitionBy("document_mrid").orderBy(
        F.col("revision").desc(), F.col("known_at").desc(), F.col("message_id").desc()
    )
    ranked = _seen(found, known_at).withColumn("rank", F.row_number().over(newest))
    return ranked.where((F.col("rank") == 1) & ~F.col("ended")).drop("rank")


def ended_series(found: DataFrame, known_at: datetime | None = None) -> DataFrame:
    """Message id and mRID of each series that was cancelled or withdrawn, there or by a later document.

    A series is known by its sender, the kind of its document and its mRID. Within one document the revision
    says which is later; another document has to be about the same time too, as many number their series
    from one on.
    """
    seen = _seen(found, known_at)
    names = (
        "series_mrid",
        "document",
        "sender",
        "document_mrid",
        "revision",
        "known_at",
        "message_id",
    )
    ends = ("period_start", "period_end")
    ending = seen.where("ended").select(
        *(F.col(name).alias(f"ending_{name}") for name in (*names, *ends))
    )
    same = (
        (F.col("series_mrid") == F.col("ending_series_mrid"))
        & (F.col("document") == F.col("ending_document"))
        & F.col("sender").eqNullSafe(F.col("ending_sender"))
    )
    own = F.col("document_mrid").eqNullSafe(F.col("ending_document_mrid"))
    revised = _order("ending_", "revision", "known_at", "message_id") >= _order(
        "", "revision", "known_at", "message_id"
    )
    after = _order("ending_", "known_at", "message_id") > _order("", "known_at", "message_id")
    # Without a period the mRID alone decides.
    meet = F.coalesce(F.col("period_start") < F.col("ending_period_end"), F.lit(True)) & F.coalesce(
        F.col("ending_period_start") < F.col("period_end"), F.lit(True)
    )
    joined = seen.join(ending, on=same & F.when(own, revised).otherwise(after & meet), how="inner")
    return joined.select("message_id", "series_mrid").distinct()


def holding_points(
    found: DataFrame, of: DataFrame, series: DataFrame, known_at: datetime | None = None
) -> DataFrame:
    """Points of the documents that hold, without those of series that were ended."""
    chosen = holding(of, known_at).select("message_id")
    return found.join(chosen, on="message_id", how="left_semi").join(
        ended_series(series, known_at), on=["message_id", "series_mrid"], how="left_anti"
    )


def _seen(found: DataFrame, known_at: datetime | None) -> DataFrame:
    return found if known_at is None else found.where(F.col("known_at") <= F.lit(known_at))


def _order(prefix: str, *names: str) -> Column:
    return F.struct(*(F.col(prefix + name).alias(name) for name in names))
