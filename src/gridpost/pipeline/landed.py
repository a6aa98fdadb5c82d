"""From segments to files of bronze, column by column: rows judged, people hidden, lineage added.

Rows of a kind that is frequent get files of their own, with the columns of that kind alone: writing
the nulls of all the others was most of the work of an ingest, and reading them of every build.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
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
from gridpost.pipeline.segment_pieces import (
    COLUMNS,
    MIXED,
    Piece,
    columns_of,
    conformed,
    read,
)

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
        """A task that is tried again replaces what it wrote before: names are those of the group."""
        files = _Files(self.folder, number)
        try:
            found = []
            for segment in segments:
                pieces = []
                for piece in read(segment):
                    pieces.append(Piece(piece.kind, self.told(piece, segment.name)))
                    files.take(pieces[-1])
                found.append(self._found(pieces, segment.name))
            files.finish()
        except BaseException:
            files.discard()
            raise
        return found

    def told(self, piece: Piece, segment: str) -> pa.Table:
        """The columns of bronze, and why a row does not belong there."""
        constants: dict[str, str | int] = {
            "segment": segment,
            "stream": self.stream,
            "batch": self.batch,
        }
        rows, columns = piece.rows, columns_of(piece.kind)
        named = hidden(rows, self.key)
        for name, value in constants.items():
            named = named.append_column(
                name, _repeated(value, columns.field(name).type, rows.num_rows)
            )
        return named.append_column("reason", reasons(rows, self.versions))

    def _found(self, pieces: Sequence[Piece], segment: str) -> Landed:
        counted = sum(piece.rows.num_rows for piece in pieces)
        if _name(segment).rows != counted:
            raise RuntimeError(f"{segment} changed after it was admitted")
        rows = pa.concat_tables(piece.rows.select(["time", "reason"]) for piece in pieces)
        bad = counted - rows["reason"].null_count
        good = rows["time"].cast(pa.int64())
        if bad:
            good = good.filter(rows["reason"].is_null())
        extent = compute.min_max(good)
        kinds = {
            kind for piece in pieces for kind in compute.unique(piece.rows["kind"]).to_pylist()
        }
        views = [piece.rows["message"] for piece in pieces if piece.kind in ("message", MIXED)]
        return Landed(
            segment,
            counted,
            bad,
            extent["max"].as_py() or 0,
            extent["min"].as_py() or 0,
            sorted(kinds - {None}),
            sum(map(self._strangers, views)) if self.parties else None,
        )

    def _strangers(self, messages: pa.ChunkedArray) -> int:
        known = pa.scalar(True)
        for name in ("sender_code", "receiver_code"):
            code = compute.struct_field(messages, name).cast(pa.string())
            listed = compute.is_in(code, pa.array(self.parties, pa.string()))
            either = compute.if_else(code.is_null(), pa.scalar(None, pa.bool_()), listed)
            known = compute.and_kleene(known, either)
        return int(compute.sum(compute.invert(known)).as_py() or 0)


def _repeated(value: str | int, type_: pa.DataType, count: int) -> pa.Array:
    if not pa.types.is_dictionary(type_):
        return pa.repeat(pa.scalar(value, type_), count)
    numbers = pa.repeat(pa.scalar(0, type_.index_type), count)
    return pa.DictionaryArray.from_arrays(numbers, pa.array([value], type_.value_type))


class _Files:
    """What one task writes: a file for each kind that fills a row group, and one for all the rest.

    The last one has all columns, also when it has no rows: whoever asks what the table has, finds it.
    """

    def __init__(self, folder: Place, number: int) -> None:
        self._folder = folder
        self._name = f"part-{number:05d}"
        self._waiting: dict[str, list[pa.Table]] = {}
        self._begun: dict[str, tuple[Place, parquet.ParquetWriter]] = {}

    def take(self, piece: Piece) -> None:
        waiting = self._waiting.setdefault(piece.kind, [])
        waiting.append(piece.rows)
        if sum(rows.num_rows for rows in waiting) >= _ROW_GROUP:
            self._write(piece.kind, piece.kind)

    def finish(self) -> None:
        for kind in sorted(self._waiting):
            self._write(kind, kind if kind in self._begun else MIXED)
        self._writer(MIXED)
        for _, writer in self._begun.values():
            writer.close()
        for kind, (unfinished, _) in self._begun.items():
            unfinished.rename(self._target(kind))

    def discard(self) -> None:
        for unfinished, writer in self._begun.values():
            writer.close()
            unfinished.unlink()

    def _write(self, kind: str, to: str) -> None:
        rows = pa.concat_tables(self._waiting.pop(kind))
        if to != kind:
            rows = conformed(rows, columns_of(to))
        # Lists of texts that differ inside of a row group would be written out.
        self._writer(to).write_table(rows.unify_dictionaries())

    def _writer(self, kind: str) -> parquet.ParquetWriter:
        if kind not in self._begun:
            target = self._target(kind)
            unfinished = target.with_name(f".{target.name}.{uuid4().hex[:8]}")
            writer = parquet.ParquetWriter(
                unfinished.path,
                columns_of(kind),
                compression="zstd",
                compression_level=1,
                # Texts are texts to whoever reads them.
                store_schema=False,
                **arguments(unfinished),
            )
            self._begun[kind] = (unfinished, writer)
        return self._begun[kind][1]

    def _target(self, kind: str) -> Place:
        return self._folder / (f"{self._name}.{kind}.parquet" if kind else f"{self._name}.parquet")


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
    kind, time = rows["kind"].cast(pa.string()), rows["time"]
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
