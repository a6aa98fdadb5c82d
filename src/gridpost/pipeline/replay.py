"""Rows that were set aside are judged again: after an update, what was unknown may be known.

A row of a newer version landed as text; here it gets the columns that this version has for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from gridpost.core.journal import KINDS
from gridpost.pipeline import bronze
from gridpost.pipeline.lake import Lake
from gridpost.pipeline.landed import judging
from gridpost.pipeline.pseudonyms import hidden_later
from gridpost.pipeline.schemas import BRONZE, QUARANTINE, STRUCTS

_MARK = "replay/"


def replay(spark: SparkSession, lake: Lake) -> dict[str, Any]:
    """Good rows go to bronze, the others stay where they are."""
    aside = lake.table(bronze.LAYER, bronze.ASIDE)
    table = lake.table(bronze.LAYER, bronze.TABLE)
    waiting = [part for part in aside.pointer().parts if part.rows]
    if not waiting:
        return {"replayed": 0, "quarantined": 0}
    rows = spark.read.schema(QUARANTINE).parquet(*aside.paths(waiting)).drop("reason")
    # A replay that died after its first step has brought rows into bronze already.
    done = [part for part in table.pointer().parts if part.made_by.startswith(_MARK)]
    if done:
        one = ["component", "instance", "sequence"]
        rows = rows.join(bronze.read_bronze(spark, lake, done).select(one), on=one, how="left_anti")
    key = lake.secret("pseudonyms")
    read = rows.withColumns({kind: _read(kind, key) for kind in KINDS})
    told = read.select(*BRONZE.fieldNames()).mapInArrow(judging(), QUARANTINE)
    # Its columns say what the text said, but for names of people.
    found = told.where(F.col("reason").isNull()).withColumn("payload", F.lit(None).cast("string"))
    good = table.stage(found.drop("reason"))
    bad = aside.stage(told.where(F.col("reason").isNotNull()))
    mark = f"{_MARK}{uuid4().hex}"
    if good:
        meta = {"stream": "", "batch": -1, "segments": [], "ranges": []}
        table.append([replace(part, made_by=mark, meta=meta) for part in good])
    aside.overwrite([replace(part, made_by=mark) for part in bad])
    for part in waiting:
        (aside.folder / part.path).vanish()
    return {
        "replayed": sum(part.rows for part in good),
        "quarantined": sum(part.rows for part in bad),
    }


def _read(kind: str, key: bytes) -> Column:
    """The columns of a kind from the text of a row that landed without them."""
    struct = STRUCTS[kind]
    plain = T.StructType([T.StructField(f.name, _plain(f.dataType)) for f in struct.fields])
    raw = F.from_json("payload", plain)
    fields = [
        hidden_later(kind, f.name, _value(raw[f.name], f.dataType), key).alias(f.name)
        for f in struct.fields
    ]
    unread = (F.col("kind") == kind) & F.col(kind).isNull() & F.col("payload").isNotNull()
    return F.when(unread, F.struct(*fields)).otherwise(F.col(kind))


def _plain(type_: T.DataType) -> T.DataType:
    if isinstance(type_, T.BinaryType):
        return T.StringType()
    return T.LongType() if isinstance(type_, T.TimestampType) else type_


def _value(value: Column, type_: T.DataType) -> Column:
    if isinstance(type_, T.BinaryType):
        return F.unbase64(value)
    return F.timestamp_micros(value) if isinstance(type_, T.TimestampType) else value
