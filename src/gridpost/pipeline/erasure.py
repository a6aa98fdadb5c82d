"""Erasure by message id: what must go everywhere, and the tombstones that keep it from coming back.

Identifiers, fingerprints and proofs stay: they are what shows that something was there. Documents,
names of applications and free texts go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyarrow import compute
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from gridpost.pipeline import admit
from gridpost.pipeline.erased_segments import (
    CONTENT,
    ERASED,
    GONE,
    LAYER,
    TABLE,
    empty_segments,
    erased_ids,
    quoted,
)
from gridpost.pipeline.files import Place
from gridpost.pipeline.lake import Lake, Part, Table
from gridpost.pipeline.schemas import BRONZE, QUARANTINE


def without_erased(spark: SparkSession, lake: Lake, bronze: DataFrame) -> DataFrame:
    """Bronze rows with what was erased taken out of them, whatever landed since."""
    ids = erased_ids(lake)
    if not ids:
        return bronze
    return emptied(bronze, ids)


def emptied(frame: DataFrame, ids: list[str]) -> DataFrame:
    """The columns that erasure empties, in rows of these messages."""
    changed = {}
    for kind, names in ERASED.items():
        emptied_row = F.col(kind)
        for name in names:
            nothing = F.lit(None).cast("binary") if name == CONTENT else F.lit("")
            emptied_row = emptied_row.withField(name, nothing)
        told = F.col(kind)["message_id"].isin(ids)
        changed[kind] = F.when(told, emptied_row).otherwise(F.col(kind))
    changed["payload"] = F.when(_named("payload", ids), F.lit(GONE)).otherwise(F.col("payload"))
    return frame.withColumns(changed)


def _named(column: str, ids: list[str]) -> Column:
    """A row of a kind that is not known here is text: it must not name one of them."""
    texts = F.array(*(F.lit(quoted(one)) for one in ids))
    found = F.exists(texts, lambda text: F.col(column).contains(text))
    return F.coalesce(F.col(column).isNotNull() & found, F.lit(False))


def erase(
    spark: SparkSession, lake: Lake, ids: list[str], at: datetime, landings: Sequence[Place] = ()
) -> dict[str, Any]:
    """Tombstones first: whatever runs after them sees them and brings nothing back.

    What landed is admitted, then segments are written anew under their names and tables under new
    folders; the old folders go at once, without the time that readers usually have.
    """
    stones = lake.table(LAYER, TABLE)
    known = set(erased_ids(lake))
    new = [i for i in ids if i not in known]
    if new:
        rows = pa.Table.from_pylist(
            [{"message_id": i, "erased_at": at} for i in new],
            schema=pa.schema([("message_id", pa.string()), ("erased_at", _STAMP)]),
        )
        stones.append(stones.stage_arrow(rows))
    wanted = erased_ids(lake)
    admit.admit(lake, (lake.landing, *landings), at)
    emptied_segments = empty_segments(lake, landings, at)
    parts = 0
    for table in list(lake.tables(begun=True)):
        if table.name in _JOURNALS:
            parts += _erase_parts(spark, table, wanted, emptied)
        elif table.name in _EMPTIED:
            parts += _erase_parts(spark, table, wanted, _columns_emptied(_EMPTIED[table.name]))
        elif table.name.startswith("content."):
            parts += _erase_parts(spark, table, wanted, _rows_removed)
        table.vacuum(0)
    return {
        "erased": len(new),
        "segments": emptied_segments.segments,
        "parts": parts,
        "removed_files": emptied_segments.removed,
    }


_STAMP = pa.timestamp("us", tz="UTC")
# Texts that people wrote, by table; ids, fingerprints, signatures and times stay.
_EMPTIED = {
    "silver.message_views": (
        "ba_message_id",
        "sender_application",
        "conversation_id",
        "sender_description",
    ),
    "silver.messages": ("ba_message_id", "failure.detail"),
    "silver.tracking_events": ("detail",),
    "silver.transfers": ("detail",),
    "silver.refusals": ("details",),
    "silver.proofs": ("ba_message_id", "sender_application", "sender_description"),
}
_JOURNALS = {"bronze.journal": BRONZE, "bronze.quarantine": QUARANTINE}
Change = Callable[[DataFrame, list[str]], DataFrame]


def _rows_removed(frame: DataFrame, ids: list[str]) -> DataFrame:
    return frame.where(~F.col("message_id").isin(ids))


def _columns_emptied(columns: tuple[str, ...]) -> Change:
    def change(frame: DataFrame, ids: list[str]) -> DataFrame:
        doomed = F.col("message_id").isin(ids)
        changed = {}
        for name in columns:
            column, _, field = name.partition(".")
            if column not in frame.columns:
                continue  # In a part of an older version.
            old = F.col(column)
            nothing = old.withField(field, F.lit("")) if field else F.lit("")
            changed[column] = F.when(doomed & old.isNotNull(), nothing).otherwise(old)
        return frame.withColumns(changed)

    return change


def _erase_parts(spark: SparkSession, table: Table, ids: list[str], change: Change) -> int:
    """Only parts that hold one of them are written anew; each keeps its place and its meaning."""
    pointer = table.pointer()
    parts: list[Part] = []
    changed = 0
    for part in pointer.parts:
        if not part.rows or not _concerned(spark, table, part, ids):
            parts.append(part)
            continue
        frame = _read(spark, table, part)
        staged = table.stage(change(frame, ids))
        rows = sum(one.rows for one in staged)
        path = staged[0].path if staged else ""
        meta = dict(part.meta)
        if table.name == "bronze.journal":
            # Its content is the same to silver: it must not be taken for a new part.
            from gridpost.pipeline.bronze import part_key

            meta["contains"] = list(part.meta.get("contains") or [part_key(part)])
        parts.append(replace(part, path=path, rows=rows, meta=meta))
        changed += 1
    if changed:
        table.publish(replace(pointer, parts=tuple(parts)))
    return changed


def _read(spark: SparkSession, table: Table, part: Part) -> DataFrame:
    reader = spark.read
    if table.name in _JOURNALS:
        # An older part lacks the kinds that came later.
        reader = reader.schema(_JOURNALS[table.name])
    return reader.parquet(*table.paths([part]))


def _concerned(spark: SparkSession, table: Table, part: Part, ids: list[str]) -> bool:
    if table.name not in _JOURNALS:
        # One column of a part is quickly read here: most parts do not concern them.
        found = table.read(["message_id"], compute.field("message_id").isin(ids), [part])
        return found is not None and found.num_rows > 0
    condition = _named("payload", ids)
    for kind in ERASED:
        condition = condition | F.coalesce(F.col(kind)["message_id"].isin(ids), F.lit(False))
    return bool(_read(spark, table, part).where(condition).limit(1).collect())
