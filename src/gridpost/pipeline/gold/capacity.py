"""Figures of capacity: positions, use, and whether the broadcasts said what the ledger holds."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from gridpost.core.journal import SessionEvent
from gridpost.pipeline.gold.reconciliation import MATCHED, MISMATCH, UNKNOWN
from gridpost.pipeline.silver.capacity import PLACE, atc_as_of


def positions(allocations: DataFrame) -> DataFrame:
    """What each balancing group holds in each unit and direction."""
    keys = ("day", *PLACE, "period_end", "balancing_group")
    return allocations.groupBy(*keys).agg(
        F.count("*").alias("allocations"),
        F.sum("quantity").alias("quantity"),
        F.sum("requested").alias("requested"),
        F.max("time").alias("last_at"),
    )


def use(atc: DataFrame, allocations: DataFrame) -> DataFrame:
    """The last word of each unit and direction, beside what the ledger had allocated by then."""
    last = atc_as_of(atc).alias("a")
    # Broadcasts are about the capacity that was taken, not the interconnector that was asked for.
    booked = allocations.select(
        *("component", "border", "period_start"),
        F.col("pool_out_area").alias("out_area"),
        F.col("pool_in_area").alias("in_area"),
        F.col("instance").alias("of"),
        F.col("sequence").alias("at"),
        F.col("quantity").alias("booked"),
    )
    # A row of the journal stands behind everything that had happened when it was written.
    before = F.when(
        (F.col("of") == F.col("instance")) & (F.col("at") < F.col("sequence")), F.col("booked")
    )
    keys = (
        *("day", "delivery_day", *PLACE, "period_end", "time", "status"),
        *("offered", "allocated", "quantity"),
    )
    joined = last.join(booked, on=list(PLACE), how="left")
    share = F.col("allocated").cast("decimal(20,0)") / F.col("offered").cast("decimal(20,0)")
    return (
        joined.groupBy(*keys)
        .agg(F.coalesce(F.sum(before), F.lit(0)).alias("ledger_allocated"))
        .select(
            *keys,
            "ledger_allocated",
            (F.col("allocated") == F.col("ledger_allocated")).alias("agrees"),
            F.when(F.col("offered") > 0, share.cast("decimal(9,6)")).alias("used"),
        )
    )


def broadcast_gaps(broadcasts: DataFrame) -> DataFrame:
    """CMM 3.1.1: numbers that a client never saw. They begin anew with each start of the service."""
    client = ("component", "instance", "run", "exchange", "balancing_group")
    in_order = Window.partitionBy(*client).orderBy("sequence_id")
    # CMM 3.1.1.3.1: the first one is 0.
    before = F.coalesce(F.lag("sequence_id").over(in_order), F.lit(-1))
    return (
        broadcasts.where(F.col("sequence_id") >= 0)
        .withColumn("before", before)
        .where(F.col("sequence_id") - F.col("before") > 1)
        .select(
            "day",
            *client,
            (F.col("before") + 1).alias("first"),
            (F.col("sequence_id") - 1).alias("last"),
            F.col("time").alias("noticed_at"),
        )
    )


def client_gaps(broadcasts: DataFrame, sessions: DataFrame) -> DataFrame:
    """CMM 3.1.1.3.1: numbers that a client was not told although it was logged in before and after them.

    `filtered`: its filter hides broadcasts from it, so that it could not notice this by the numbers.
    """
    journal = ("component", "instance")
    of_user = Window.partitionBy(*journal, "user").orderBy("sequence")
    group = F.explode(F.split("balancing_groups", " "))
    told = (
        sessions.withColumn("until", F.lead("sequence").over(of_user))
        .where(F.col("event") != SessionEvent.ENDED.value)
        .select(
            *(*journal, "user", "filtered", "until"),
            F.col("sequence").alias("since"),
            F.col("time").alias("logged_in_at"),
            F.col("run").alias("logged_in_run"),
            group.alias("balancing_group"),
        )
    )
    # The journal has one order for both: times of two rows may be the same.
    while_logged_in = (F.col("sequence") > F.col("since")) & (
        F.col("until").isNull() | (F.col("sequence") < F.col("until"))
    )
    heard = (
        broadcasts.where(F.col("sequence_id") >= 0)
        .join(told, on=[*journal, "balancing_group"], how="inner")
        .where(while_logged_in)
    )
    client = (*journal, "run", "exchange", "balancing_group", "user")
    in_order = Window.partitionBy(*client, "since").orderBy("sequence_id")
    # Who was there when the service started has to be told of 0; others begin with what they hear first.
    from_the_start = F.when(F.col("logged_in_run") < F.col("run"), F.lit(-1))
    before = F.coalesce(F.lag("sequence_id").over(in_order), from_the_start)
    return (
        heard.withColumn("before", before)
        .where(F.col("sequence_id") - F.col("before") > 1)
        .select(
            "day",
            *client,
            *("filtered", "logged_in_at"),
            (F.col("before") + 1).alias("first"),
            (F.col("sequence_id") - 1).alias("last"),
            F.col("time").alias("noticed_at"),
        )
    )


def broadcast_reconciliation(
    broadcasts: DataFrame, atc: DataFrame, allocations: DataFrame, holes: list[str]
) -> DataFrame:
    """Whether each broadcast says as many values as the ledger has for it.

    `holes`: components with rows that have not landed; about these nothing is said against anybody.
    """
    said = atc.groupBy("component", "broadcast_id").agg(F.count("*").alias("values"))
    with_values = broadcasts.join(said, on=["component", "broadcast_id"], how="left")
    # Allocations of one request and their broadcast are one commit: they have one time.
    keys = ["component", "instance", "time", "balancing_group", "out_area", "in_area"]
    made = allocations.groupBy(*keys).agg(F.count("*").alias("made"))
    told = (
        broadcasts.where(F.col("sequence_id") >= 0)
        .groupBy(*keys)
        .agg(F.sum("entries").alias("told"))
    )
    joined = with_values.join(made, on=keys, how="left").join(told, on=keys, how="left")
    is_atc = F.col("sequence_id") < 0
    entries = F.when(is_atc, F.col("entries")).otherwise(F.col("told"))
    ledger = F.coalesce(F.when(is_atc, F.col("values")).otherwise(F.col("made")), F.lit(0))
    verdict = (
        F.when(ledger == entries, MATCHED)
        .when(F.col("component").isin(holes) if holes else F.lit(False), UNKNOWN)
        .otherwise(MISMATCH)
    )
    return joined.select(
        "day",
        "component",
        "broadcast_id",
        "exchange",
        "event",
        "time",
        "border",
        "balancing_group",
        "out_area",
        "in_area",
        entries.alias("entries"),
        ledger.alias("ledger_entries"),
        verdict.alias("verdict"),
    )
