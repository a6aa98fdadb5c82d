"""From bronze to silver and gold: only the days that changed, however old they are.

A part of a table remembers the parts it was made from. What was made from other parts than there
are now is made again: an interrupted build goes on where it stopped, and a build after nothing new
does nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from gridpost.core.journal import AllocationRow, AtcRow, BroadcastRow
from gridpost.pipeline import bronze, erasure
from gridpost.pipeline.gold import capacity as capacity_figures
from gridpost.pipeline.gold import delivery as figures
from gridpost.pipeline.gold.reconciliation import UNKNOWN, reconciliation, waiting
from gridpost.pipeline.gold.sla import Agreement, sla
from gridpost.pipeline.lake import Lake, Part, Pointer, Progress, Table, silent
from gridpost.pipeline.proofs import AUDIT, KnownCertificate, judging
from gridpost.pipeline.ranges import Mark, Range, gaps, marks
from gridpost.pipeline.silver import capacity, facts, market_views
from gridpost.pipeline.silver.market import DEFAULT_ZONE, SPARK_PARSED, parse_documents
from gridpost.pipeline.silver.messages import messages, proofs

SILVER, GOLD, CONTENT = "silver", "gold", "content"
VIEWS = "message_views"
# Placed by the day of their message: they wait without a day until the message is known.
FOLLOWING = {
    "tracking_events": facts.tracking_events,
    "acknowledgements": facts.acknowledgements,
}
INDEPENDENT = {
    VIEWS: facts.message_views,
    "transfers": facts.transfers,
    "refusals": facts.refusals,
    "administration": facts.administration,
    "components": facts.components,
    "certificates": facts.certificates,
    "atc": capacity.atc,
    "allocations": capacity.allocations,
    "broadcasts": capacity.broadcasts,
}
MARKS, GAPS = "marks", "gaps"


@dataclass(frozen=True, slots=True)
class BuildSettings:
    agreements: tuple[Agreement, ...] = ()
    roots: tuple[bytes, ...] = ()
    """ROOT CAs by which the audit judges; without any nothing is proven."""
    stuck_after_seconds: int = 900
    zone: str = DEFAULT_ZONE
    """Of the market: it decides which delivery day a point belongs to."""


@dataclass(slots=True)
class BuildResult:
    build: str
    days: set[str] = field(default_factory=set)
    rows: dict[str, int] = field(default_factory=dict)


class Builder:
    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        settings: BuildSettings | None = None,
        progress: Progress = silent,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._settings = settings or BuildSettings()
        self._progress = progress
        self.result = BuildResult(uuid4().hex)

    def run(self) -> BuildResult:
        for name, transform in INDEPENDENT.items():
            self._progress(f"silver.{name}")
            self._add_facts(name, transform)
        for name, transform in FOLLOWING.items():
            self._progress(f"silver.{name}")
            self._add_following(name, transform)
        self._progress("silver.messages")
        inputs = (VIEWS, *FOLLOWING)
        self._per_day(SILVER, "messages", inputs, lambda v, t, a: messages(v, t, a))
        self._per_day(SILVER, "proofs", (VIEWS, "acknowledgements"), proofs)
        self._market()
        self._marks()
        self._gold()
        self._capacity()
        return self.result

    # ------------------------------------------------------------ silver

    def _market(self) -> None:
        """Documents that owners had journalled, parsed; they stay in the folder with its own rights."""
        self._progress("content.documents")
        self._add_facts("documents", facts.documents, CONTENT)
        if not self._lake.table(CONTENT, "documents").pointer().parts:
            return
        parse = parse_documents(self._settings.zone)

        def parsed(documents: DataFrame) -> DataFrame:
            once = documents.groupBy("day", "message_id").agg(
                F.min("time").alias("known_at"), F.min_by("content", "time").alias("content")
            )
            days = once.select("day", "message_id")
            spread = once.drop("day").repartition(self._parallelism())
            return spread.mapInArrow(parse, SPARK_PARSED).join(days, on="message_id", how="inner")

        self._progress("content.market")
        self._per_day(
            CONTENT,
            "market_parsed",
            ("documents",),
            parsed,
            also=self._settings.zone,
            source=CONTENT,
        )
        for name, make in (
            ("market_documents", market_views.documents),
            ("market_points", market_views.points),
            ("market_quarantine", market_views.quarantine),
        ):
            self._per_day(CONTENT, name, ("market_parsed",), make, source=CONTENT)

    def _add_facts(
        self, name: str, transform: Callable[[DataFrame], DataFrame], layer: str = SILVER
    ) -> None:
        """Rows of bronze parts that this table does not have yet."""
        table, new, known = self._new_parts(name, layer)
        if not new and table.pointer().version:
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
        pointer = table.pointer()
        orphans = [part for part in pointer.parts if part.partition is None]
        views = self._lake.table(SILVER, VIEWS)
        digest = _digest(part.path for part in views.pointer().parts)
        if not new and pointer.version and (not orphans or pointer.meta.get("views") == digest):
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
                    "views": digest,
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
        known = set(table.pointer().meta.get("sources", ()))
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
    ) -> None:
        """Make a table anew for days whose inputs are others than the last time.

        `also` is what else all figures depend on, `while_open` what those of days depend on that
        still have something undecided.
        """
        sources = [self._lake.table(source, name) for name in inputs]
        pointers = [given.pointer() for given in sources]
        table = self._lake.table(layer, name)
        pointer = table.pointer()
        days = {p.partition for one in pointers for p in one.parts if p.partition is not None}
        wanted = {day: _digest(_paths(pointers, day)) for day in days}
        has = pointer.meta.get("days", {})
        changed = {
            day
            for day, digest in wanted.items()
            if (old := has.get(day, {})).get("inputs") != digest
            or old["also"] != also
            or (old["open"] and old["while_open"] != while_open)
        }
        gone = set(has) - set(wanted)
        if not changed and not gone and pointer.version:
            return
        frames = [
            self._read(given, [p for p in one.parts if p.partition in changed])
            for given, one in zip(sources, pointers, strict=True)
        ]
        # Several tables are made of the same rows: which build wrote those does not matter here.
        made = make(*(frame.drop("build") for frame in frames))
        frame = made.withColumn("build", F.lit(self.result.build))
        parts = self._made(table.stage(frame, "day")) if changed else []
        opened = self._open_days(table, name, parts)
        record = {
            **{day: value for day, value in has.items() if day in wanted},
            **{
                day: {
                    "inputs": wanted[day],
                    "also": also,
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

    # ------------------------------------------------------------ gold

    def _gold(self) -> None:
        known = self._mark_frame()
        marked = _digest(json.dumps(asdict(m)) for m in self._known_marks().values())
        self._progress("gold.latency")
        self._per_day(GOLD, "latency_histograms", ("messages",), figures.latency_histograms)
        self._progress("gold.delivery")
        self._per_day(
            GOLD,
            "delivery",
            ("messages",),
            lambda m: figures.delivery(m, figures.latency_histograms(m)),
        )
        for name, make in (
            ("failure_reasons", figures.failure_reasons),
            ("traffic_matrix", figures.traffic_matrix),
            ("duplicates", figures.duplicates),
            ("certificate_usage", figures.certificate_usage),
        ):
            self._progress(f"gold.{name}")
            self._per_day(GOLD, name, ("messages",), make)
        self._progress("gold.reconciliation")
        self._per_day(
            GOLD,
            "reconciliation",
            ("messages",),
            lambda m: reconciliation(m, known),
            also=_digest(self._known_marks()),
            while_open=marked,
        )
        seconds = self._settings.stuck_after_seconds
        self._progress("gold.waiting")
        self._per_day(
            GOLD,
            "waiting",
            ("messages",),
            lambda m: waiting(m, known, seconds),
            also=str(seconds),
            while_open=marked,
        )
        if self._settings.agreements:
            self._progress("gold.sla")
            agreements = self._settings.agreements
            text = _digest(json.dumps(asdict(a)) for a in agreements)

            def judged(m: DataFrame) -> DataFrame:
                found = sla(m, agreements)
                assert found is not None
                return found

            self._per_day(GOLD, "sla", ("messages",), judged, also=text)

    def _capacity(self) -> None:
        if not self._lake.table(SILVER, "broadcasts").pointer().parts:
            return
        self._progress("gold.capacity")
        made = capacity_figures
        self._per_day(GOLD, "capacity_positions", ("allocations",), made.positions)
        self._per_day(GOLD, "capacity_use", ("atc", "allocations"), made.use)
        self._whole(GOLD, "capacity_broadcast_gaps", ("broadcasts",), made.broadcast_gaps)
        holes = sorted({gap.component for gap in gaps(self._ranges())})
        self._whole(
            GOLD,
            "capacity_reconciliation",
            ("broadcasts", "atc", "allocations"),
            lambda b, q, a: made.broadcast_reconciliation(b, q, a, holes),
            also=_digest(holes),
        )

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
        digest = _digest([also, *(path for day in days for path in _paths(pointers, day))])
        table = self._lake.table(layer, name)
        if table.pointer().meta.get("inputs") == digest:
            return
        frame = make(
            *(self._read(given, one.parts) for given, one in zip(sources, pointers, strict=True))
        )
        frame = frame.withColumn("build", F.lit(self.result.build))
        parts = self._made(table.stage(frame))
        table.overwrite(parts, inputs=digest, schema=frame.schema.json())
        self._count(f"{layer}.{name}", parts)

    def audit(self) -> BuildResult:
        """Judge every proof of days that changed, or whose certificates or roots did."""
        certificates = known_certificates(self._lake)
        text = _digest(
            [
                *(c.der.hex() + str(c.revoked_at) for c in certificates),
                *(root.hex() for root in self._settings.roots),
            ]
        )
        judge = judging(certificates, self._settings.roots, self.result.build)

        def judged(evidence: DataFrame) -> DataFrame:
            spread = evidence.repartition(self._parallelism())
            return spread.mapInArrow(judge, AUDIT).drop("build")

        self._progress("gold.proof_audit")
        self._per_day(GOLD, "proof_audit", ("proofs",), judged, also=text)
        return self.result

    def _parallelism(self) -> int:
        return int(self._spark.conf.get("spark.sql.shuffle.partitions") or 4)

    # ------------------------------------------------------------ marks

    def _known_marks(self) -> dict[str, Mark]:
        return marks(self._ranges())

    def _ranges(self) -> list[Range]:
        return bronze.ranges_of(self._lake.table(bronze.LAYER, bronze.TABLE).pointer().parts)

    def _marks(self) -> None:
        """Small tables, written without Spark."""
        stamp = pa.timestamp("us", tz="UTC")
        known = self._known_marks().values()
        rows = pa.Table.from_pylist(
            [{**asdict(m), "build": self.result.build} for m in known],
            schema=pa.schema(
                [
                    ("component", pa.string()),
                    ("sequence", pa.int64()),
                    ("time", stamp),
                    ("instances", pa.int64()),
                    ("missing", pa.int64()),
                    ("build", pa.string()),
                ]
            ),
        )
        holes = pa.Table.from_pylist(
            [
                {
                    "component": g.component,
                    "instance": g.instance,
                    "first": g.first,
                    "last": g.last,
                    "build": self.result.build,
                }
                for g in gaps(self._ranges())
            ],
            schema=pa.schema(
                [
                    ("component", pa.string()),
                    ("instance", pa.string()),
                    ("first", pa.int64()),
                    ("last", pa.int64()),
                    ("build", pa.string()),
                ]
            ),
        )
        for name, content in ((MARKS, rows), (GAPS, holes)):
            table = self._lake.table(GOLD, name)
            table.overwrite(table.stage_arrow(content) if content.num_rows else [])

    def _mark_frame(self) -> DataFrame:
        rows = [
            (m.component, datetime.fromtimestamp(m.time / 1_000_000, UTC))
            for m in self._known_marks().values()
        ]
        return self._spark.createDataFrame(rows, "component string, time timestamp")

    # ------------------------------------------------------------ reading

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


def known_certificates(lake: Lake) -> list[KnownCertificate]:
    """Each certificate once; revoked when any journal says so, from the earliest such time on."""
    rows = lake.table(SILVER, "certificates").read(
        ["owner", "certificate_kind", "certificate_id", "der", "standing", "time"]
    )
    found: dict[bytes, KnownCertificate] = {}
    for row in [] if rows is None else rows.to_pylist():
        revoked = None
        if row["standing"] == "revoked":
            revoked = round(row["time"].timestamp() * 1_000_000)
        old = found.get(row["der"])
        if old is not None and old.revoked_at is not None:
            revoked = old.revoked_at if revoked is None else min(revoked, old.revoked_at)
        found[row["der"]] = KnownCertificate(
            row["owner"], row["certificate_kind"], row["certificate_id"], row["der"], revoked
        )
    return [found[der] for der in sorted(found)]


def _kind_of(name: str) -> str:
    """The kind of journal row that a silver table is made of."""
    kinds = {
        VIEWS: "message",
        "documents": "message",
        "components": "entry",
        "administration": "administration",
        "atc": AtcRow.KIND,
        "allocations": AllocationRow.KIND,
        "broadcasts": BroadcastRow.KIND,
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


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:20]
