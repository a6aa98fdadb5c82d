"""From segments to files of bronze, column by column: rows judged, people hidden, lineage added.

A journal row has 150 columns of which most are null. Written one value after the other, as Spark
does, that is most of the work of an ingest; a column of nulls costs Arrow next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import compute, parquet

from gridpost.core.journal import (
    KINDS,
    AllocationRow,
    AtcRow,
    BroadcastRow,
    EnvelopeRow,
    SessionRow,
)
from gridpost.core.segment import SegmentName
from gridpost.pipeline.files import Place, arguments
from gridpost.pipeline.pseudonyms import hidden
from gridpost.pipeline.ranges import Range
from gridpost.pipeline.schemas import QUARANTINE, arrow_schema

COLUMNS = arrow_schema(QUARANTINE)
# Without these a row says nothing that silver could use.
NEEDED = {
    "message": ("message_id", "side", "generated"),
    "tracking": ("message_id", "side", "event"),
    "acknowledgement": ("message_id", "related_message_id", "side"),
    "transfer": ("message_id",),
    AtcRow.KIND: ("border", "period_start", "quantity"),
    AllocationRow.KIND: ("allocation_id", "period_start", "quantity"),
    BroadcastRow.KIND: ("broadcast_id", "exchange"),
    EnvelopeRow.KIND: ("direction", "message_kind"),
    SessionRow.KIND: ("user", "event"),
}
_EARLIEST = pa.scalar(datetime(2000, 1, 1, tzinfo=UTC), COLUMNS.field("time").type)
_LATEST = pa.scalar(datetime(2200, 1, 1, tzinfo=UTC), COLUMNS.field("time").type)
_ROW_GROUP = 64 * 1024
"""Small segments share one; it is also what a writer holds in memory."""


@dataclass(frozen=True, slots=True)
class Landed:
    """What was found in one segment."""

    segment: str
    rows: int
    bad: int
    newest: int
    """Microseconds since 1970, of rows that are good: one that was set aside may say any time."""
    oldest: int
    kinds: list[str]
    unknown_eic: int | None = None
    """Messages of parties that the imported list does not know; None: there is no list."""

    @property
    def range(self) -> Range:
        name = _name(self.segment)
        return Range(name.component, name.instance, name.first, name.last, self.newest, self.oldest)


def _name(segment: str) -> SegmentName:
    name = SegmentName.parse(segment)
    if name is None:
        raise RuntimeError(f"{segment} is no segment")
    return name


_LANDED = pa.schema(
    [
        ("segment", pa.string()),
        ("rows", pa.int64()),
        ("bad", pa.int64()),
        ("newest", pa.int64()),
        ("oldest", pa.int64()),
        ("kinds", pa.list_(pa.string())),
        ("unknown_eic", pa.int64()),
    ]
)
SPARK_LANDED = (
    "segment string, rows bigint, bad bigint, newest bigint, oldest bigint, "
    "kinds array<string>, unknown_eic bigint"
)


@dataclass(frozen=True, slots=True)
class Transcription:
    """Where segments go, and what all of their rows are told; small enough to travel with the work."""

    folder: Place
    stream: str
    batch: int
    key: bytes
    parties: tuple[str, ...]
    versions: Mapping[str, int]

    def of(
        self, groups: Sequence[Sequence[Place]]
    ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """What mapInArrow runs, on numbers of groups: each becomes one file."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch["id"].to_pylist():
                    found = self.write(number, groups[number])
                    yield pa.RecordBatch.from_pylist([asdict(f) for f in found], schema=_LANDED)

        return run

    def write(self, number: int, segments: Sequence[Place]) -> list[Landed]:
        """A task that is tried again replaces what it wrote before: the name is that of the group."""
        target = self.folder / f"part-{number:05d}.parquet"
        unfinished = target.with_name(f".{target.name}.{uuid4().hex[:8]}")
        try:
            found = self._write(unfinished, segments)
        except BaseException:
            unfinished.unlink()
            raise
        unfinished.rename(target)
        return found

    def _write(self, target: Place, segments: Sequence[Place]) -> list[Landed]:
        found = []
        waiting: list[pa.Table] = []
        with parquet.ParquetWriter(
            target.path, COLUMNS, compression="zstd", compression_level=1, **arguments(target)
        ) as out:
            for segment in segments:
                pieces = [self.told(rows, segment.name) for rows in read(segment)]
                found.append(self._found(pieces, segment.name))
                for rows in pieces:
                    waiting.append(rows)
                    if sum(piece.num_rows for piece in waiting) >= _ROW_GROUP:
                        out.write_table(pa.concat_tables(waiting))
                        waiting.clear()
            if waiting:
                out.write_table(pa.concat_tables(waiting))
        return found

    def told(self, rows: pa.Table, segment: str) -> pa.Table:
        """The columns of bronze, and why a row does not belong there."""
        constants = {"segment": segment, "stream": self.stream, "batch": self.batch}
        named = hidden(rows, self.key)
        for name, value in constants.items():
            type_ = COLUMNS.field(name).type
            named = named.append_column(name, pa.repeat(pa.scalar(value, type_), rows.num_rows))
        return named.append_column("reason", reasons(rows, self.versions))

    def _found(self, pieces: Sequence[pa.Table], segment: str) -> Landed:
        rows = pa.concat_tables(piece.select(_COUNTED) for piece in pieces)
        if _name(segment).rows != rows.num_rows:
            raise RuntimeError(f"{segment} changed after it was admitted")
        bad = rows.num_rows - rows["reason"].null_count
        good = rows["time"].cast(pa.int64())
        if bad:
            good = good.filter(rows["reason"].is_null())
        extent = compute.min_max(good)
        return Landed(
            segment,
            rows.num_rows,
            bad,
            extent["max"].as_py() or 0,
            extent["min"].as_py() or 0,
            sorted(compute.unique(rows["kind"]).drop_null().to_pylist()),
            self._strangers(rows["message"]) if self.parties else None,
        )

    def _strangers(self, messages: pa.ChunkedArray) -> int:
        known = pa.scalar(True)
        for name in ("sender_code", "receiver_code"):
            code = compute.struct_field(messages, name)
            listed = compute.is_in(code, pa.array(self.parties, pa.string()))
            either = compute.if_else(code.is_null(), pa.scalar(None, pa.bool_()), listed)
            known = compute.and_kleene(known, either)
        return int(compute.sum(compute.invert(known)).as_py() or 0)


