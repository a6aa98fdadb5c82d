"""Which market documents hold, now or as known at a time, and their points: read with pyarrow alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute, csv, parquet

from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline.files import place
from gridpost.pipeline.lake import Lake

CONTENT = "content"
WRITERS = {".parquet": parquet.write_table, ".csv": csv.write_csv}
_SHOWN = (
    *("document_mrid", "revision", "document", "type", "sender", "receiver"),
    *("period_start", "period_end", "points", "known_at", "message_id"),
)


def holding_documents(lake: Lake, known_at: datetime | None = None) -> list[dict[str, Any]]:
    """`silver.market_views.holding`, without Spark: the newest revision of each, unless it ends it."""
    where = None if known_at is None else compute.field("known_at") <= pa.scalar(known_at)
    rows = lake.table(CONTENT, "market_documents").read([*_SHOWN, "ended"], where)
    newest: dict[str | None, dict[str, Any]] = {}
    for row in [] if rows is None else rows.to_pylist():
        known = newest.get(row["document_mrid"])
        if known is None or _order(row) > _order(known):
            newest[row["document_mrid"]] = row
    held = [row for row in newest.values() if not row.pop("ended")]
    return sorted(held, key=lambda row: (str(row["document_mrid"]), row["message_id"]))


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["revision"], row["known_at"], row["message_id"])


def points_of(lake: Lake, documents: Iterable[Mapping[str, Any]]) -> pa.Table | None:
    """In the order of their delivery; None: there are no points yet."""
    ids = [row["message_id"] for row in documents]
    table = lake.table(CONTENT, "market_points")
    found = table.read(where=compute.field("message_id").isin(pa.array(ids, pa.string())))
    if found is None:
        return None
    order = [(name, "ascending") for name in ("start", "document_mrid", "series_mrid")]
    return found.drop_columns(["build"]).sort_by(order)


def write_points(rows: pa.Table | None, file: Path) -> int:
    writer = WRITERS.get(file.suffix)
    if writer is None:
        raise Refusal(Rule.USAGE, f"{file}: end the name with {' or '.join(WRITERS)}")
    if rows is None:
        raise Refusal(Rule.USAGE, "the lake holds no points of market documents")
    sink = pa.BufferOutputStream()
    writer(rows, sink)
    place(file).write(sink.getvalue().to_pybytes())
    return int(rows.num_rows)
