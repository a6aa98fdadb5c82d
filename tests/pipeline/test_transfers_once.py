"""Readers of transfers count an event once, also where two edges of one broker have a row of it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from gridpost.pipeline.silver.facts import transfers_once

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SCHEMA = (
    "component string, instance string, sequence long, segment string, time timestamp, "
    "side string, message_id string, sender_code string, receiver_code string, "
    "message_type string, peer string, size long, outcome string, detail string, day date"
)


def row(at: int, edge: str, message: str, side: str, outcome: str, detail: str = "") -> Any:
    time = T0 + timedelta(seconds=at)
    parties = ("E1", "E2", "A01", "E2", 3)
    return ("B1", edge, at, "s", time, side, message, *parties, outcome, detail, date(2026, 3, 1))


def test_an_event_is_counted_once_and_its_first_row_is_the_one_that_is_kept(
    spark: SparkSession,
) -> None:
    rows = [
        row(1, "edge-1", "m1", "received", "accepted"),
        row(2, "edge-1", "m1", "sent", "accepted"),
        # The first edge died between its row and its word to RabbitMQ.
        row(9, "edge-2", "m1", "sent", "accepted"),
        row(3, "edge-1", "m2", "received", "accepted"),
        row(4, "edge-1", "m2", "sent", "not settled", "attempt 1"),
        row(5, "edge-2", "m2", "sent", "not settled", "attempt 2"),
        row(6, "edge-2", "m2", "sent", "accepted"),
    ]
    once = transfers_once(spark.createDataFrame(rows, SCHEMA)).orderBy("sequence")
    found = [
        (r.message_id, r.side, r.outcome, r.detail, r.instance, r.rows) for r in once.collect()
    ]
    assert found == [
        ("m1", "received", "accepted", "", "edge-1", 1),
        ("m1", "sent", "accepted", "", "edge-1", 2),
        ("m2", "received", "accepted", "", "edge-1", 1),
        ("m2", "sent", "not settled", "attempt 1", "edge-1", 1),
        ("m2", "sent", "not settled", "attempt 2", "edge-2", 1),
        ("m2", "sent", "accepted", "", "edge-2", 1),
    ]


def test_several_edges_make_the_same_of_their_rows_in_whatever_order_they_land(
    spark: SparkSession,
) -> None:
    rows = [row(at, f"edge-{at % 2}", f"m{at % 3}", "sent", "accepted") for at in range(12)]
    one, other = (
        sorted(map(tuple, transfers_once(spark.createDataFrame(given, SCHEMA)).collect()))
        for given in (rows, rows[::-1])
    )
    assert one == other
    assert [found[-1] for found in one] == [4, 4, 4]
