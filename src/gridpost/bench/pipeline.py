"""The pipeline beside DuckDB, Polars and plain Python, on the same files, with the same results.

`GRIDPOST_BENCH_EVENTS` is the number of tracking events (default one million; the goal is stated for
ten million), `GRIDPOST_BENCH_RUNS` how often each thing is measured (the median counts).
`GRIDPOST_BENCH_SIZES` are further sizes for the ingest alone, `GRIDPOST_BENCH_CHART` a file for their chart,
`GRIDPOST_BENCH_FOLDER` the disk to measure on.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyarrow import parquet

from gridpost.bench import Measurement, _bulk
from gridpost.bench._documents import document
from gridpost.bench._pipeline_sizes import Sized, chart, measure_sizes
from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline import admit, bronze
from gridpost.pipeline.files import place
from gridpost.pipeline.gold import delivery as figures
from gridpost.pipeline.lake import Lake
from gridpost.pipeline.proofs import AUDIT, Auditor, KnownCertificate, judging
from gridpost.pipeline.schemas import BRONZE
from gridpost.pipeline.session import SessionSettings, start
from gridpost.pipeline.silver import facts
from gridpost.pipeline.silver.market import SPARK_PARSED, parse_document, parse_documents
from gridpost.pipeline.silver.messages import messages, proofs

EVENTS = int(os.environ.get("GRIDPOST_BENCH_EVENTS", "1000000"))
RUNS = int(os.environ.get("GRIDPOST_BENCH_RUNS", "3"))
SIZES = [int(size) for size in os.environ.get("GRIDPOST_BENCH_SIZES", "").split(",") if size]
CHART = os.environ.get("GRIDPOST_BENCH_CHART", "")
FOLDER = os.environ.get("GRIDPOST_BENCH_FOLDER") or None
DOCUMENTS = 3000
PROOFS = 3000
OCTETS_PER_EVENT = 300
"""On the disk, with everything that belongs to an event, landed and in bronze, and the scratch files.

Rows are as wide as real ones in memory (700 octets on average); copies of one market compress better.
"""

_DUCK = """
WITH journal AS (SELECT * FROM read_parquet('{bronze}/*.parquet')),
sent AS (SELECT message.message_id AS id, message.* FROM journal
  WHERE kind = 'message' AND message.side = 'sent'),
came AS (SELECT DISTINCT message.message_id AS id FROM journal
  WHERE kind = 'message' AND message.side = 'received'),
story AS (SELECT tracking.message_id AS id,
  min(time) FILTER (tracking.event = 'ACCEPT') AS accepted_at,
  min(time) FILTER (tracking.event = 'DELIVERY_ACKNOWLEDGED' AND tracking.moved) AS delivered_at,
  arg_max(tracking.state, (time, sequence)) FILTER (tracking.side = 'sent' AND tracking.moved) AS s
  FROM journal WHERE kind = 'tracking' GROUP BY 1)
SELECT date_trunc('hour', accepted_at) AS hour, message_type, route, sender_code, receiver_code,
  count(*) AS messages, count(came.id) AS arrived,
  count(*) FILTER (s = 'DELIVERED') AS delivered, count(*) FILTER (s = 'RECEIVED') AS received,
  count(*) FILTER (s = 'FAILED') AS failed, sum(size)::BIGINT AS octets,
  quantile_disc(epoch_us(delivered_at) - epoch_us(accepted_at), [0.5, 0.95, 0.99]) AS q
