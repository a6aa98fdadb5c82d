"""Erasure by message id: what must go everywhere, and the tombstones that keep it from coming back.

Identifiers, fingerprints and proofs stay: they are what shows that something was there. Documents,
names of applications and free texts go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import reduce
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from gridpost.core.journal import (
    EnvelopeRow,
    MessageRow,
    RefusalRow,
    TrackingRow,
    TransferRow,
)
from gridpost.core.segment import Manifest
from gridpost.pipeline.files import Place, arguments
from gridpost.pipeline.lake import Lake, Part, Table

LAYER, TABLE = "silver", "tombstones"
CONTENT = "content"
# What goes, by kind of journal row.
ERASED = {
    MessageRow.KIND: (CONTENT, "ba_message_id", "sender_application", "conversation_id"),
    TrackingRow.KIND: ("detail",),
    TransferRow.KIND: ("detail",),
    RefusalRow.KIND: ("details",),
    EnvelopeRow.KIND: (CONTENT,),
}
GONE = '{"erased":true}'
"""In place of a row that was kept as text."""


def erased_ids(lake: Lake) -> list[str]:
    rows = lake.table(LAYER, TABLE).read(["message_id"])
    return [] if rows is None else sorted(set(rows["message_id"].to_pylist()))


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
    return reduce(lambda found, i: found | F.col(column).contains(i), ids, F.lit(False))


def erase(spark: SparkSession, lake: Lake, ids: list[str], at: datetime) -> dict[str, Any]:
    """Tombstones first: a build that runs into this sees them and brings nothing back.

    Landed, admitted, archived and quarantined segments are written anew under their names, tables
    under new folders; the old folders go at once, without the time that readers usually have.
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
    segments = sum(
        _erase_segment(file, set(wanted))
        for folder in (lake.landing, lake.admitted, lake.archive, lake.quarantine)
        for file in folder.rglob("segment.*.parquet")
    )
    tables = 0
    for table in list(lake.tables()):
        if table.name in ("bronze.journal", "bronze.quarantine"):
            tables += _erase_parts(spark, table, wanted, _bronze_emptied)
        elif table.name in _EMPTIED:
            tables += _erase_parts(spark, table, wanted, _columns_emptied(_EMPTIED[table.name]))
        elif table.name.startswith("content."):
            tables += _erase_parts(spark, table, wanted, _rows_removed)
        table.vacuum(0)
    return {"erased": len(new), "segments": segments, "parts": tables}


_STAMP = pa.timestamp("us", tz="UTC")
# Texts that people wrote, by table; ids, fingerprints, signatures and times stay.
_EMPTIED = {
    "silver.message_views": ("ba_message_id", "sender_application", "conversation_id"),
    "silver.messages": ("ba_message_id",),
    "silver.tracking_events": ("detail",),
    "silver.transfers": ("detail",),
    "silver.refusals": ("details",),
    "silver.proofs": ("ba_message_id", "sender_application"),
}
Change = Callable[[DataFrame, list[str]], DataFrame]


def _bronze_emptied(frame: DataFrame, ids: list[str]) -> DataFrame:
    return emptied(frame, ids)


def _rows_removed(frame: DataFrame, ids: list[str]) -> DataFrame:
    return frame.where(~F.col("message_id").isin(ids))


def _columns_emptied(columns: tuple[str, ...]) -> Change:
    def change(frame: DataFrame, ids: list[str]) -> DataFrame:
        doomed = F.col("message_id").isin(ids)
        return frame.withColumns(
            {c: F.when(doomed, F.lit("")).otherwise(F.col(c)) for c in columns}
        )

    return change


def _erase_parts(spark: SparkSession, table: Table, ids: list[str], change: Change) -> int:
    """Only parts that hold one of them are written anew; each keeps its place and its meaning."""
    pointer = table.pointer()
    parts: list[Part] = []
    changed = 0
    for part in pointer.parts:
        frame = spark.read.parquet(*table.paths([part])) if part.rows else None
        if frame is None or not _concerned(frame, ids):
            parts.append(part)
            continue
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


def _concerned(frame: DataFrame, ids: list[str]) -> bool:
    if "message_id" in frame.columns:
        condition = F.col("message_id").isin(ids)
    else:
        condition = _named("payload", ids)
        for kind in ERASED:
            condition = condition | F.coalesce(F.col(kind)["message_id"].isin(ids), F.lit(False))
    return bool(frame.where(condition).limit(1).collect())


def _erase_segment(file: Place, ids: set[str]) -> int:
    """The same rows and numbers, emptied; the manifest is that of the new file."""
    table = parquet.read_table(file.path, **arguments(file))
    rows = table.to_pylist()
    touched = False
    for row in rows:
        for kind, names in ERASED.items():
            told = row.get(kind)
            if told is not None and told["message_id"] in ids:
                touched = True
                told.update({name: None if name == CONTENT else "" for name in names})
        if any(one in (row.get("payload") or "") for one in ids):
            touched = True
            row["payload"] = GONE
    if not touched:
        return 0
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(rows, schema=table.schema), sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    file.write(data)
    manifest_file = file.with_suffix(".json")
    if manifest_file.is_file():
        manifest = Manifest.decode(manifest_file.read_bytes())
        digest = hashlib.sha256(data).hexdigest()
        renewed = replace(manifest, octets=len(data), sha256=digest)
        manifest_file.write(renewed.encode())
    return 1
