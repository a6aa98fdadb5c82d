"""Large journals for the bench: a small market with real signatures, copied with other ids and times.

Every copy has message ids, numbers and times of its own; what makes rows wide stays as it is.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyarrow import compute

from gridpost.bench._journals import Journals, generate
from gridpost.core.journal import Identity
from gridpost.core.segment import SegmentName
from gridpost.pipeline.files import Place
from gridpost.stores import journal_rows
from gridpost.stores.segments.columns import SCHEMA, to_table
from gridpost.stores.segments.landing import Landing

BLOCK = 1000
SEGMENT_ROWS = 64 * 1024
"""About what an exporter writes of a busy journal; no segment is smaller unless it is the last."""
_IDS = {
    "message": ("message_id",),
    "tracking": ("message_id",),
    "acknowledgement": ("message_id", "related_message_id"),
    "transfer": ("message_id",),
    "refusal": ("message_id",),
}


def block(seed: int = 1) -> Journals:
    return generate(seed, BLOCK, days=6)


def land(journals: Journals, landing: Place, tracking_events: int) -> tuple[int, int]:
    """Segments with at least this many tracking events; how many rows and events there are."""
    tables = {
        who: to_table(
            who, [(number, *journal_rows.write(row)) for number, row in enumerate(rows, 1)]
        )
        for who, rows in journals.rows.items()
    }
    events = sum(
        compute.sum(compute.equal(table["kind"], "tracking")).as_py() for table in tables.values()
    )
    folder = Landing(landing, compression="zstd")
    copies = -(-tracking_events // events)

    def put(who: Identity, at: int) -> int:
        table = tables[who]
        numbers = range(at, min(at + _together(table), copies))
        content = pa.concat_tables([_copy(table, number) for number in numbers])
        first = at * table.num_rows + 1
        name = SegmentName(who.component, who.instance, first, first + content.num_rows - 1)
        folder.put(name, content, 0)
        return int(content.num_rows)

    # Arrow leaves Python to itself while it copies and compresses.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        pieces = [
            pool.submit(put, who, at)
            for who, table in tables.items()
            for at in range(0, copies, _together(table))
        ]
        rows = sum(piece.result() for piece in pieces)
    return rows, events * copies


def _together(table: pa.Table) -> int:
    """How many copies make a segment."""
    return max(1, SEGMENT_ROWS // int(table.num_rows))


def _copy(table: pa.Table, number: int) -> pa.Table:
    prefix = f"{number:08x}"
    # Copies begin six hours apart: hours of many days have rows.
    shift = pa.scalar(number * 6 * 3600 * 1_000_000, pa.duration("us"))
    columns = []
    for field in table.schema:
        column = table[field.name].combine_chunks()
        if field.name == "sequence":
            column = compute.add(column, number * table.num_rows)
        elif field.name == "time":
            column = compute.add(column, shift)
        elif field.name in _IDS:
            column = _renamed(column, _IDS[field.name], prefix, shift)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _renamed(
    column: pa.StructArray, names: tuple[str, ...], prefix: str, shift: pa.Scalar
) -> pa.StructArray:
    fields = list(column.type)
    children = []
    for at, field in enumerate(fields):
        child = column.field(at)
        if field.name in names:
            rest = compute.utf8_slice_codeunits(child, 8)
            child = compute.binary_join_element_wise(prefix, rest, "")
        elif field.name in ("generated", "expiration_time"):
            child = compute.add(child, shift)
        children.append(child)
    return pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null())
