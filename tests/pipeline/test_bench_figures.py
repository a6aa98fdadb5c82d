"""What the bench of key figures measures is what the product says, in every engine."""

from __future__ import annotations

import pytest

from gridpost.bench._pipeline_figures import (
    NAMES,
    by_duckdb,
    by_polars,
    by_spark,
    gathered,
    ordered,
)

pytestmark = pytest.mark.timeout(900)


def test_every_engine_finds_the_figures_of_the_product(world, spark):
    pytest.importorskip("polars")
    table = world.lake.table("gold", "delivery").read()
    assert set(table.column_names) == {*NAMES, "complete_up_to", "build"}
    columns = table.select(list(NAMES)).to_pydict()
    product = ordered(zip(*columns.values(), strict=True))
    folder = gathered(world.lake)
    try:
        assert by_spark(spark, folder) == product
        assert by_duckdb(folder) == product
        assert by_polars(folder) == product
    finally:
        folder.rmtree()