_COUNTED = ["kind", "time", "message", "reason"]


def read(segment: Place) -> Iterator[pa.Table]:
    """Rows in the columns of this version, a piece at a time.

    Columns are found by their names: an older segment lacks some, a newer one has more.
    """
    with segment.system.open_input_file(segment.path) as source:
        file = parquet.ParquetFile(source)
        for number in range(file.num_row_groups):
            kinds = set(
                compute.unique(
                    file.read_row_group(number, ["kind"], use_threads=False)["kind"]
                ).to_pylist()
            )
            silent = _silent(file.metadata.row_group(number), kinds)
            wanted = [n for n in file.schema_arrow.names if n in _LANDING and n not in silent]
            yield _conformed(file.read_row_group(number, wanted, use_threads=False))


def _silent(group: Any, kinds: set[str]) -> set[str]:
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


_LANDING = frozenset(COLUMNS.names) - {"segment", "stream", "batch", "reason"}


def _conformed(rows: pa.Table) -> pa.Table:
    columns = {}
    for field in COLUMNS:
        if field.name not in _LANDING:
            continue
        if field.name not in rows.column_names:
            columns[field.name] = pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
        else:
            chunks = [_as(chunk, field.type) for chunk in rows[field.name].chunks]
            columns[field.name] = pa.chunked_array(chunks, field.type)
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


def judging() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows of bronze with their reasons, for mapInArrow."""
    versions = known_versions()

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            told = rows.append_column("reason", reasons(rows, versions))
            yield from told.cast(COLUMNS).to_batches()

    return judge


def known_versions() -> dict[str, int]:
    """Of each kind, where a command was given: those who work for it go by them."""
    return {name: row.SCHEMA_VERSION for name, row in KINDS.items()}


def reasons(rows: pa.Table, versions: Mapping[str, int]) -> pa.Array:
    """Null where a row is good."""
    kind, time = rows["kind"], rows["time"]
    possible = compute.and_(
        compute.greater_equal(time, _EARLIEST), compute.less_equal(time, _LATEST)
    )
    found = {
        "an unknown kind": compute.invert(compute.is_in(kind, pa.array(versions, pa.string()))),
        "an impossible time": compute.invert(possible.fill_null(False)),
    }
    for name in versions.keys() & set(compute.unique(kind).to_pylist()):
        is_it = compute.equal(kind, name).fill_null(False)
        newer = compute.greater(rows["schema_version"], versions[name])
        found[f"a newer version of {name}"] = compute.and_(is_it, newer.fill_null(False))
        missing = rows[name].is_null()
        for column in NEEDED.get(name, ()):
            value = compute.struct_field(rows[name], column)
            missing = compute.or_(missing, value.is_null())
        found[f"a row of {name} without its columns"] = compute.and_(is_it, missing)
    return _first(found, rows.num_rows)


def _first(found: Mapping[str, pa.ChunkedArray], count: int) -> pa.Array:
    """The first of these that holds; in most segments none does."""
    holding = {text: mask for text, mask in found.items() if compute.any(mask).as_py()}
    if not holding:
        return pa.nulls(count, pa.string())
    masks = [mask.combine_chunks() for mask in holding.values()]
    return compute.case_when(
        compute.make_struct(*masks), *(pa.scalar(text, pa.string()) for text in holding)
    )
