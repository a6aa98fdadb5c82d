"""A segment cut by kind: rows of one kind, in the columns that rows of this kind have.

A journal row has 150 columns of which most are null, and a null is not free: it is read, carried and
written like any other value. Rows that do not go by the book keep all columns and stay together.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
from pyarrow import compute, parquet

from gridpost.pipeline.files import Place
from gridpost.pipeline.schemas import LINEAGE, QUARANTINE, STRUCTS, arrow_schema

COLUMNS = arrow_schema(QUARANTINE)
MIXED = ""
"""In place of a kind: rows of kinds that this version does not know, or with columns of others."""
_ADDED = {*(field.name for field in LINEAGE), "reason"}
LANDING = tuple(name for name in COLUMNS.names if name not in _ADDED)
# Texts that few values take turns in: they stay numbers into a list from one file to the next.
_FEW = frozenset(
    (
        *("component", "instance", "kind", "segment", "stream"),
        *("side", "event", "state", "detail", "outcome", "peer", "direction", "message_kind"),
        *("internal_type", "sender_code", "receiver_code", "message_type", "route", "extension"),
        *("sender_application", "sender_description", "signature_algorithm"),
        *("signing_certificate_id", "encryption_certificate_id"),
    )
)


@dataclass(frozen=True, slots=True)
class Piece:
    kind: str
    rows: pa.Table


@cache
def columns_of(kind: str) -> pa.Schema:
    """All that a row of bronze and its judgement have, but for what belongs to other kinds."""
    if kind == MIXED:
        return COLUMNS
    mine = (field for field in COLUMNS if field.name == kind or field.name not in STRUCTS)
    return pa.schema([_listed(field) for field in mine])


def _listed(field: pa.Field) -> pa.Field:
    if pa.types.is_struct(field.type):
        return field.with_type(pa.struct([_listed(child) for child in field.type]))
    few = field.name in _FEW and field.type == pa.string()
    return field.with_type(pa.dictionary(pa.int32(), pa.string())) if few else field


def read(segment: Place) -> Iterator[Piece]:
    """Columns are found by their names: an older segment lacks some, a newer one has more."""
    with segment.system.open_input_file(segment.path) as source:
        footer = parquet.read_metadata(source)
        file = parquet.ParquetFile(source, metadata=footer, read_dictionary=_texts(footer))
        for number in range(file.num_row_groups):
            kinds = set(
                compute.unique(
                    file.read_row_group(number, ["kind"], use_threads=False)["kind"]
                ).to_pylist()
            )
            silent = _silent(file.metadata.row_group(number), kinds)
            wanted = [n for n in file.schema_arrow.names if n in LANDING and n not in silent]
            rows = file.read_row_group(number, wanted, use_threads=False)
            yield from _cut(rows, kinds)


def _texts(footer: Any) -> list[str]:
    paths = (footer.schema.column(number) for number in range(footer.num_columns))
    return [
        column.path
        for column in paths
        if column.name in _FEW and column.physical_type == "BYTE_ARRAY"
    ]


def _silent(group: Any, kinds: Set[str]) -> set[str]:
    """Columns that say nothing: they need not be read to be written."""
    speaking = set()
    for number in range(group.num_columns):
        column = group.column(number)
        counted = column.statistics
        if (
            counted is None
            or not counted.has_null_count
            or counted.null_count < column.num_values
            # A struct of nulls is not the same as none, in the rows that it belongs to.
            or column.path_in_schema.partition(".")[0] in kinds
        ):
            speaking.add(column.path_in_schema.partition(".")[0])
    return set(COLUMNS.names) - speaking


def _cut(rows: pa.Table, kinds: Set[str]) -> list[Piece]:
    found = []
    structs = STRUCTS.keys() & set(rows.column_names)
    told = dict.fromkeys(structs, 0)
    known = sorted(STRUCTS.keys() & kinds)
    for kind in known:
        mine = rows.select([n for n in rows.column_names if n == kind or n not in STRUCTS])
        if len(kinds) > 1:
            mine = mine.filter(compute.equal(rows["kind"], kind))
        if kind in structs:
            told[kind] = mine.num_rows - mine[kind].null_count
        found.append(Piece(kind, conformed(mine, columns_of(kind))))
    if any(rows.num_rows - rows[name].null_count != told[name] for name in structs):
        # Columns of one kind in a row of another: nothing that landed is lost.
        return [Piece(MIXED, conformed(rows, COLUMNS))]
    if kinds - STRUCTS.keys():
        strange = compute.invert(compute.is_in(rows["kind"], pa.array(known, pa.string())))
        found.append(Piece(MIXED, conformed(rows.filter(strange), COLUMNS)))
    return found


def conformed(rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """With the types of `wanted` and its columns; what is added to landed rows may be missing."""
    columns = {}
    for field in wanted:
        if field.name in rows.column_names:
            chunks = [_as(chunk, field.type) for chunk in rows[field.name].chunks]
            columns[field.name] = pa.chunked_array(chunks, field.type)
        elif field.name not in _ADDED:
            columns[field.name] = pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    return pa.table(columns)


def _as(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    if values.type == wanted:
        return values
    if not pa.types.is_struct(wanted):
        return values.cast(wanted)
    children = []
    for field in wanted:
        at = values.type.get_field_index(field.name)
        child = pa.nulls(len(values), field.type) if at < 0 else _as(values.field(at), field.type)
        children.append(child)
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=values.is_null())
