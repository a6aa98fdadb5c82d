"""Capacity in the lake: availability as of any moment, positions, use, broadcasts and the ledger."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import duckdb
import pytest

from gridpost.pipeline.incremental import read
from gridpost.pipeline.key_figures import overview
from gridpost.pipeline.silver.capacity import atc_as_of

from .capacity_ledger import EIGHT
from .conftest import World

pytestmark = pytest.mark.timeout(900)


def rows(world: World, layer: str, name: str) -> list[dict]:
    return world.lake.table(layer, name).read().to_pylist()


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [(0, [100, 100, 100]), (1, [60, 100, 100]), (2, [50, 100, 100]), (9, [50, 75, 100])],
)
def test_what_was_available_is_known_as_of_any_moment(world, spark, minutes, expected):
    table = read(spark, world.lake.table("silver", "atc"))
    found = atc_as_of(table, EIGHT + timedelta(minutes=minutes)).collect()
    assert [row.quantity for row in sorted(found, key=lambda r: r.period_start)] == expected
    assert atc_as_of(table, EIGHT - timedelta(minutes=1)).collect() == []


def test_positions_and_use_are_those_of_duckdb(world):
    files = f"{world.lake.archive}/*/segment.*.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        positions = connection.execute(
            f"""SELECT a.balancing_group, a.period_start, sum(a.quantity), count(*)
            FROM (SELECT "capacity-allocation" AS a FROM read_parquet('{files}')
            WHERE kind = 'capacity-allocation') GROUP BY ALL"""
        ).fetchall()
        use = connection.execute(
            f"""SELECT a.period_start, arg_max(a.offered, sequence), arg_max(a.allocated, sequence),
            arg_max(a.quantity, sequence) FROM (SELECT sequence, "capacity-atc" AS a
            FROM read_parquet('{files}') WHERE kind = 'capacity-atc') GROUP BY ALL"""
        ).fetchall()
    assert sorted(positions) == sorted(
        (r["balancing_group"], r["period_start"], r["quantity"], r["allocations"])
        for r in rows(world, "gold", "capacity_positions")
    )
    found = rows(world, "gold", "capacity_use")
    assert sorted(use) == sorted(
        (r["period_start"], r["offered"], r["allocated"], r["quantity"]) for r in found
    )
    assert all(r["agrees"] and r["ledger_allocated"] == r["allocated"] for r in found)
    assert sorted(r["used"] for r in found) == [Decimal(0), Decimal("0.25"), Decimal("0.5")]


def test_numbers_that_no_client_saw_and_broadcasts_beside_the_ledger(world):
    (gap,) = rows(world, "gold", "capacity_broadcast_gaps")
    assert (gap["balancing_group"], gap["first"], gap["last"]) == ("BG1", 1, 2)
    verdicts = rows(world, "gold", "capacity_reconciliation")
    assert len(verdicts) == len(rows(world, "silver", "broadcasts"))
    (wrong,) = [r for r in verdicts if r["verdict"] != "matched"]
    assert (wrong["verdict"], wrong["entries"], wrong["ledger_entries"]) == ("mismatch", 4, 3)
    known = overview(world.lake)
    assert known["capacity_broadcasts"]["mismatch"] == 1
    assert len(known["capacity_use"]) == 3


def test_users_of_capacity_have_no_name_from_bronze_on(world):
    for layer, name in (("bronze", "journal"), ("silver", "allocations")):
        assert "Erika" not in str(rows(world, layer, name))
    assert all(len(r["user"]) == 32 for r in rows(world, "silver", "allocations"))
