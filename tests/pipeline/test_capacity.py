"""Capacity in the lake: availability as of any moment, positions, use, broadcasts and the ledger."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from gridpost.pipeline.build import BuildSettings
from gridpost.pipeline.incremental import read
from gridpost.pipeline.key_figures import overview
from gridpost.pipeline.pseudonyms import name_of
from gridpost.pipeline.silver.capacity import atc_as_of
from gridpost.stores.segments.export import Exporter
from gridpost.stores.segments.landing import Landing
from stores.test_capacity_ledger import allocate, open_ledger, publish, random_request

from .capacity_ledger import EIGHT
from .conftest import World, pipeline_at

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


def test_who_missed_a_number_is_as_duckdb_finds_it(world):
    files = f"{world.lake.archive}/*/segment.*.parquet"
    with duckdb.connect() as connection:
        found = connection.execute(
            f"""WITH journal AS (SELECT * FROM read_parquet('{files}', union_by_name = true)),
            told AS (SELECT component, sequence, b.balancing_group AS bg, b.sequence_id AS id
                FROM (SELECT *, "capacity-broadcast" AS b FROM journal)
                WHERE kind = 'capacity-broadcast' AND b.sequence_id >= 0),
            standing AS (SELECT component, sequence, s.user AS who, s.filtered AS hiding,
                s.event AS event, string_split(s.balancing_groups, ' ') AS groups
                FROM (SELECT *, "capacity-session" AS s FROM journal)
                WHERE kind = 'capacity-session')
            SELECT l.who, l.hiding, two.bg, one.id + 1, two.id - 1
            FROM told two
            JOIN told one ON one.component = two.component AND one.bg = two.bg AND one.id < two.id - 1
            JOIN standing l ON l.component = one.component AND l.sequence < one.sequence
                AND l.event <> 'ended' AND list_contains(l.groups, two.bg)
            WHERE NOT EXISTS (FROM told t WHERE t.component = two.component AND t.bg = two.bg
                AND t.id > one.id AND t.id < two.id)
            AND NOT EXISTS (FROM standing n WHERE n.component = two.component AND n.who = l.who
                AND n.sequence > l.sequence AND n.sequence < two.sequence)"""
        ).fetchall()
    assert sorted(found) == [("Erika Muster", False, "BG1", 1, 2), ("Otto", True, "BG1", 1, 2)]
    gaps = rows(world, "gold", "capacity_client_gaps")
    assert sorted(
        (r["user"], r["filtered"], r["balancing_group"], r["first"], r["last"]) for r in gaps
    ) == sorted((name_of(who, world.lake.secret("pseudonyms")), *rest) for who, *rest in found)
    assert len(overview(world.lake)["capacity_client_gaps"]) == 2


def test_users_of_capacity_have_no_name_from_bronze_on(world):
    for layer, name in (
        *(("bronze", "journal"), ("silver", "allocations"), ("silver", "sessions")),
        ("gold", "capacity_client_gaps"),
    ):
        found = str(rows(world, layer, name))
        assert "Erika" not in found
        assert "Otto" not in found
    assert all(len(r["user"]) == 32 for r in rows(world, "silver", "allocations"))


async def _trade(folder: Path) -> dict[tuple[str, str, str, datetime], tuple[int, int]]:
    """A real ledger with random requests; border, areas and unit -> allocated and available."""
    chance = random.Random(5)
    ledger = open_ledger(str(folder))
    try:
        await publish(ledger)
        for _ in range(40):
            orders, kind = random_request(chance)
            await allocate(ledger, orders, kind)
        return ledger.look(
            lambda book: {
                (pool.border.name, *pool.interconnector.areas(direction), start): (
                    pool.allocated[direction].get(start, 0),
                    pool.available(direction, start),
                )
                for pool in book.pools.values()
                for direction in (0, 1)
                for start in pool.offered[direction]
            }
        )
    finally:
        await ledger.close()


def test_what_a_real_ledger_exports_comes_through_the_whole_pipeline(spark, tmp_path):
    booked = asyncio.run(_trade(tmp_path / "store"))
    pipeline = pipeline_at(tmp_path / "lake", spark)
    landing = Landing(pipeline.lake.landing)
    Exporter(tmp_path / "store", landing, lambda: datetime.now(UTC), 100).run()
    pipeline.ingest()
    pipeline.build(BuildSettings())

    def gold(name: str) -> list[dict]:
        found = pipeline.lake.table("gold", name).read()
        return [] if found is None else found.to_pylist()

    use = gold("capacity_use")
    assert {
        (r["border"], r["out_area"], r["in_area"], r["period_start"]): (
            r["allocated"],
            r["quantity"],
        )
        for r in use
    } == booked
    assert [r for r in use if not r["agrees"]] == []
    positions = gold("capacity_positions")
    assert sum(r["quantity"] for r in positions) == sum(made for made, _ in booked.values())
    assert {r["verdict"] for r in gold("capacity_reconciliation")} == {"matched"}
    assert gold("capacity_broadcast_gaps") == []
