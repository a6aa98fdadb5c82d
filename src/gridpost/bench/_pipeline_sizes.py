"""Ingest at several sizes, each in a process of its own, so that each has its own peak of memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from gridpost.bench import _bulk
from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline import admit, bronze
from gridpost.pipeline.lake import Lake
from gridpost.pipeline.session import SessionSettings, start

WARM_EVENTS = 50_000


@dataclass(frozen=True, slots=True)
class Sized:
    tracking_events: int
    rows: int
    seconds: float
    driver_peak_mib: float

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds


def measure_sizes(sizes: Iterable[int], home: Path) -> list[Sized]:
    found = []
    for events in sorted(sizes):
        run = subprocess.run(
            [sys.executable, "-m", __name__, str(events), str(home)],
            stdout=subprocess.PIPE,
            check=False,
        )
        if run.returncode:
            raise Refusal(Rule.INTERNAL, f"the ingest of {events:,} tracking events failed")
        found.append(Sized(**json.loads(run.stdout)))
    return found


def ingest_once(events: int, home: Path) -> Sized:
    """A small lake to get warm, then the one that counts."""
    journals = _bulk.block()
    with tempfile.TemporaryDirectory(dir=home, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        spark = start(SessionSettings("local[*]", driver_memory="4g", scratch=folder / "scratch"))
        try:
            for number, size in enumerate((WARM_EVENTS, events)):
                lake = Lake.open(folder / f"lake{number}", create=True)
                rows, tracked = _bulk.land(journals, lake.landing, size)
                started = time.perf_counter()
                admit.admit(lake, (lake.landing,), datetime.now(UTC))
                done = sum(batch.rows_out for batch in bronze.ingest(spark, lake))
                seconds = time.perf_counter() - started
                if done != rows:
                    raise Refusal(Rule.INTERNAL, f"{done} of {rows} rows came into bronze")
            return Sized(tracked, rows, seconds, driver_peak_mib())
        finally:
            spark.stop()


def driver_peak_mib() -> float:
    """The largest resident size that a Java process of ours has had."""
    peaks = [0.0]
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text(encoding="ascii").split():
            try:
                status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
            except OSError:
                continue
            values = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            if values.get("Name") == "java":
                peaks.append(int(values["VmHWM"].split()[0]) / 1024)
    return max(peaks)


def chart(found: Sequence[Sized]) -> str:
    """Rows per second and memory of the driver over the size, as one SVG picture."""
    width, height, foot = 640, 300, 40
    shapes = []
    measures = (
        ("rows/s", "#0f766e", [s.rows_per_s for s in found]),
        ("driver peak MiB", "#c9a227", [s.driver_peak_mib for s in found]),
    )
    slot = width / len(found)
    for place, (name, colour, values) in enumerate(measures):
        highest = max(values) or 1
        for number, value in enumerate(values):
            size = value / highest * (height - foot - 30)
            left = number * slot + slot * (0.15 + 0.35 * place)
            top = height - foot - size
            shapes.append(
                f'<rect x="{left:.0f}" y="{top:.0f}" width="{slot * 0.3:.0f}" '
                f'height="{size:.0f}" fill="{colour}"/><text x="{left:.0f}" y="{top - 4:.0f}">'
                f"{escape(f'{value:,.0f} {name}')}</text>"
            )
    for number, one in enumerate(found):
        shapes.append(
            f'<text x="{number * slot + slot * 0.15:.0f}" y="{height - 15}">'
            f"{one.tracking_events:,} tracking events</text>"
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="11">{"".join(shapes)}</svg>\n'
    )


if __name__ == "__main__":
    print(json.dumps(asdict(ingest_once(int(sys.argv[1]), Path(sys.argv[2])))))
