"""pytest plugin for tests whose size is a number: kills, messages, rows.

A test asks the `soak` fixture for its size, `soak.scale(500)`, and gets that number times
GRIDPOST_SCALE: 0.1 in `make test`, 1 in `make soak`. What it counted it hands to `soak.report`;
`--soak-report=FILE` collects the reports of a run as JSON, from which docs/soak.md is made.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

DEFAULT_SCALE = 0.1

RUN = pytest.StashKey["SoakRun"]()
RECORD = pytest.StashKey["Record"]()


@dataclass(slots=True)
class Record:
    """What one test did at this scale."""

    test: str
    outcome: str = "not finished"
    seconds: float = 0.0
    counts: dict[str, int | float | str] = field(default_factory=dict)


@dataclass(slots=True)
class SoakRun:
    """One run: everything needed to do it again."""

    scale: float
    seed: int
    records: list[Record] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Soak:
    """What a test sees of the run."""

    run: SoakRun
    record: Record

    @property
    def seed(self) -> int:
        """Everything random in a soak test starts from here; GRIDPOST_SEED repeats a run."""
        return self.run.seed

    def scale(self, full: int) -> int:
        """How many, where a full soak takes `full`; at least one."""
        return max(1, round(full * self.run.scale))

    def report(self, **counts: int | float | str) -> None:
        """Numbers for docs/soak.md. May be called more than once; the last value counts."""
        self.record.counts.update(counts)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("soak").addoption(
        "--soak-report", metavar="FILE", help="write what soak tests report to FILE as JSON"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "soak: size follows GRIDPOST_SCALE; run in full by make soak"
    )
    try:
        scale = float(os.environ.get("GRIDPOST_SCALE") or DEFAULT_SCALE)
        seed = int(os.environ.get("GRIDPOST_SEED") or _given(config) or secrets.randbits(31))
    except ValueError as error:
        raise pytest.UsageError(f"GRIDPOST_SCALE and GRIDPOST_SEED are numbers: {error}") from error
    if not 0 < scale <= 100:
        raise pytest.UsageError(f"GRIDPOST_SCALE={scale} is not above 0 and up to 100")
    if config.getoption("soak_report") and config.getoption("numprocesses", None):
        raise pytest.UsageError("a soak is one process: leave -n out")
    config.stash[RUN] = SoakRun(scale, seed)


def _given(config: pytest.Config) -> int | None:
    """What the process that spreads the tests has drawn."""
    found: int | None = getattr(config, "workerinput", {}).get("seed")
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["seed"] = node.config.stash[RUN].seed


def pytest_report_header(config: pytest.Config) -> str:
    run = config.stash[RUN]
    return f"gridpost: scale {run.scale:g} (GRIDPOST_SCALE), seed {run.seed} (GRIDPOST_SEED)"


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_itemcollected(item: pytest.Item) -> None:
    if "soak" in getattr(item, "fixturenames", ()):
        item.add_marker("soak")


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> Soak:
    """Scale, seed and report of this run."""
    run = request.config.stash[RUN]
    record = Record(request.node.nodeid)
    run.records.append(record)
    request.node.stash[RECORD] = record
    return Soak(run, record)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    record = item.stash.get(RECORD, None)
    if record is not None:
        record.seconds += report.duration
        # The first phase that does not pass decides; passing is only known from the call.
        if record.outcome in ("not finished", "passed") and (
            report.when == "call" or not report.passed
        ):
            record.outcome = report.outcome
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = session.config.getoption("soak_report")
    if target:
        run = session.config.stash[RUN]
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).write_text(json.dumps(asdict(run), indent=2) + "\n", encoding="utf-8")
