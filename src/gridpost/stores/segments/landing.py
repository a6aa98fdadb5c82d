"""The landing folder: a segment is complete and on the disk before it has its name, or it is not there."""

from __future__ import annotations

import hashlib

import pyarrow as pa
from pyarrow import parquet

from gridpost.core.journal import Identity
from gridpost.core.segment import Manifest, SegmentFolder, SegmentName
from gridpost.stores.segments.columns import SCHEMA

_ROW_GROUP = 128 * 1024
# Nearly every row has another one: a dictionary of them is as long as the column.
_MANY = frozenset({"sequence", "time", "message_id"})


class Landing:
    def __init__(self, folder: SegmentFolder, compression: str = "zstd") -> None:
        self._folder = folder
        self._compression = compression
        folder.mkdir()

    def put(self, name: SegmentName, table: pa.Table, exported_at: int) -> Manifest:
        """Segment first, manifest last: a segment without one is not looked at yet."""
        if table.num_rows != name.rows or table.schema != SCHEMA:
            raise ValueError(f"{name} does not hold what it says")
        told = _told(table)
        sink = pa.BufferOutputStream()
        parquet.write_table(
            table,
            sink,
            # A compressor for each column of nulls is most of what a small segment costs.
            compression={path: self._compression if path in told else "none" for path in _PATHS},
            use_dictionary=[path for path in told if path.rpartition(".")[2] not in _MANY],
            row_group_size=_ROW_GROUP,
            coerce_timestamps="us",
            write_page_index=False,
        )
        data = sink.getvalue()
        digest = hashlib.sha256(data).hexdigest()
        manifest = Manifest(name, table.num_rows, data.size, digest, exported_at)
        self._folder.put(name.file, memoryview(data))
        self._folder.put(name.manifest, memoryview(manifest.encode()))
        return manifest

    def last(self, identity: Identity) -> int:
        """The highest number of this journal that still lies here with its manifest."""
        names = map(SegmentName.parse, self._folder.names("segment.*.json"))
        return max((n.last for n in names if n is not None and n.identity == identity), default=0)


def _paths(field: pa.Field) -> list[str]:
    if not pa.types.is_struct(field.type):
        return [field.name]
    return [f"{field.name}.{inner.name}" for inner in field.type]


_PATHS = tuple(path for field in SCHEMA for path in _paths(field))


def _told(table: pa.Table) -> list[str]:
    """Columns of Parquet under those of the table that say anything at all."""
    return [
        path
        for field in SCHEMA
        if table.column(field.name).null_count < table.num_rows
        for path in _paths(field)
    ]
