"""One Spark session for all tests of the pipeline, and one lake that most of them look at."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gridpost.bench._documents import document
from gridpost.bench._journals import Journals, generate
from gridpost.core.journal import MessageRow
from gridpost.pipeline.build import BuildSettings
from gridpost.pipeline.files import Place
from gridpost.pipeline.gold.sla import Agreement
from gridpost.pipeline.jobs import Pipeline
from gridpost.pipeline.lake import Lake
from gridpost.pipeline.session import SessionSettings, start

from .bus_journal import AGREED, BUS, envelope_rows
from .capacity_ledger import CMM, capacity_rows
from .places import mounting

# Small data on few cores: compiling plans would take longer than running them.
QUICK = (
    (
        "spark.driver.extraJavaOptions",
        "-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    ),
    ("spark.sql.codegen.wholeStage", "false"),
    ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
    ("spark.sql.adaptive.enabled", "false"),
    ("spark.databricks.delta.snapshotPartitions", "2"),
    ("spark.log.level", "ERROR"),
)
AGREEMENTS = (
    Agreement("prices", 95.0, 2.0, message_type="A44*"),
    Agreement("everything", 50.0, 0.5, measure="accept_to_receive"),
)


@pytest.fixture(scope="session")
def far(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Spark reads as another file system (see `places`)."""
    return tmp_path_factory.mktemp("far")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, far: Path) -> Iterator[SparkSession]:
    settings = SessionSettings(
        "local[2]",
        driver_memory="2g",
        shuffle_partitions=2,
        scratch=tmp_path_factory.mktemp("spark"),
        delta=True,
        options=(*QUICK, *mounting(far)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = start(settings)
        yield session
        session.stop()


@pytest.fixture(autouse=True)
def _quiet_libraries() -> Iterator[None]:
    """Spark's own Python code warns of itself; what we do is still held to our own rule."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ResourceWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        yield


def pipeline_at(root: Path | Place, spark: SparkSession, format: str = "") -> Pipeline:
    return Pipeline(Lake.open(root, create=True, format=format), lambda: spark)


SPRING = datetime(2026, 3, 28, 23, tzinfo=UTC)
"""The local day of 29 March has 23 hours."""


class Documents:
    """The first six messages hold market documents: revisions of two, one cancelled, one none."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, draw, type_: str, at: datetime) -> bytes | None:
        self.number += 1
        if self.number > 6:
            return None
        if self.number == 4:
            return b"<Nothing/>"
        return document(
            start=SPRING,
            hours=23,
            mrid=f"D{self.number % 2}",
            revision=str(self.number),
            status="A09" if self.number == 5 else None,
        )


def exchange_a_document(journals: Journals) -> None:
    """One journal holds another document than the one that its endpoint signed."""
    for rows in journals.rows.values():
        for number, row in enumerate(rows):
            if isinstance(row, MessageRow) and row.content == b"<Nothing/>":
                rows[number] = replace(row, content=b"<Nothing />")
                answer = journals.answers[row.message_id]
                journals.answers[row.message_id] = replace(answer, proof="not proven")


@dataclass(slots=True)
class World:
    """A lake that was fed in two rounds, the second with what had been late."""

    pipeline: Pipeline
    journals: Journals
    settings: BuildSettings
    first_gaps: int
    first_verdicts: dict[str, int]
    rounds: list[dict]
    audit: dict

    @property
    def lake(self) -> Lake:
        return self.pipeline.lake


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> World:
    from gridpost.pipeline.key_figures import counted

    journals = generate(11, 150, days=3, documents=Documents())
    exchange_a_document(journals)
    journals.rows[CMM] = capacity_rows()
    journals.rows[BUS] = envelope_rows()
    settings = BuildSettings(AGREEMENTS, journals.roots, responses=AGREED)
    pipeline = pipeline_at(tmp_path_factory.mktemp("lake") / "lake", spark)
    landing = pipeline.lake.landing

    def late(name) -> bool:
        return name.component == "E2" and name.first == 101

    journals.land(landing, segment_rows=100, wanted=lambda name: not late(name))
    rounds = [pipeline.ingest()]
    pipeline.build(settings)
    gaps = pipeline.lake.table("gold", "gaps").pointer().rows
    verdicts = counted(pipeline.lake, "reconciliation", "verdict")
    journals.land(landing, segment_rows=100, wanted=late)
    # The same rows again, cut otherwise.
    journals.land(landing, segment_rows=130, wanted=lambda name: name.component == "E3")
    rounds.append(pipeline.ingest())
    pipeline.build(settings)
    audit = pipeline.verify(settings)
    return World(pipeline, journals, settings, gaps, verdicts, rounds, audit)
