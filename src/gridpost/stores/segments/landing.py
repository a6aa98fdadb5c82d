"""The landing folder: a segment is complete and on the disk before it has its name, or it is not there."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from gridpost.core.journal import Identity
from gridpost.core.segment import Manifest, SegmentName
from gridpost.stores.segments.columns import SCHEMA
from gridpost.stores.sqlite.bodies import sync_folder

_ROW_GROUP = 128 * 1024


class Landing:
    """Local folders; Spark reads them from wherever they are copied or mounted."""

    def __init__(self, folder: Path, compression: str = "zstd") -> None:
        self._folder = folder
        self._compression = compression
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)

    def put(self, name: SegmentName, table: pa.Table, exported_at: int) -> Manifest:
        """Segment first, manifest last: a segment without one is not looked at yet."""
        if table.num_rows != name.rows or table.schema != SCHEMA:
            raise ValueError(f"{name} does not hold what it says")
        sink = pa.BufferOutputStream()
        parquet.write_table(
            table,
            sink,
            compression=self._compression,
            row_group_size=_ROW_GROUP,
            coerce_timestamps="us",
            write_page_index=False,
        )
        data = sink.getvalue()
        digest = hashlib.sha256(data).hexdigest()
        manifest = Manifest(name, table.num_rows, data.size, digest, exported_at)
        self._write(name.file, memoryview(data))
        self._write(name.manifest, memoryview(manifest.encode()))
        return manifest

    def last(self, identity: Identity) -> int:
        """The highest number of this journal that still lies here with its manifest."""
        names = (SegmentName.parse(file.name) for file in self._folder.glob("segment.*.json"))
        return max((n.last for n in names if n is not None and n.identity == identity), default=0)

    def _write(self, name: str, data: memoryview) -> None:
        # A dot in front: neither Spark nor the admission looks at it.
        unfinished = self._folder / f".{name}.{os.getpid()}"
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            unfinished.replace(self._folder / name)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        sync_folder(self._folder)
