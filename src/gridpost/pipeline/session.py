"""The Spark session: where it runs, with which settings, and what is missing when it cannot start."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from gridpost.core.refusal import Refusal, Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAVA, SPARK = 17, "4.2"

# What the tables depend on, wherever Spark runs.
SQL = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
}
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    # Many pieces of a large shuffle fit into memory; few rows are put together again.
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "32",
    # Shuffled rows are compressed: of the usual 64 MiB three tasks kept one of two cores waiting.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
    # Pieces small enough to keep all cores busy until the end of a batch.
    "spark.sql.files.maxPartitionBytes": "32m",
    "spark.sql.files.openCostInBytes": "1m",
    # Names of some hundred segments are looked up faster than as many tasks are started for them.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    # Nothing of a session outlives it beside the lake.
    "spark.sql.catalogImplementation": "in-memory",
}


DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
JARS = "GRIDPOST_DELTA_JARS"


@dataclass(frozen=True, slots=True)
class SessionSettings:
    master: str = "local[*]"
    remote: str = ""
    """Spark Connect: sc://host:port. Then the server decides on memory and cores."""
    driver_memory: str = "2g"
    shuffle_partitions: int = 0
    """0: twice the cores of this machine."""
    scratch: Path | None = None
    delta: bool = False
    """Let the session read Delta Lake, where its jars are; Gridpost's own tables do without."""
    options: tuple[tuple[str, str], ...] = ()
    """Further Spark settings; they win over ours."""


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Spark puts its handler for Ctrl-C in the place of any other: whoever has one means it."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if callable(before) and before is not signal.default_int_handler:
        signal.signal(signal.SIGINT, before)


def start(settings: SessionSettings) -> SparkSession:
    check_spark()
    if not settings.remote:
        check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Python workers need this package, also where it runs from its source tree.
    source = str(Path(__file__).resolve().parents[2])
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if source not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, source])
    # Spark binds to the machine's name otherwise, which may not resolve where there is no network.
    if settings.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    partitions = settings.shuffle_partitions or 2 * (os.cpu_count() or 2)
    builder = SparkSession.builder.appName("gridpost")
    try:
        if settings.remote:
            session = builder.remote(settings.remote).getOrCreate()
        else:
            builder = builder.master(settings.master)
            builder = builder.config("spark.driver.memory", settings.driver_memory)
            if settings.scratch is not None:
                builder = builder.config("spark.local.dir", str(settings.scratch))
            jars = delta_jars() if settings.delta else []
            delta = {"spark.jars": ",".join(map(str, jars)), **DELTA} if jars else {}
            for name, value in {**LOCAL, **SQL, **delta, **dict(settings.options)}.items():
                builder = builder.config(name, value)
            with _own_interrupt():
                session = builder.getOrCreate()
    except Exception as error:
        where = settings.remote or settings.master
        raise Refusal(
            Rule.USAGE, f"no Spark session on {where}", str(error).partition("\n")[0][:300]
        ) from None
    for name, value in SQL.items():
        session.conf.set(name, value)
    session.conf.set("spark.sql.shuffle.partitions", str(partitions))
    return session


def warm_up(spark: SparkSession) -> None:
    """What Spark and its Python workers load at their first use, while there is time for it."""
    from pyspark.sql import functions as F

    with TemporaryDirectory(prefix="gridpost-spark-") as folder:
        rows, checkpoint = str(Path(folder) / "rows"), str(Path(folder) / "checkpoint")
        made = spark.range(4).withColumn("day", F.date_add(F.lit("2026-01-01").cast("date"), 1))
        made.repartition(2).write.partitionBy("day").parquet(rows)
        stream = spark.readStream.schema(made.schema).parquet(rows).writeStream
        stream.foreachBatch(_counted).trigger(availableNow=True).option(
            "checkpointLocation", checkpoint
        ).start().awaitTermination()
        read = spark.read.parquet(rows)
        days = read.groupBy("day").agg(F.max("id").alias("last"), F.count("*").alias("count"))
        joined = read.join(days, on="day", how="inner").select("id").repartition(2)
        joined.mapInArrow(_same, "id long").collect()


def _counted(batch: DataFrame, number: int) -> None:
    batch.count()


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    """In a Python worker, which is used again: what judging proofs needs is there by then."""
    import gridpost.pipeline.proofs  # noqa: F401

    yield from batches


def delta_jars() -> list[Path]:
    """What `make setup` has fetched beside this Python, or a folder that somebody else filled."""
    named = os.environ.get(JARS)
    folder = Path(named) if named else Path(sys.prefix) / "share" / "gridpost" / "delta"
    found = sorted(folder.glob("*.jar"))
    return found if any(jar.name.startswith("delta-spark_") for jar in found) else []


def check_spark() -> None:
    """Before anything is imported that needs it."""
    if find_spec("pyspark") is None:
        raise Refusal(Rule.USAGE, "Spark is not installed: pip install 'gridpost[pipeline]'")
    with suppress(PackageNotFoundError):
        found = version("pyspark")
        if not found.startswith(f"{SPARK}."):
            raise Refusal(
                Rule.USAGE,
                f"Spark {found} is installed, {SPARK} is needed: pip install 'gridpost[pipeline]'",
            )


def check_java() -> None:
    """One clear line instead of a stack of a gateway that died."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        raise Refusal(Rule.USAGE, f"no Java found: install Java {JAVA} or newer, or set JAVA_HOME")
    run = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    if match is None or int(match[1]) < JAVA:
        found = match[1] if match else "of an unknown version"
        raise Refusal(Rule.USAGE, f"Java {found} is too old for Spark: install {JAVA} or newer")
