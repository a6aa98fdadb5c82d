"""Which market documents and series hold, now or as known at a time: read with pyarrow alone."""

from __future__ import annotations

from collections import defaultdict
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
_SERIES = (
    *("document_mrid", "revision", "document", "sender", "period_start", "period_end"),
    *("known_at", "message_id", "series_mrid"),
)


def holding_documents(lake: Lake, known_at: datetime | None = None) -> list[dict[str, Any]]:
    """`silver.market_views.holding`, without Spark: the newest revision of each, unless it ends it.

    `ended_series` are the mRIDs of series of it that were cancelled or withdrawn.
    """
    newest: dict[str | None, dict[str, Any]] = {}
    for row in _seen(lake, "market_documents", [*_SHOWN, "ended"], known_at):
        known = newest.get(row["document_mrid"])
        if known is None or _order(row) > _order(known):
            newest[row["document_mrid"]] = row
    held = [row for row in newest.values() if not row.pop("ended")]
    ended = _ended_series(lake, known_at)
    for row in held:
        row["ended_series"] = sorted(ended.get(row["message_id"], ()))
    return sorted(held, key=lambda row: (str(row["document_mrid"]), row["message_id"]))


def _seen(
    lake: Lake, table: str, columns: list[str], known_at: datetime | None
) -> list[dict[str, Any]]:
    where = None if known_at is None else compute.field("known_at") <= pa.scalar(known_at)
    rows = lake.table(CONTENT, table).read(columns, where)
    return [] if rows is None else list(rows.to_pylist())


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["revision"], row["known_at"], row["message_id"])


def _ended_series(lake: Lake, known_at: datetime | None) -> dict[str, set[str]]:
    """`silver.market_views.ended_series`, by the id of the message."""
    rows = _seen(lake, "market_series", [*_SERIES, "ended"], known_at)
    ending: dict[tuple[str | None, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["ended"]:
            ending[_identity(row)].append(row)
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row["series_mrid"] is not None and any(
            _ends(end, row) for end in ending.get(_identity(row), ())
        ):
            found[row["message_id"]].add(row["series_mrid"])
    return found


def _identity(row: Mapping[str, Any]) -> tuple[str | None, ...]:
    return row["sender"], row["document"], row["series_mrid"]


def _ends(ending: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    if ending["document_mrid"] == row["document_mrid"]:
        return _order(ending) >= _order(row)
    return _order(ending)[1:] > _order(row)[1:] and all(
        start is None or end is None or start < end
        for start, end in (
            (row["period_start"], ending["period_end"]),
            (ending["period_start"], row["period_end"]),
        )
    )


def points_of(lake: Lake, documents: Iterable[Mapping[str, Any]]) -> pa.Table | None:
    """Points of documents that hold, in the order of their delivery; None: there are no points yet."""
    held = list(documents)
    ids = [row["message_id"] for row in held]
    table = lake.table(CONTENT, "market_points")
    found = table.read(where=compute.field("message_id").isin(pa.array(ids, pa.string())))
    if found is None:
        return None
    for row in held:
        if row["ended_series"]:
            ended = compute.is_in(found["series_mrid"], pa.array(row["ended_series"]))
            own = compute.equal(found["message_id"], row["message_id"])
            found = found.filter(compute.invert(compute.and_(own, ended)))
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
