"""Many small folders become few: the rows stay, the pointer changes, readers notice nothing.

Bronze parts go together only when every silver table holds their rows and their batches are
committed. The new part has one key in place of theirs, which silver learns before and forgets after:
what tables remember of each other does not grow with the number of batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from gridpost.pipeline import bronze
from gridpost.pipeline.build import DOCUMENTS, FOLLOWING, INDEPENDENT
from gridpost.pipeline.incremental import CONTENT, SILVER, keys_of, read
from gridpost.pipeline.lake import GRACE_SECONDS, Lake, Part, Progress, Table, silent


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
    merged_parts += _bronze(spark, lake, small) + _quality(lake, small)
    for name in (*INDEPENDENT, *FOLLOWING):
        progress(f"compacting silver.{name}")
        merged_parts += _partitions(spark, lake, name, small)
    progress("removing what nobody reads")
    removed = sum(table.vacuum(grace) for table in lake.tables())
    return {"merged_parts": merged_parts, "removed_folders": removed}


def _bronze(spark: SparkSession, lake: Lake, small: int) -> int:
    table = lake.table(bronze.LAYER, bronze.TABLE)
    pointer = table.pointer()
    built = [_sources(one) for one in _readers(lake)]
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
    key = uuid4().hex
    for reader in _readers(lake):
        _remember(reader, {*_sources(reader), key})
    meta = {
        "stream": "",
        "batch": -1,
        "segments": [],
        "ranges": [asdict(r) for r in bronze.ranges_of(ready)],
        "contains": [key],
        "kinds": sorted({kind for part in ready for kind in part.meta.get("kinds", ())}),
    }
    together = [replace(part, made_by="compaction", meta=meta) for part in parts]
    _swap(table, ready, together or [Part("", 0, made_by="compaction", meta=meta)])
    there = set(keys_of(table.pointer().parts))
    for reader in _readers(lake):
        _remember(reader, _sources(reader) & there)
    return len(ready)


def _readers(lake: Lake) -> list[Table]:
    """Tables that are made of bronze, and remember of which parts."""
    names = [(SILVER, name) for name in (*INDEPENDENT, *FOLLOWING)]
    return [lake.table(*one) for one in (*names, *((CONTENT, name) for name in DOCUMENTS))]


def _sources(table: Table) -> set[str]:
    return set(table.pointer().meta.get("sources", ()))


def _remember(table: Table, keys: set[str]) -> None:
    pointer = table.pointer()
    if keys != _sources(table):
        table.publish(replace(pointer, meta={**pointer.meta, "sources": sorted(keys)}))


def _quality(lake: Lake, small: int) -> int:
    """Each batch adds a few rows to it."""
    table = lake.table(bronze.LAYER, bronze.QUALITY)
    parts = table.pointer().parts
    rows = table.read() if len(parts) >= small else None
    if rows is None:
        return 0
    table.overwrite(table.stage_arrow(rows))
    return len(parts)


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
