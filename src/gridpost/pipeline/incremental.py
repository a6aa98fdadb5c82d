"""How a table is brought up to date: only what its sources brought since, however old that is.

A part of a table remembers the parts it was made from. What was made from other parts than there
are now is made again: an interrupted build goes on where it stopped, and a build after nothing new
does nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from gridpost.core.journal import AllocationRow, AtcRow, BroadcastRow, SessionRow
from gridpost.pipeline import bronze, erasure
from gridpost.pipeline.completeness import marks_of, still_open
from gridpost.pipeline.gold.completeness import with_completeness
from gridpost.pipeline.gold.reconciliation import UNKNOWN
from gridpost.pipeline.lake import Lake, Part, Pointer, Progress, Table, silent
from gridpost.pipeline.silver import facts

SILVER, GOLD, CONTENT = "silver", "gold", "content"
VIEWS = "message_views"


@dataclass(slots=True)
class BuildResult:
    build: str
    days: set[str] = field(default_factory=set)
    rows: dict[str, int] = field(default_factory=dict)


class Incremental:
    def __init__(self, spark: SparkSession, lake: Lake, progress: Progress = silent) -> None:
        self._spark = spark
        self._lake = lake
        self._progress = progress
        self.result = BuildResult(uuid4().hex)

    # ------------------------------------------------------------ facts of bronze

    def _add_facts(
        self, name: str, transform: Callable[[DataFrame], DataFrame], layer: str = SILVER
    ) -> None:
        """Rows of bronze parts that this table does not have yet."""
        table, new, known = self._new_parts(name, layer)
        if not new and _made_once(table.basis()):
            return
        told = [p for p in new if _kind_of(name) in p.meta.get("kinds", [_kind_of(name)])]
        frame = transform(self._bronze(told))
        parts = table.stage(frame, "day") if told else []
        table.append(
            self._made(parts), sources=sorted({*known, *keys_of(new)}), schema=frame.schema.json()
        )
        self._count(f"{layer}.{name}", parts)

    def _add_following(self, name: str, transform: Callable[[DataFrame], DataFrame]) -> None:
        """New rows and those without a day, each placed where its message lies."""
        table, new, known = self._new_parts(name)
        pointer = table.basis()
        orphans = [part for part in pointer.parts if part.partition is None]
        views = self._lake.table(SILVER, VIEWS)
        seen = digest(part.path for part in views.pointer().parts)
        if not new and _made_once(pointer) and (not orphans or pointer.meta.get("views") == seen):
            return
        frame = transform(self._bronze(new))
        schema = frame.schema
        if orphans:
            frame = frame.unionByName(self._read(table, orphans))
        if new or orphans:
            placed = facts.placed(frame, self._views_near(frame))
            parts = table.stage(placed, "day")
        else:
            parts = []
        kept = [part for part in pointer.parts if part.partition is not None]
        table.publish(
            replace(
                pointer,
                parts=(*kept, *self._made(parts)),
                meta={
                    **pointer.meta,
                    "sources": sorted({*known, *keys_of(new)}),
                    "views": seen,
                    "schema": schema.json(),
                },
            )
        )
        self._count(f"{SILVER}.{name}", parts)

    def _views_near(self, frame: DataFrame) -> DataFrame:
        """Only days on which the messages of these facts can lie."""
        views = self._lake.table(SILVER, VIEWS)
        extent = frame.agg(
            F.date_sub(F.min(F.to_date("time")), facts.DAYS_AFTER).cast("string").alias("first"),
            F.date_add(F.max(F.to_date("time")), facts.DAYS_BEFORE).cast("string").alias("last"),
        ).collect()[0]
        first, last = extent.first or "", extent.last or ""
        return self._read(
            views, [p for p in views.pointer().parts if first <= (p.partition or "") <= last]
        )

    def _new_parts(self, name: str, layer: str = SILVER) -> tuple[Table, list[Part], set[str]]:
        table = self._lake.table(layer, name)
        known = set(table.basis().meta.get("sources", ()))
        source = self._lake.table(bronze.LAYER, bronze.TABLE).pointer().parts
        return table, [p for p in source if p.rows and not known & set(keys_of([p]))], known

    def _bronze(self, parts: Sequence[Part]) -> DataFrame:
        return erasure.without_erased(
            self._spark, self._lake, bronze.read_bronze(self._spark, self._lake, parts)
        )

    # ------------------------------------------------------------ by day

    def _per_day(
        self,
        layer: str,
        name: str,
        inputs: Sequence[str],
        make: Callable[..., DataFrame],
        *,
        also: str = "",
        while_open: str = "",
        source: str = SILVER,
        read: Callable[[Table, Sequence[Part]], DataFrame] | None = None,
    ) -> None:
        """Make a table anew for days whose inputs are others than the last time.

        `also` is what else all figures depend on, `while_open` what those of days depend on that
        still have something undecided; `read` takes the place of Spark's reader.
        """
        sources = [self._lake.table(source, name) for name in inputs]
        pointers = [given.pointer() for given in sources]
        table = self._lake.table(layer, name)
        pointer = table.basis()
        days = {p.partition for one in pointers for p in one.parts if p.partition is not None}
        wanted = {day: digest(_paths(pointers, day)) for day in days}
        has = pointer.meta.get("days", {})
        besides = {day: self._also(layer, also, day) for day in days}
        changed = {
            day
            for day, made_of in wanted.items()
            if (old := has.get(day, {})).get("inputs") != made_of
            or old["also"] != besides[day]
            or (old["open"] and old["while_open"] != while_open)
        }
        gone = set(has) - set(wanted)
        if not changed and not gone and _made_once(pointer):
            return
        read = read or self._read
        frames = [
            read(given, [p for p in one.parts if p.partition in changed])
            for given, one in zip(sources, pointers, strict=True)
        ]
        # Several tables are made of the same rows: which build wrote those does not matter here.
        frame = self._finished(layer, make(*(frame.drop("build") for frame in frames)))
        parts = self._made(table.stage(frame, "day")) if changed else []
        opened = self._open_days(table, name, parts)
        record = {
            **{day: value for day, value in has.items() if day in wanted},
            **{
                day: {
                    "inputs": wanted[day],
                    "also": besides[day],
                    "while_open": while_open,
                    "open": day in opened,
                }
                for day in changed
            },
        }
        table.overwrite(parts, {*changed, *gone}, days=record, schema=frame.schema.json())
        self.result.days |= changed
        self._count(f"{layer}.{name}", parts)

    def _open_days(self, table: Table, name: str, parts: Sequence[Part]) -> set[str]:
        """Days with rows that time alone may change."""
        if name not in ("reconciliation", "waiting") or not parts:
            return set()
        frame = self._spark.read.parquet(*table.paths(parts))
        if name == "reconciliation":
            frame = frame.where(F.col("verdict") == UNKNOWN)
        return {str(row.day) for row in frame.select("day").distinct().collect()}

    # ------------------------------------------------------------ as a whole

    def _whole(
        self,
        layer: str,
        name: str,
        inputs: Sequence[str],
        make: Callable[..., DataFrame],
        *,
        also: str = "",
    ) -> None:
        """Make a table anew when any of its inputs changed: what is counted over days has no day."""
        sources = [self._lake.table(SILVER, given) for given in inputs]
        pointers = [given.pointer() for given in sources]
        days = {part.partition for pointer in pointers for part in pointer.parts}
        newest = max((day for day in days if day is not None), default="")
        besides = self._also(layer, also, newest)
        made_of = digest([besides, *(path for day in days for path in _paths(pointers, day))])
        table = self._lake.table(layer, name)
        if table.basis().meta.get("inputs") == made_of:
            return
        frame = self._finished(
            layer,
            make(
                *(
                    self._read(given, one.parts)
                    for given, one in zip(sources, pointers, strict=True)
                )
            ),
        )
        parts = self._made(table.stage(frame))
        table.overwrite(parts, inputs=made_of, schema=frame.schema.json())
        self._count(f"{layer}.{name}", parts)

    # ------------------------------------------------------------ what every row of gold says

    def _finished(self, layer: str, made: DataFrame) -> DataFrame:
        """The build that made a row, and up to when its figures are complete."""
        frame = with_completeness(made, self._marks) if layer == GOLD else made
        return frame.withColumn("build", F.lit(self.result.build))

    def _also(self, layer: str, also: str, day: str) -> str:
        """A day of gold depends on the marks of journals that are not past it."""
        return f"{also}/{digest(still_open(self._marks, day))}" if layer == GOLD and day else also

    @cached_property
    def _marks(self) -> dict[str, datetime]:
        """Those of the last build: what silver holds."""
        return marks_of(self._lake)

    def _spread(self, rows: DataFrame) -> DataFrame:
        """Over all workers, for work that costs far more than to move a row to it."""
        number = int(self._spark.conf.get("spark.sql.shuffle.partitions") or 4)
        # By what makes a row: without a key Spark sorts all rows first, to deal them out alike every time.
        return rows.repartition(number, *facts.ROW)

    def _read(self, table: Table, parts: Sequence[Part]) -> DataFrame:
        return read(self._spark, table, parts)

    def _made(self, parts: Iterable[Part]) -> list[Part]:
        return [replace(part, made_by=self.result.build) for part in parts]

    def _count(self, name: str, parts: Iterable[Part]) -> None:
        self.result.rows[name] = sum(part.rows for part in parts)


def read(spark: SparkSession, table: Table, parts: Sequence[Part] | None = None) -> DataFrame:
    """Rows of a table for Spark, with the columns of its newest schema."""
    pointer = table.pointer()
    schema = StructType.fromJson(json.loads(pointer.meta["schema"]))
    chosen = [p for p in (pointer.parts if parts is None else parts) if p.rows]
    if not chosen:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*table.paths(chosen))


def _made_once(pointer: Pointer) -> bool:
    """A table without rows has its columns all the same."""
    return "schema" in pointer.meta


def _kind_of(name: str) -> str:
    """The kind of journal row that a silver table is made of."""
    kinds = {
        VIEWS: "message",
        "documents": "message",
        "envelope_documents": "envelope",
        "components": "entry",
        "administration": "administration",
        "atc": AtcRow.KIND,
        "allocations": AllocationRow.KIND,
        "broadcasts": BroadcastRow.KIND,
        "sessions": SessionRow.KIND,
    }
    return kinds.get(name, name.removesuffix("s"))


def keys_of(parts: Iterable[Part]) -> list[str]:
    return [key for part in parts for key in part.meta.get("contains") or [bronze.part_key(part)]]


def _paths(pointers: Sequence[Pointer], day: str | None) -> list[str]:
    """What a day is made of. Compaction puts parts together, but changes nothing of that."""
    return [
        f"{number}:{path}"
        for number, pointer in enumerate(pointers)
        for part in pointer.parts
        if part.partition == day
        for path in part.meta.get("contains") or [part.path]
    ]


def digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:20]
