"""From admitted segments to the bronze table: each journal row once, as landed, with its lineage.

What a batch brings is decided by its content, not by its number: rows in ranges that the pointer
lists are repeats, whether Spark replays a batch, a segment comes twice, or the checkpoint was lost,
restored or made anew. The pointer is the commit; segments are archived only after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gridpost.core.segment import SegmentName
from gridpost.pipeline import admit
from gridpost.pipeline.files import Place
from gridpost.pipeline.lake import Lake, Part, Progress, silent
from gridpost.pipeline.landed import SPARK_LANDED, Landed, Transcription, known_versions
from gridpost.pipeline.ranges import Range, among_themselves, merged, overlapping
from gridpost.pipeline.schemas import BRONZE, QUARANTINE

LAYER, TABLE, ASIDE, QUALITY = "bronze", "journal", "quarantine", "quality"
# Admitted files are touched before each run: age never hides one (see admit.refresh).
MAX_FILE_AGE = "7d"
# The columns of this source of Spark, which takes no others.
_FILE = "path string, modificationTime timestamp, length long, content binary"
STREAM_ID = "stream-id"
MAX_FILES = 256
"""Of one batch: each has its costs, and its size is not what memory depends on."""
_QUALITY = pa.schema(
    [
        ("stream", pa.string()),
        ("batch", pa.int64()),
        ("component", pa.string()),
        ("instance", pa.string()),
        ("rows_in", pa.int64()),
        ("rows_out", pa.int64()),
        ("quarantined", pa.int64()),
        ("repeated", pa.int64()),
        ("first_sequence", pa.int64()),
        ("last_sequence", pa.int64()),
        ("newest", pa.timestamp("us", tz="UTC")),
        ("unknown_eic", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class BatchResult:
    stream: str
    batch: int
    rows_in: int
    rows_out: int
    quarantined: int
    repeated: int


def read_stream(
    spark: SparkSession, lake: Lake, commit: Callable[[DataFrame, int], None], max_files: int
) -> None:
    """One pass over everything that is admitted."""
    source = (
        # A row for each file, and none of its content: that is read where it is written.
        spark.readStream.schema(_FILE)
        .format("binaryFile")
        .option("recursiveFileLookup", True)
        .option("pathGlobFilter", "segment.*.parquet")
        .option("maxFileAge", MAX_FILE_AGE)
        .option("maxFilesPerTrigger", max_files)
        .load(str(lake.admitted))
        .select(F.col("_metadata.file_name").alias("segment"))
    )
    query = (
        source.writeStream.foreachBatch(commit)
        .option("checkpointLocation", str(lake.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def ingest(
    spark: SparkSession, lake: Lake, *, max_files: int = MAX_FILES, progress: Progress = silent
) -> list[BatchResult]:
    """Everything that is admitted, into bronze; safe to run again after any interruption."""
    bring_back(lake)
    admit.archive(lake, committed_segments(lake))
    if admit.refresh(lake) == 0:
        return []
    # With Spark Connect batches are committed at the server: what travels there must be plain.
    remote = ".connect." in type(spark).__module__
    before = {part.path for part in lake.table(LAYER, QUALITY).pointer().parts}
    read_stream(
        spark,
        lake,
        committing(lake.root, stream_id(lake), silent if remote else progress),
        max_files,
    )
    admit.archive(lake, committed_segments(lake))
    return _results(lake, before)


def committing(root: Place, stream: str, progress: Progress) -> Callable[[DataFrame, int], None]:
    def commit(batch: DataFrame, number: int) -> None:
        BronzeWriter(Lake(root), stream, progress).commit(batch, number)

    return commit


def _results(lake: Lake, before: set[str]) -> list[BatchResult]:
    """What was done since, from the table that says so: it is the same wherever it was done."""
    table = lake.table(LAYER, QUALITY)
    rows = table.read(parts=[part for part in table.pointer().parts if part.path not in before])
    return [
        BatchResult(
            row["stream"],
            row["batch"],
            row["rows_in"],
            row["rows_out"],
            row["quarantined"],
            row["repeated"],
        )
        for row in ([] if rows is None else rows.to_pylist())
        if row["component"] is None
    ]


class BronzeWriter:
    """What foreachBatch calls."""

    def __init__(self, lake: Lake, stream: str, progress: Progress = silent) -> None:
        self._lake = lake
        self._stream = stream
        self._progress = progress
        self._key = lake.secret("pseudonyms")

    def commit(self, batch: DataFrame, number: int) -> None:
        spark = batch.sparkSession
        table = self._lake.table(LAYER, TABLE)
        aside = self._lake.table(LAYER, ASIDE)
        # Staged first, judged after: one pass over the segments in the usual case.
        folder = table.new_folder()
        segments = self._staged(batch, number, folder)
        if not segments:
            return
        staged = table.parts_in(folder)
        pointer = table.pointer()
        known = overlapping(ranges_of(pointer.parts), [s.range for s in segments])
        rows_in = sum(s.rows for s in segments)
        bad = sum(s.bad for s in segments)
        repeated = 0
        set_aside: list[Part] = []
        if known or bad or among_themselves([s.range for s in segments]):
            landed = spark.read.schema(QUARANTINE).parquet(*table.paths(staged))
            fresh = without_repeats(landed, known)
            staged = table.stage(fresh.where(F.col("reason").isNull()))
            set_aside = aside.stage(fresh.where(F.col("reason").isNotNull())) if bad else []
            bad = sum(part.rows for part in set_aside)
            repeated = rows_in - bad - sum(part.rows for part in staged)
        made_by = f"{self._stream}/{number}"
        meta = {
            "stream": self._stream,
            "batch": number,
            "segments": [s.segment for s in segments],
            "ranges": [asdict(r) for r in merged(s.range for s in segments)],
            "kinds": sorted({kind for s in segments for kind in s.kinds}),
        }
        if set_aside and not _holds(aside.pointer().parts, made_by):
            aside.append([replace(part, made_by=made_by) for part in set_aside])
        rows_out = sum(part.rows for part in staged)
        # A batch of repeats alone leaves its trace too: its segments may be archived.
        parts = staged or [Part("", 0)]
        table.append([replace(part, made_by=made_by, meta=meta) for part in parts])
        self._lake.table(LAYER, QUALITY).append(
            self._lake.table(LAYER, QUALITY).stage_arrow(
                _quality(self._stream, number, segments, rows_in, bad, repeated)
            )
        )
        self._progress(f"batch {number}: {rows_out:,} rows")

    def _staged(self, batch: DataFrame, number: int, folder: Place) -> list[Landed]:
        """What the segments of a batch hold, once it is written."""
        spark = batch.sparkSession
        there = {file.name: file for file in self._lake.admitted.glob("*/segment.*.parquet")}
        files = [there[row.segment] for row in batch.collect()]
        if not files:
            return []
        groups = balanced(files, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
        work = Transcription(
            folder.mkdir(),
            self._stream,
            number,
            self._key,
            _parties(self._lake),
            known_versions(),
        ).of(groups)
        numbers = spark.range(0, len(groups), 1, len(groups))
        rows = numbers.mapInArrow(work, SPARK_LANDED).collect()
        return sorted((Landed(**row.asDict()) for row in rows), key=lambda one: one.range)


def _parties(lake: Lake) -> tuple[str, ...]:
    rows = lake.table("silver", "parties").read(["code"])
    return () if rows is None else tuple(rows["code"].to_pylist())


def balanced(files: Sequence[Place], tasks: int) -> list[list[Place]]:
    """At most so many groups, all with about the same octets; each in the order of its names."""
    groups: list[list[Place]] = [[] for _ in range(min(tasks, len(files)))]
    sizes = [0] * len(groups)
    for size, file in sorted(((f.size(), f) for f in files), key=lambda one: -one[0]):
        least = sizes.index(min(sizes))
        groups[least].append(file)
        sizes[least] += size
    return [sorted(group, key=lambda file: file.name) for group in groups]


def without_repeats(frame: DataFrame, known: Sequence[Range]) -> DataFrame:
    """Rows of ranges that the lake does not hold, each once."""
    repeat = F.lit(False)
    for item in known:
        repeat = repeat | (
            (F.col("component") == item.component)
            & (F.col("instance") == item.instance)
            & F.col("sequence").between(item.first, item.last)
        )
    return frame.where(~repeat).dropDuplicates(["component", "instance", "sequence"])


def ranges_of(parts: Sequence[Part]) -> list[Range]:
    return merged(Range(**item) for part in parts for item in part.meta.get("ranges", ()))


def committed_segments(lake: Lake) -> set[str]:
    parts = lake.table(LAYER, TABLE).pointer().parts
    return {name for part in parts for name in part.meta.get("segments", ())}


def stream_id(lake: Lake) -> str:
    """Made with the checkpoint, kept in it: a new checkpoint is another stream."""
    file = lake.checkpoint / STREAM_ID
    if not file.is_file():
        file.write(uuid4().hex.encode())
    return file.read_text()


def bring_back(lake: Lake) -> int:
    """After a lake was restored from an older copy: archived segments that it does not hold.

    The checkpoint then knows batches that the lake does not, and would never show them again.
    """
    commits = [int(f.name) for f in (lake.checkpoint / "commits").glob("*") if f.name.isdigit()]
    parts = lake.table(LAYER, TABLE).pointer().parts
    stream = stream_id(lake) if commits else ""
    seen = [p.meta["batch"] for p in parts if p.meta.get("stream") == stream]
    if not commits or max(commits) <= max(seen, default=-1):
        return 0
    known = ranges_of(parts)
    back = 0
    for file in lake.archive.glob("*/segment.*.parquet"):
        name = SegmentName.parse(file.name)
        if name is None:
            continue
        wanted = Range(name.component, name.instance, name.first, name.last)
        if not any(
            k.key == wanted.key and k.first <= wanted.first <= wanted.last <= k.last for k in known
        ):
            file.rename(lake.admitted / file.parent.name / file.name)
            back += 1
    aside = lake.checkpoint.with_name(f"bronze.{uuid4().hex[:8]}.old")
    lake.checkpoint.rename(aside)
    return back


def _holds(parts: Sequence[Part], made_by: str) -> bool:
    return any(part.made_by == made_by for part in parts)


def _quality(
    stream: str, number: int, segments: Sequence[Landed], rows_in: int, bad: int, repeated: int
) -> pa.Table:
    lines = []
    for item in merged(s.range for s in segments):
        mine = [s for s in segments if s.range.key == item.key and s.range.overlaps(item)]
        rows = sum(s.rows for s in mine)
        lines.append(
            {
                "stream": stream,
                "batch": number,
                "component": item.component,
                "instance": item.instance,
                "rows_in": rows,
                "rows_out": None,
                "quarantined": sum(s.bad for s in mine),
                "repeated": None,
                "first_sequence": item.first,
                "last_sequence": item.last,
                "newest": max(s.range.newest for s in mine),
                "unknown_eic": _strangers(mine),
            }
        )
    lines.append(
        {
            "stream": stream,
            "batch": number,
            "component": None,
            "instance": None,
            "rows_in": rows_in,
            "rows_out": rows_in - bad - repeated,
            "quarantined": bad,
            "repeated": repeated,
            "first_sequence": None,
            "last_sequence": None,
            "newest": max(s.range.newest for s in segments),
            "unknown_eic": _strangers(segments),
        }
    )
    return pa.Table.from_pylist(lines, schema=_QUALITY)


def _strangers(segments: Sequence[Landed]) -> int | None:
    counts = [s.unknown_eic for s in segments if s.unknown_eic is not None]
    return sum(counts) if counts else None


def read_bronze(spark: SparkSession, lake: Lake, parts: Sequence[Part]) -> DataFrame:
    table = lake.table(LAYER, TABLE)
    live = [part for part in parts if part.rows]
    if not live:
        return spark.createDataFrame([], BRONZE)
    return spark.read.schema(BRONZE).parquet(*table.paths(live))


def part_key(part: Part) -> str:
    """The identity of a bronze part, also after compaction has put several into one folder."""
    return hashlib.sha256(f"{part.made_by}:{part.path}".encode()).hexdigest()[:16]
