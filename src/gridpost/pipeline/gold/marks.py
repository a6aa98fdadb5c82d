"""Up to where each journal is in the lake, and which numbers are missing: small tables without Spark."""

from __future__ import annotations

from dataclasses import asdict

import pyarrow as pa

from gridpost.pipeline.completeness import COLUMN
from gridpost.pipeline.lake import Lake
from gridpost.pipeline.ranges import Range, gaps, marks

MARKS, GAPS = "marks", "gaps"
_TIME = pa.timestamp("us", tz="UTC")
_MARKS = pa.schema(
    [
        ("component", pa.string()),
        ("sequence", pa.int64()),
        ("time", _TIME),
        ("instances", pa.int64()),
        ("missing", pa.int64()),
        ("since", _TIME),
        (COLUMN, _TIME),
        ("build", pa.string()),
    ]
)
_GAPS = pa.schema(
    [
        ("component", pa.string()),
        ("instance", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        (COLUMN, _TIME),
        ("build", pa.string()),
    ]
)


def write_marks(lake: Lake, ranges: list[Range], build: str) -> None:
    found = marks(ranges)
    known = [
        {**asdict(mark), "since": mark.since or None, COLUMN: mark.time, "build": build}
        for mark in found.values()
    ]
    holes = [
        {
            "component": gap.component,
            "instance": gap.instance,
            "first": gap.first,
            "last": gap.last,
            COLUMN: found[gap.component].time,
            "build": build,
        }
        for gap in gaps(ranges)
    ]
    for name, rows, schema in ((MARKS, known, _MARKS), (GAPS, holes, _GAPS)):
        table = lake.table("gold", name)
        table.overwrite(table.stage_arrow(pa.Table.from_pylist(rows, schema)) if rows else [])
