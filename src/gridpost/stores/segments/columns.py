"""The columns of a segment: what is common to all rows, and one nullable struct for each kind.

A row that this version does not know keeps its payload as text: it is passed on, never guessed.
"""

from __future__ import annotations

from array import array
from binascii import a2b_base64
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from itertools import accumulate
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pyarrow as pa
from pyarrow import compute
from pyarrow import json as arrow_json

from gridpost.core.journal import KINDS, Identity, JournalRow
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


Numbered = tuple[int, int, str, int, str]
"""A journal row as it is stored: its number, and the columns of `Stored`."""


def to_table(identity: Identity, rows: Sequence[Numbered]) -> pa.Table:
    """Journal rows in the columns of a segment.

    Arrays are made of buffers: `pa.array` loads pandas, where it is, to see whether a list is one of its own.
    """
    count = len(rows)
    if not count:
        return SCHEMA.empty_table()
    sequences, times, kinds, versions, payloads = zip(*rows, strict=True)
    places: dict[str, list[int]] = {name: [] for name in kinds}
    for at, kind in enumerate(kinds):
        places[kind].append(at)
    strange = _unknown(kinds, versions, places)
    arrays = [
        _repeated(identity.component, count),
        _repeated(identity.instance, count),
        _numbers("q", pa.int64(), sequences),
        _numbers("q", pa.int64(), times).cast(TIME),
        _kinds(places, kinds),
        _numbers("i", pa.int32(), versions),
    ]
    for name, struct in STRUCTS.items():
        found = places.get(name)
        arrays.append(
            _spread(_parse([payloads[at] for at in found], struct), found, count)
            if found
            else pa.nulls(count, struct)
        )
    arrays.append(
        _spread(_octets([payloads[at].encode() for at in strange], PAYLOAD.type), strange, count)
    )
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _unknown(
    kinds: Sequence[str], versions: Sequence[int], places: dict[str, list[int]]
) -> list[int]:
    """Rows that keep their payload, taken out of the places of their kinds."""
    newer = {
        (kind, version)
        for kind, version in set(zip(kinds, versions, strict=True))
        if kind not in KINDS or version > KINDS[kind].SCHEMA_VERSION
    }
    if not newer:
        return []
    for kind in {kind for kind, _ in newer}:
        places[kind] = [at for at in places[kind] if (kind, versions[at]) not in newer]
    return [at for at, told in enumerate(zip(kinds, versions, strict=True)) if told in newer]


# ------------------------------------------------------------ arrays of Python's values


def _numbers(code: str, type_: pa.DataType, values: Iterable[int]) -> pa.Array:
    held = array(code, values)
    return pa.Array.from_buffers(type_, len(held), [None, pa.py_buffer(held)])


def _octets(values: Sequence[bytes], type_: pa.DataType) -> pa.Array:
    ends = array("i", accumulate(map(len, values), initial=0))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(type_, len(values), buffers)


def _kinds(found: Iterable[str], kinds: Sequence[str]) -> pa.Array:
    number = {name: at for at, name in enumerate(found)}
    names = _octets([name.encode() for name in number], pa.string())
    return names.take(_numbers("i", pa.int32(), map(number.__getitem__, kinds)))


def _repeated(text: str, count: int) -> pa.Array:
    places = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(bytes(4 * count))])
    return _octets([text.encode()], pa.string()).take(places)


def _spread(values: pa.Array, places: Sequence[int], count: int) -> pa.Array:
    """Null in all other places."""
    if len(places) == count:
        return values
    if not places:
        return pa.nulls(count, values.type)
    there, numbers = bytearray(count), array("i", bytes(4 * count))
    for number, at in enumerate(places):
        there[at], numbers[at] = 1, number
    mask = pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(there)]).cast(pa.bool_())
    taken = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(numbers)])
    return values.take(compute.if_else(mask, taken, pa.nulls(count, pa.int32())))


# ------------------------------------------------------------ payloads


def _parse(payloads: list[str], struct: pa.StructType) -> pa.StructArray:
    """Payloads are JSON objects of one line each; pyarrow parses them without building objects."""
    text = pa.schema([pa.field(f.name, _json_type(f.type)) for f in struct])
    data = "\n".join(payloads).encode()
    try:
        table = arrow_json.read_json(
            pa.BufferReader(data),
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
            column = _decoded(column)
        elif field.type == TIME:
            column = column.cast(TIME)
        columns.append(column)
    return pa.StructArray.from_arrays(columns, fields=list(struct))


def _decoded(column: pa.Array) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.binary())
    texts = column.to_pylist()
    places = [at for at, text in enumerate(texts) if text is not None]
    found = _octets([a2b_base64(texts[at]) for at in places], pa.binary())
    return _spread(found, places, len(texts))


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