FROM sent JOIN story USING (id) LEFT JOIN came USING (id) GROUP BY ALL
"""


def measure() -> Measurement:
    for other in ("duckdb", "polars"):
        if find_spec(other) is None:
            raise Refusal(Rule.USAGE, f"this bench compares with {other}: pip install {other}")
    # The Java process removes its own scratch files at the same time, when it ends.
    with tempfile.TemporaryDirectory(
        prefix="gridpost-pipeline-bench-", dir=FOLDER, ignore_cleanup_errors=True
    ) as name:
        home = Path(name)
        events, said = _size(home, EVENTS)
        sized = measure_sizes(sorted({_size(home, size)[0] for size in SIZES}), home)
        journals = _bulk.block()
        rows, tracked = _bulk.land(journals, place(home / "segments"), events)
        started = time.perf_counter()
        spark = start(SessionSettings("local[*]", driver_memory="4g", scratch=home / "scratch"))
        session_seconds = time.perf_counter() - started
        spark.range(1).count()
        try:
            ingest, lake = _ingest(spark, home, rows)
            kpi, kpi_duck, kpi_polars = _kpi(spark, lake)
            checked, pooled = _verify(spark, home, journals)
            parsed, parsed_python = _market(spark, home)
        finally:
            spark.stop()
    scaled, scaling = _scaling(sized)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Measurement(
        {
            "tracking_events": float(tracked),
            "rows": float(rows),
            "largest_size_for_this_disk": float(said),
            "session_start_s": session_seconds,
            "ingest_rows_per_s": ingest,
            "kpi_s": kpi,
            "kpi_duckdb_s": kpi_duck,
            "count_polars_s": kpi_polars,
            "proofs_per_s": checked,
            "proofs_process_pool_per_s": pooled,
            "market_docs_per_s": parsed,
            "market_docs_plain_python_per_s": parsed_python,
            "python_peak_mib": peak,
            **scaled,
        },
        {
            "kpi_vs_duckdb": kpi / kpi_duck,
            "verify_vs_process_pool": checked / pooled,
            **scaling,
        },
    )


def _size(home: Path, events: int) -> tuple[int, int]:
    """No more than the disk holds; what that is, is part of the result."""
    largest = int(shutil.disk_usage(home).free * 0.5) // OCTETS_PER_EVENT
    if largest < events:
        print(f"the disk holds {largest:,} tracking events, not {events:,}", file=sys.stderr)
    return min(events, largest), largest


def _scaling(sized: list[Sized]) -> tuple[dict[str, float], dict[str, float]]:
    """How the largest size compares with the smallest, and a chart of all of them."""
    found: dict[str, float] = {}
    for one in sized:
        found[f"ingest_rows_per_s_at_{one.tracking_events}"] = one.rows_per_s
        found[f"driver_peak_mib_at_{one.tracking_events}"] = one.driver_peak_mib
    if CHART and sized:
        Path(CHART).write_text(chart(sized), encoding="utf-8")
    if len(sized) < 2:
        return found, {}
    first, last = sized[0], sized[-1]
    return found, {
        "rows_per_s_largest_vs_smallest": last.rows_per_s / first.rows_per_s,
        "driver_memory_largest_vs_smallest": last.driver_peak_mib / first.driver_peak_mib,
    }


def _median(work: Callable[[], Any]) -> float:
    """Seconds, once warm."""
    work()
    return _timed(work)


def _timed(work: Callable[[], Any]) -> float:
    found = []
    for _ in range(RUNS):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def _ingest(spark: Any, home: Path, rows: int) -> tuple[float, Lake]:
    """Admission and bronze, into a new lake each time; the last one is kept."""
    seconds = []
    lake: Lake | None = None
    for number in range(RUNS + 1):
        if lake is not None:
            # The stream may still be purging its checkpoint.
            shutil.rmtree(lake.root, ignore_errors=True)
        lake = Lake.open(home / f"lake{number}", create=True)
        lake.landing.rmtree()
        shutil.copytree(home / "segments", lake.landing, copy_function=os.link)
        started = time.perf_counter()
        admit.admit(lake, (lake.landing,), datetime.now(UTC))
        done = sum(batch.rows_out for batch in bronze.ingest(spark, lake, max_files=64))
        seconds.append(time.perf_counter() - started)
        if done != rows:
            raise Refusal(Rule.INTERNAL, f"{done} of {rows} rows came into bronze")
    assert lake is not None
    return rows / statistics.median(seconds[1:]), lake


def _kpi(spark: Any, lake: Lake) -> tuple[float, float, float]:
    import duckdb
    import polars

    table = lake.table(bronze.LAYER, bronze.TABLE)
    parts = table.pointer().parts
    gathered = (lake.root / "kpi").mkdir()
    for file in table.files(parts):
        os.link(file, gathered / file.name)

    def ours() -> list[Any]:
        source = spark.read.schema(BRONZE).parquet(str(gathered))
        views = facts.message_views(source)
        days = views.select("component", "instance", "side", "message_id", "day")
        found = messages(
            views,
            facts.placed(facts.tracking_events(source), days),
            facts.placed(facts.acknowledgements(source), days),
        )
        rows: list[Any] = figures.delivery(found, figures.latency_histograms(found)).collect()
        return rows

    def theirs() -> list[Any]:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            # It goes to standard output, which belongs to the result.
            connection.execute("SET enable_progress_bar = false")
            return connection.execute(_DUCK.format(bronze=gathered)).fetchall()

    def counted() -> Any:
        frame = polars.scan_parquet(f"{gathered}/*.parquet")
        return frame.filter(polars.col("kind") == "tracking").select(polars.len()).collect()

    names = (
        "hour",
        "message_type",
        "route",
        "sender_code",
        "receiver_code",
        "sent",
        "arrived",
        "delivered",
        "received",
        "failed",
        "octets",
    )
    one = sorted(tuple(row[name] for name in names) for row in ours())
    other = sorted(
        (row[0].replace(tzinfo=None), *row[1:11]) if row[0].tzinfo else row[:11] for row in theirs()
    )
    if [(r[0].replace(tzinfo=None), *r[1:]) for r in one] != other:
        raise Refusal(Rule.INTERNAL, "Spark and DuckDB disagree on the key figures")
    return _timed(ours), _median(theirs), _median(counted)


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


def _judge(task: tuple[str, int]) -> int:
    assert _auditor is not None
    file, group = task
    table = parquet.ParquetFile(file).read_row_group(group)
    return sum(batch.num_rows for batch in _auditor(iter(table.to_batches())))


@contextmanager
def _pool(certificates: list[KnownCertificate], roots: tuple[bytes, ...]) -> Iterator[Any]:
    with multiprocessing.get_context("spawn").Pool(2, _prepare, (certificates, roots)) as pool:
        yield pool


def _verify(spark: Any, home: Path, journals: Any) -> tuple[float, float]:
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
            for at in range(0, rows.num_rows, 250):
                out.write_table(rows.slice(at, 250), row_group_size=250)
    total = parquet.read_metadata(file).num_rows
    groups = [(str(file), number) for number in range(parquet.read_metadata(file).num_row_groups)]
    certificates, roots = _certificates(journals), journals.roots
    judge = judging(certificates, roots, "")

    def ours() -> Any:
        frame = spark.read.parquet(str(file)).repartition(2)
        return frame.mapInArrow(judge, AUDIT).groupBy("verdict").count().collect()

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "250")
    seconds = _median(ours)
    with _pool(certificates, roots) as pool:
        pooled = _median(lambda: pool.map(_judge, groups, chunksize=1))
    return total / seconds, total / pooled


def _market(spark: Any, home: Path) -> tuple[float, float]:
    start_ = datetime(2026, 3, 28, 23, tzinfo=UTC)
    # 96 quarters of an hour: about 12 kB.
    contents = [
        document(start_ + timedelta(days=n % 300), 24, resolution="PT15M", mrid=f"D{n}", seed=n)
        for n in range(200)
    ]
    rows = [(f"m{n}", start_, contents[n % len(contents)]) for n in range(DOCUMENTS)]
    file = str(home / "documents.parquet")
    spark.createDataFrame(
        rows, "message_id string, known_at timestamp, content binary"
    ).repartition(4).write.parquet(file)
    parse = parse_documents()

    def ours() -> int:
        frame = spark.read.parquet(file).mapInArrow(parse, SPARK_PARSED)
        points = frame.selectExpr("sum(points)").collect()[0][0]
        if points != 96 * DOCUMENTS:
            raise Refusal(Rule.INTERNAL, f"{points} points were found")
        return int(points)

    def plain() -> None:
        for message_id, at, content in rows[:500]:
            parse_document(content, message_id, at)

    return DOCUMENTS / _median(ours), 500 / _median(plain)
