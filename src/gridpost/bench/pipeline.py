"""The pipeline beside DuckDB, Polars and plain Python, on the same files, with the same results.

`GRIDPOST_BENCH_EVENTS` is the number of tracking events (default one million; the goal is stated for
ten million), `GRIDPOST_BENCH_RUNS` how often each thing is measured (the median counts).
`GRIDPOST_BENCH_SIZES` are the sizes at which the ingest alone is compared with itself (default: that number
and five times as many; empty: none), `GRIDPOST_BENCH_CHART` a file for their chart, `GRIDPOST_BENCH_FOLDER`
the disk to measure on. `GRIDPOST_BENCH_PARTS` are the parts to measure (default: all of
`sizes,tables,proofs,market`; `tables` is ingest and key figures, `sizes` that comparison).
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gridpost.bench import Measurement, _bulk
from gridpost.bench._journals import Journals
from gridpost.bench._pipeline_figures import key_figures
from gridpost.bench._pipeline_rows import EVENTS, market, verify
from gridpost.bench._pipeline_sizes import Sized, chart, measure_sizes
from gridpost.bench._timing import RUNS
from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline import admit, bronze
from gridpost.pipeline.files import place
from gridpost.pipeline.lake import Lake
from gridpost.pipeline.session import SessionSettings, start
from gridpost.stores.segments.export import Exporter
from gridpost.stores.segments.landing import Landing
from gridpost.stores.sqlite import SqliteStore

GROWTH = 5
"""The goal is stated for 10 and 50 million: what holds for a size holds for a multiple of it."""
_SIZES = os.environ.get("GRIDPOST_BENCH_SIZES", f"{EVENTS},{GROWTH * EVENTS}")
SIZES = [int(size) for size in _SIZES.split(",") if size]
PARTS = os.environ.get("GRIDPOST_BENCH_PARTS", "sizes,tables,proofs,market").split(",")
CHART = os.environ.get("GRIDPOST_BENCH_CHART", "")
FOLDER = os.environ.get("GRIDPOST_BENCH_FOLDER") or None
OCTETS_PER_EVENT = 300
"""On the disk, with everything that belongs to an event, landed and in bronze, and the scratch files.

Rows are as wide as real ones in memory (700 octets on average); copies of one market compress better.
"""


def measure() -> Measurement:
    for other in ("duckdb", "polars"):
        if find_spec(other) is None:
            raise Refusal(Rule.USAGE, f"this bench compares with {other}: pip install {other}")
    # The Java process removes its own scratch files at the same time, when it ends.
    with tempfile.TemporaryDirectory(
        prefix="gridpost-pipeline-bench-", dir=FOLDER, ignore_cleanup_errors=True
    ) as name:
        home = Path(name)
        figures: dict[str, float] = {}
        ratios: dict[str, float] = {}
        if "sizes" in PARTS:
            scaled, ratios = _scaling(
                measure_sizes(sorted({_size(home, size)[0] for size in SIZES}), home)
            )
            figures |= scaled
        if PARTS == ["sizes"]:
            return Measurement(figures, ratios)
        journals = _bulk.block()
        if "tables" in PARTS:
            events, said = _size(home, EVENTS)
            rows, tracked = _bulk.land(journals, place(home / "segments"), events)
            exported = _export(home, journals)
        started = time.perf_counter()
        spark = start(SessionSettings("local[*]", driver_memory="4g", scratch=home / "scratch"))
        figures["session_start_s"] = time.perf_counter() - started
        spark.range(1).count()
        try:
            if "tables" in PARTS:
                ingest, lake = _ingest(spark, home, rows)
                kpi, kpi_duck, kpi_polars = key_figures(spark, lake)
                figures |= {
                    "tracking_events": float(tracked),
                    "rows": float(rows),
                    "largest_size_for_this_disk": float(said),
                    "exporter_cpu_us_per_row": exported,
                    "ingest_rows_per_s": ingest,
                    "kpi_s": kpi,
                    "kpi_duckdb_s": kpi_duck,
                    "kpi_polars_s": kpi_polars,
                }
                ratios["kpi_vs_duckdb"] = kpi / kpi_duck
            if "proofs" in PARTS:
                checked, pooled = verify(spark, home, journals)
                figures |= {"proofs_per_s": checked, "proofs_process_pool_per_s": pooled}
                ratios["verify_vs_process_pool"] = checked / pooled
            if "market" in PARTS:
                parsed, parsed_python = market(spark, home)
                figures |= {
                    "market_docs_per_s": parsed,
                    "market_docs_plain_python_per_s": parsed_python,
                }
        finally:
            spark.stop()
    figures["python_peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Measurement(figures, ratios)


def _size(home: Path, events: int) -> tuple[int, int]:
    """No more than the disk holds; what that is, is part of the result."""
    largest = int(shutil.disk_usage(home).free * 0.5) // OCTETS_PER_EVENT
    if largest < events:
        print(
            f"the disk is too small for {events:,} tracking events: {largest:,} are measured",
            file=sys.stderr,
        )
    return min(events, largest), largest


def _scaling(sized: list[Sized]) -> tuple[dict[str, float], dict[str, float]]:
    """How the largest size compares with the smallest, and a chart of all of them."""
    found: dict[str, float] = {}
    for one in sized:
        found[f"ingest_rows_per_s_at_{one.tracking_events}"] = one.rows_per_s
        found[f"driver_peak_mib_at_{one.tracking_events}"] = one.driver_peak_mib
    if CHART and sized:
        Path(CHART).write_text(chart(sized), encoding="utf-8")
    if len(sized) < 2:
        return found, {}
    first, last = sized[0], sized[-1]
    return found, {
        "rows_per_s_largest_vs_smallest": last.rows_per_s / first.rows_per_s,
        "driver_memory_largest_vs_smallest": last.driver_peak_mib / first.driver_peak_mib,
    }


def _ingest(spark: Any, home: Path, rows: int) -> tuple[float, Lake]:
    """Admission and bronze, into a new lake each time; the last one is kept."""
    seconds = []
    lake: Lake | None = None
    for number in range(RUNS + 1):
        if lake is not None:
            # The stream may still be purging its checkpoint.
            shutil.rmtree(lake.root, ignore_errors=True)
        lake = Lake.open(home / f"lake{number}", create=True)
        lake.landing.rmtree()
        shutil.copytree(home / "segments", lake.landing, copy_function=os.link)
        started = time.perf_counter()
        admit.admit(lake, (lake.landing,), datetime.now(UTC))
        done = sum(batch.rows_out for batch in bronze.ingest(spark, lake))
        seconds.append(time.perf_counter() - started)
        if done != rows:
            raise Refusal(Rule.INTERNAL, f"{done} of {rows} rows came into bronze")
    assert lake is not None
    return rows / statistics.median(seconds[1:]), lake


EXPORTED = 50_000


def _export(home: Path, journals: Journals) -> float:
    """CPU microseconds of the exporter for one journal row, of a journal as an endpoint writes it."""
    who, rows = max(journals.rows.items(), key=lambda item: len(item[1]))
    folder = home / "exported"

    async def fill() -> None:
        store = SqliteStore.open(folder / "store", who.component)
        for at in range(0, EXPORTED, len(rows)):

            def write(unit: Any, at: int = at) -> None:
                for row in rows[: EXPORTED - at]:
                    unit.journal.append(row)

            await store.run(write)
        await store.close()

    asyncio.run(fill())
    landing = Landing(place(folder / "landing"))
    (done,) = Exporter(folder / "store", landing, lambda: datetime.now(UTC)).run()
    return done.cpu_seconds / done.rows * 1_000_000
