"""The columns that Spark expects of a segment, from the same kinds that components write.

An older segment lacks columns and a newer one has more: both are read, by name.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pyarrow as pa
from pyspark.sql import types as T

from gridpost.core.journal import KINDS, JournalRow


def _type(annotation: Any) -> T.DataType:
    if get_origin(annotation) is UnionType:
        (annotation,) = (a for a in get_args(annotation) if a is not NoneType)
    if annotation is datetime:
        return T.TimestampType()
    if annotation is bytes:
        return T.BinaryType()
    if annotation is bool:
        return T.BooleanType()
    if annotation is int:
        return T.LongType()
    return T.StringType()


def arrow_schema(columns: T.StructType) -> pa.Schema:
    """The same columns for files that are written without Spark."""
    return pa.schema([pa.field(field.name, _arrow_type(field.dataType)) for field in columns])


def _arrow_type(type_: T.DataType) -> pa.DataType:
    if isinstance(type_, T.StructType):
        return pa.struct([pa.field(field.name, _arrow_type(field.dataType)) for field in type_])
    return _ARROW[type(type_)]


_ARROW: dict[type[T.DataType], pa.DataType] = {
    T.TimestampType: pa.timestamp("us", tz="UTC"),
    T.BinaryType: pa.binary(),
    T.BooleanType: pa.bool_(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.StringType: pa.string(),
}


def struct_of(kind: type[JournalRow]) -> T.StructType:
    hints = get_type_hints(kind)
    return T.StructType(
        [
            T.StructField(field.name, _type(hints[field.name]))
            for field in fields(kind)
            if field.name != "at"
        ]
    )


COMMON = T.StructType(
    [
        T.StructField("component", T.StringType()),
        T.StructField("instance", T.StringType()),
        T.StructField("sequence", T.LongType()),
        T.StructField("time", T.TimestampType()),
        T.StructField("kind", T.StringType()),
        T.StructField("schema_version", T.IntegerType()),
    ]
)
STRUCTS: dict[str, T.StructType] = {name: struct_of(kind) for name, kind in KINDS.items()}
SEGMENT = T.StructType(
    [
        *COMMON.fields,
        *(T.StructField(name, struct) for name, struct in STRUCTS.items()),
        T.StructField("payload", T.StringType()),
    ]
)
LINEAGE = [
    T.StructField("segment", T.StringType()),
    T.StructField("stream", T.StringType()),
    T.StructField("batch", T.LongType()),
]
BRONZE = T.StructType([*SEGMENT.fields, *LINEAGE])
QUARANTINE = T.StructType([*BRONZE.fields, T.StructField("reason", T.StringType())])
