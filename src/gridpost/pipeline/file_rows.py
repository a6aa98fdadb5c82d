"""Rows of Parquet files read where they are worked on: shares of equal size, one for each task.

Spark would decode every row in Java, deal it out and hand it to Python; for work on single rows of a table
that is a good part of what the work itself costs. So a task is told which rows are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession

from gridpost.pipeline.files import Place, arguments

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
BATCH = 2_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of a file that follow each other, in the row groups that hold them."""

    file: Place
    groups: tuple[int, ...]
    skipped: int
    """Rows of the first row group that belong to the share before."""
    rows: int

    def read(self, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        with parquet.ParquetFile(self.file.path, **arguments(self.file)) as file:
            there = [name for name in columns.names if name in file.schema_arrow.names]
            skip, left = self.skipped, self.rows
            for batch in file.iter_batches(BATCH, row_groups=list(self.groups), columns=there):
                mine = batch.slice(skip, left)
                skip = max(0, skip - batch.num_rows)
                left -= mine.num_rows
                if mine.num_rows:
                    yield _with_all(mine, columns)
                if not left:
                    break


def shares(files: Iterable[Place], tasks: int) -> list[list[Stretch]]:
    """All rows, in their order, in at most so many shares of the same size."""
    known = [(file, _sizes(file)) for file in files]
    total = sum(sum(sizes) for _, sizes in known)
    each = max(1, -(-total // tasks))
    found: list[list[Stretch]] = [[]]
    room = each
    for file, sizes in known:
        at, end = 0, sum(sizes)
        while at < end:
            if not room:
                found.append([])
                room = each
            count = min(room, end - at)
            found[-1].append(_stretch(file, sizes, at, count))
            at += count
            room -= count
    return found if total else []


def worked(
    spark: SparkSession, files: Iterable[Place], columns: pa.Schema, work: Work, made: str
) -> DataFrame:
    """What `work` makes of these columns of all rows; columns that a file lacks are null."""
    # Twice the cores: a share that takes longer than the others keeps one core waiting for less.
    dealt = shares(files, int(spark.conf.get("spark.sql.shuffle.partitions") or 4))
    if not dealt:
        return spark.createDataFrame([], made)
    numbers = spark.range(0, len(dealt), 1, len(dealt))
    return numbers.mapInArrow(_reading(dealt, columns, work), made)


def _reading(dealt: Sequence[Sequence[Stretch]], columns: pa.Schema, work: Work) -> Work:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from work(rows for one in dealt[number] for rows in one.read(columns))

    return read


def _sizes(file: Place) -> list[int]:
    found = parquet.read_metadata(file.path, **arguments(file))
    return [found.row_group(number).num_rows for number in range(found.num_row_groups)]


def _stretch(file: Place, sizes: Sequence[int], at: int, count: int) -> Stretch:
    groups: list[int] = []
    first = before = 0
    for number, size in enumerate(sizes):
        if before < at + count and at < before + size:
            if not groups:
                first = before
            groups.append(number)
        before += size
    return Stretch(file, tuple(groups), at - first, count)


def _with_all(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """In the order and with the types that were asked for."""
    if batch.schema.equals(columns):
        return batch
    there = batch.schema.names
    arrays = [
        batch[field.name].cast(field.type)
        if field.name in there
        else pa.nulls(batch.num_rows, field.type)
        for field in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
