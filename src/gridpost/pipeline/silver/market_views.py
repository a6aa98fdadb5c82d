"""Market documents and their points as tables: what was said, and what holds of it now or then."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from gridpost.pipeline.silver.facts import LINEAGE


def documents(parsed: DataFrame) -> DataFrame:
    return parsed.where(F.col("problem").isNull()).drop("values", "problem")


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


def holding(found: DataFrame, known_at: datetime | None = None) -> DataFrame:
    """The newest revision of each document, as known at a time; one that was ended holds no more."""
    seen = found if known_at is None else found.where(F.col("known_at") <= F.lit(known_at))
    newest = Window.partitionBy("document_mrid").orderBy(
        F.col("revision").desc(), F.col("known_at").desc(), F.col("message_id").desc()
    )
    ranked = seen.withColumn("rank", F.row_number().over(newest))
    return ranked.where((F.col("rank") == 1) & ~F.col("ended")).drop("rank")


def holding_points(found: DataFrame, of: DataFrame, known_at: datetime | None = None) -> DataFrame:
    """Points of the documents that hold."""
    chosen = holding(of, known_at).select("message_id")
    return found.join(chosen, on="message_id", how="left_semi")
