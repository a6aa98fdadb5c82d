"""The columns of a segment: what is common to all rows, and one nullable struct for each kind.

A row that this version does not know keeps its payload as text: it is passed on, never guessed.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pyarrow as pa
from pyarrow import json as arrow_json

from gridpost.core.journal import KINDS, Identity, JournalRow
from gridpost.stores.journal_rows import Stored
from gridpost.stores.values import read_json

TIME = pa.timestamp("us", tz="UTC")
COMMON = (
    pa.field("component", pa.string(), nullable=False),
    pa.field("instance", pa.string(), nullable=False),
    pa.field("sequence", pa.int64(), nullable=False),
    pa.field("time", TIME, nullable=False),
    pa.field("kind", pa.string(), nullable=False),
    pa.field("schema_version", pa.int32(), nullable=False),
)
PAYLOAD = pa.field("payload", pa.string())


def _arrow_type(annotation: Any) -> pa.DataType:
    if get_origin(annotation) is UnionType:
        (annotation,) = (a for a in get_args(annotation) if a is not NoneType)
    if annotation is datetime:
        return TIME
    if annotation is bytes:
        return pa.binary()
    if annotation is bool:
        return pa.bool_()
    if annotation is int:
        return pa.int64()
    return pa.string()  # texts and enumerations


def _struct(kind: type[JournalRow]) -> pa.StructType:
    hints = get_type_hints(kind)
    return pa.struct(
        [
            pa.field(field.name, _arrow_type(hints[field.name]))
            for field in fields(kind)
            if field.name != "at"
        ]
    )


STRUCTS: dict[str, pa.StructType] = {name: _struct(kind) for name, kind in KINDS.items()}
SCHEMA = pa.schema(
    [*COMMON, *(pa.field(name, struct) for name, struct in STRUCTS.items()), PAYLOAD]
)


def to_table(identity: Identity, rows: Sequence[tuple[int, Stored]]) -> pa.Table:
    """Journal rows, as they are stored, in the columns of a segment."""
    count = len(rows)
    places: dict[str, list[int]] = {name: [] for name in STRUCTS}
    unknown: list[str | None] = [None] * count
    for at, (_, stored) in enumerate(rows):
        kind = KINDS.get(stored.kind)
        if kind is None or stored.schema_version > kind.SCHEMA_VERSION:
            unknown[at] = stored.payload
        else:
            places[stored.kind].append(at)
    arrays = [
        pa.array([identity.component] * count, pa.string()),
        pa.array([identity.instance] * count, pa.string()),
        pa.array([sequence for sequence, _ in rows], pa.int64()),
        pa.array([stored.at for _, stored in rows], TIME),
        pa.array([stored.kind for _, stored in rows], pa.string()),
        pa.array([stored.schema_version for _, stored in rows], pa.int32()),
    ]
    for name, struct in STRUCTS.items():
        found = places[name]
        arrays.append(
            _spread(_parse([rows[at][1].payload for at in found], struct), found, count)
            if found
            else pa.nulls(count, struct)
        )
    arrays.append(pa.array(unknown, pa.string()))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _parse(payloads: list[str], struct: pa.StructType) -> pa.StructArray:
    """Payloads are JSON objects of one line each; pyarrow parses them without building objects."""
    text = pa.schema([pa.field(f.name, _json_type(f.type)) for f in struct])
    data = "\n".join(payloads).encode()
    try:
        table = arrow_json.read_json(
            io.BytesIO(data),
            read_options=arrow_json.ReadOptions(
                use_threads=False, block_size=max(len(data), 1) + 1
            ),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=text, unexpected_field_behavior="ignore"
            ),
        ).combine_chunks()
    except pa.ArrowInvalid:
        # JSON can say what Unicode cannot: a lone surrogate, from a peer that sent broken text.
        table = pa.Table.from_pylist([_sound(payload, struct) for payload in payloads], schema=text)
    columns = []
    for field in struct:
        column = table.column(field.name)
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if field.type == pa.binary():
            column = pa.array(
                [None if v is None else base64.b64decode(v) for v in column.to_pylist()],
                pa.binary(),
            )
        elif field.type == TIME:
            column = column.cast(TIME)
        columns.append(column)
    return pa.StructArray.from_arrays(columns, fields=list(struct))


def _sound(payload: str, struct: pa.StructType) -> dict[str, Any]:
    values: dict[str, Any] = read_json(payload)
    return {
        field.name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for field in struct
        if (value := values.get(field.name)) is not None
    }


def _json_type(type_: pa.DataType) -> pa.DataType:
    if type_ == pa.binary():
        return pa.string()
    return pa.int64() if type_ == TIME else type_


def _spread(values: pa.StructArray, places: list[int], count: int) -> pa.StructArray:
    if len(places) == count:
        return values
    indices: list[int | None] = [None] * count
    for number, at in enumerate(places):
        indices[at] = number
    return values.take(pa.array(indices, pa.int64()))
