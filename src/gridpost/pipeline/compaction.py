"""Many small folders become few: the rows stay, the pointer changes, readers notice nothing.

Bronze parts go together only when every silver table holds their rows and their batches are
committed; the new part says which ones it contains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from pyspark.sql import SparkSession

from gridpost.pipeline import bronze
from gridpost.pipeline.build import DOCUMENTS, FOLLOWING, INDEPENDENT
from gridpost.pipeline.incremental import CONTENT, SILVER, keys_of, read
from gridpost.pipeline.lake import GRACE_SECONDS, Lake, Part, Progress, silent


def compact(
    spark: SparkSession,
    lake: Lake,
    *,
    grace: float = GRACE_SECONDS,
    small: int = 2,
    progress: Progress = silent,
) -> dict[str, Any]:
    """`small`: how many parts a partition needs before they are put together."""
    merged_parts = 0
    progress("compacting bronze")
    merged_parts += _bronze(spark, lake, small)
    for name in (*INDEPENDENT, *FOLLOWING):
        progress(f"compacting silver.{name}")
        merged_parts += _partitions(spark, lake, name, small)
    progress("removing what nobody reads")
    removed = sum(table.vacuum(grace) for table in lake.tables())
    return {"merged_parts": merged_parts, "removed_folders": removed}


def _bronze(spark: SparkSession, lake: Lake, small: int) -> int:
    table = lake.table(bronze.LAYER, bronze.TABLE)
    pointer = table.pointer()
    built = [
        set(lake.table(layer, name).pointer().meta.get("sources", ()))
        for layer, names in ((SILVER, (*INDEPENDENT, *FOLLOWING)), (CONTENT, DOCUMENTS))
        for name in names
    ]
    waiting = {file.name for file in lake.admitted.rglob("segment.*.parquet")}
    last = max((p.meta.get("batch", -1) for p in pointer.parts), default=-1)
    ready = [
        part
        for part in pointer.parts
        if all(set(keys_of([part])) <= known for known in built)
        and not waiting & set(part.meta.get("segments", ()))
        and part.meta.get("batch", -1) < last
    ]
    if len(ready) < small:
        return 0
    live = [part for part in ready if part.rows]
    parts = table.stage(bronze.read_bronze(spark, lake, live)) if live else []
    meta = {
        "stream": "",
        "batch": -1,
        "segments": [],
        "ranges": [asdict(r) for r in bronze.ranges_of(ready)],
        "contains": sorted(keys_of(ready)),
        "kinds": sorted({kind for part in ready for kind in part.meta.get("kinds", ())}),
    }
    together = [replace(part, made_by="compaction", meta=meta) for part in parts]
    _swap(table, ready, together or [Part("", 0, made_by="compaction", meta=meta)])
    return len(ready)


def _partitions(spark: SparkSession, lake: Lake, name: str, small: int) -> int:
    table = lake.table(SILVER, name)
    by_day: dict[str, list[Part]] = {}
    for part in table.pointer().parts:
        if part.partition is not None:
            by_day.setdefault(part.partition, []).append(part)
    crowded = [part for parts in by_day.values() if len(parts) >= small for part in parts]
    if not crowded:
        return 0
    parts = table.stage(read(spark, table, crowded), "day")
    together = [
        replace(
            part,
            made_by="compaction",
            meta={
                "contains": sorted(
                    path
                    for old in by_day[part.partition or ""]
                    for path in old.meta.get("contains") or [old.path]
                )
            },
        )
        for part in parts
    ]
    _swap(table, crowded, together)
    return len(crowded)


def _swap(table: Any, old: Sequence[Part], new: Sequence[Part]) -> None:
    pointer = table.pointer()
    gone = {part.path for part in old if part.path}
    empty = {part.made_by for part in old if not part.path}
    kept = tuple(
        part
        for part in pointer.parts
        if part.path not in gone and not (not part.path and part.made_by in empty)
    )
    table.publish(replace(pointer, parts=(*new, *kept)))
