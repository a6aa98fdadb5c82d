"""Work on single rows: proofs verified and market documents parsed, by Spark and by plain Python."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from gridpost.bench._documents import document
from gridpost.bench._timing import median
from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline import admit, bronze
from gridpost.pipeline.file_rows import worked
from gridpost.pipeline.files import place
from gridpost.pipeline.lake import Lake
from gridpost.pipeline.proofs import AUDIT, EVIDENCE, Auditor, KnownCertificate, judging
from gridpost.pipeline.silver import facts
from gridpost.pipeline.silver.market import SPARK_PARSED, parse_document, parse_documents
from gridpost.pipeline.silver.messages import proofs

EVENTS = int(os.environ.get("GRIDPOST_BENCH_EVENTS", "1000000"))
# With the size of the run: what starting a task costs must not be what is measured.
DOCUMENTS = max(12_000, EVENTS // 500)
PROOFS = max(30_000, EVENTS // 200)
_DIFFERENT = 200
_SAMPLE = 500
_GROUP = 2_000
"""Proofs that a process of the pool is given at once: as many as a batch of Spark has."""


def _certificates(journals: Any) -> list[KnownCertificate]:
    found = {}
    for rows in journals.rows.values():
        for row in rows:
            if row.KIND == "certificate":
                found[row.der] = KnownCertificate(
                    row.owner, row.certificate_kind, row.certificate_id, row.der
                )
    return list(found.values())


_auditor: Auditor | None = None


def _prepare(certificates: list[KnownCertificate], roots: tuple[bytes, ...]) -> None:
    global _auditor
    _auditor = Auditor(certificates, roots)


def _judge(task: tuple[str, int]) -> Counter[str]:
    assert _auditor is not None
    file, group = task
    table = parquet.ParquetFile(file).read_row_group(group, columns=EVIDENCE.names)
    found: Counter[str] = Counter()
    for batch in _auditor(iter(table.to_batches())):
        found.update(batch["verdict"].to_pylist())
    return found


@contextmanager
def _pool(certificates: list[KnownCertificate], roots: tuple[bytes, ...]) -> Iterator[Any]:
    with multiprocessing.get_context("spawn").Pool(2, _prepare, (certificates, roots)) as pool:
        yield pool


def verify(spark: Any, home: Path, journals: Any) -> tuple[float, float]:
    """Both read the same file and do the same work on every row."""
    lake = Lake.open(home / "proofs", create=True)
    journals.land(lake.landing, segment_rows=100_000)
    admit.admit(lake, (lake.landing,), datetime.now(UTC))
    bronze.ingest(spark, lake)
    source = bronze.read_bronze(spark, lake, lake.table("bronze", "journal").pointer().parts)
    views = facts.message_views(source)
    words = facts.placed(facts.acknowledgements(source), views)
    rows = proofs(views, words).drop("build").toArrow()
    copies = max(1, PROOFS // rows.num_rows)
    file = home / "proofs.parquet"
    with parquet.ParquetWriter(file, rows.schema) as out:
        for _ in range(copies):
            for at in range(0, rows.num_rows, _GROUP):
                out.write_table(rows.slice(at, _GROUP), row_group_size=_GROUP)
    total = parquet.read_metadata(file).num_rows
    groups = [(str(file), number) for number in range(parquet.read_metadata(file).num_row_groups)]
    certificates, roots = _certificates(journals), journals.roots
    judge = judging(certificates, roots)

    def ours() -> Counter[str]:
        frame = worked(spark, [place(file)], EVIDENCE, judge, AUDIT)
        rows = frame.groupBy("verdict").count().collect()
        return Counter({row["verdict"]: row["count"] for row in rows})

    with _pool(certificates, roots) as pool:

        def theirs() -> Counter[str]:
            return sum(pool.map(_judge, groups, chunksize=1), Counter[str]())

        if ours() != theirs():
            raise Refusal(Rule.INTERNAL, "Spark and the pool disagree on the proofs")
        pooled = median(theirs)
    return total / median(ours), total / pooled


def market(spark: Any, home: Path) -> tuple[float, float]:
    start = datetime(2026, 3, 28, 23, tzinfo=UTC)
    # 96 quarters of an hour: about 12 kB.
    contents = [
        document(start + timedelta(days=n % 300), 24, resolution="PT15M", mrid=f"D{n}", seed=n)
        for n in range(_DIFFERENT)
    ]
    folder = home / "documents"
    folder.mkdir()
    for part in range(8):
        numbers = range(part, DOCUMENTS, 8)
        rows = pa.table(
            {
                "day": [(start + timedelta(days=n % 300)).date() for n in numbers],
                "component": ["E1"] * len(numbers),
                "instance": ["bench"] * len(numbers),
                "sequence": pa.array(numbers, pa.int64()),
                "segment": ["segment"] * len(numbers),
                "message_id": [f"m{n}" for n in numbers],
                "known_at": pa.array([start] * len(numbers), pa.timestamp("us", tz="UTC")),
                "content": [contents[n % _DIFFERENT] for n in numbers],
            }
        )
        parquet.write_table(rows, folder / f"part-{part}.parquet")
    parse = parse_documents()

    def ours() -> tuple[int, Decimal]:
        frame = spark.read.parquet(str(folder)).mapInArrow(parse, SPARK_PARSED)
        # As `market_points` takes them out: a lambda of Spark SQL is interpreted for each point, and the
        # check would be a good part of what is measured.
        points = frame.selectExpr("explode(values.quantity) AS quantity")
        row = points.selectExpr("count(*)", "sum(quantity)").collect()[0]
        return int(row[0]), row[1]

    def plain(count: int = _SAMPLE) -> list[tuple[int, Decimal]]:
        found = []
        for n in range(count):
            row = parse_document(contents[n % _DIFFERENT], f"m{n}", start)
            found.append((row["points"], sum(v["quantity"] for v in row["values"])))
        return found

    each = plain(_DIFFERENT)
    points = sum(each[n % _DIFFERENT][0] for n in range(DOCUMENTS))
    quantity = sum((each[n % _DIFFERENT][1] for n in range(DOCUMENTS)), Decimal(0))
    if ours() != (points, quantity):
        raise Refusal(Rule.INTERNAL, "Spark and plain Python disagree on the market documents")
    return DOCUMENTS / median(ours), _SAMPLE / median(plain)
