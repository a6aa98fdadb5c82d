"""What the pipeline makes of the journals of the demonstration, in a process of its own.

Spark is started only where it and Java are there; without them the demonstration goes without.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gridpost.assembly.journal_export import export_job
from gridpost.assembly.network import NetworkFiles, Placed
from gridpost.core.refusal import Refusal, Rule
from gridpost.demo.processes import environment

LAKE = "lake"
ROWS = 250_000
# Little data on few cores: compiling plans would take longer than running them.
OPTIONS = (
    (
        "spark.driver.extraJavaOptions",
        "-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    ),
    ("spark.sql.codegen.wholeStage", "false"),
    ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
    ("spark.sql.adaptive.enabled", "false"),
    ("spark.log.level", "ERROR"),
)
_SHOWN = ("messages", "received", "failed", "accept_to_deliver_p50_ms", "accept_to_receive_p95_ms")


def what_is_missing() -> str:
    """Empty: the pipeline can run here."""
    for name in ("pyspark", "pyarrow"):
        if find_spec(name) is None:
            return "gridpost[pipeline] is not installed"
    from gridpost.pipeline.session import check_java

    try:
        check_java()
    except Refusal as refusal:
        return refusal.message
    return ""


STEPS = (
    "Spark started",
    "journals exported",
    "segments ingested",
    "tables built",
    "proofs audited",
)


class Figures:
    """Spark is started while documents are still exchanged; `make` reads what they left behind."""

    def __init__(self, files: NetworkFiles) -> None:
        self._files = files
        self._log = files.folder / "log" / "pipeline.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", __name__, str(self._files.folder)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=environment(),
            )

    async def make(self, journals: Iterable[Placed], done: Callable[[str], None]) -> dict[str, Any]:
        """Steps are told as they end; the last line of the process is the result."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        wanted = [str(placed.configuration) for placed in journals]
        with suppress(OSError):
            process.stdin.write(json.dumps(wanted).encode() + b"\n")
            await process.stdin.drain()
        result: dict[str, Any] = {}
        async for line in process.stdout:
            told = json.loads(line)
            result = told.get("result", result)
            if "step" in told:
                done(told["step"])
        if await process.wait() or not result:
            raise self._failure()
        return result

    def _failure(self) -> Refusal:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((text for text in reversed(lines) if text.strip()), "")
        return Refusal(
            Rule.INTERNAL,
            f"the pipeline did not end well: {last}",
            f"log {self._log}, line {len(lines)}",
        )

    async def stop(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            # With the Java that Spark runs in: they are a session of their own.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def _run(folder: Path) -> dict[str, Any]:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    from gridpost.assembly.network import read_network
    from gridpost.pipeline.build import BuildSettings
    from gridpost.pipeline.jobs import Pipeline
    from gridpost.pipeline.key_figures import counted, key_figures
    from gridpost.pipeline.lake import Lake
    from gridpost.pipeline.session import SessionSettings, start, warm_up

    spark = start(SessionSettings("local[2]", "", "1g", 2, options=OPTIONS))
    try:
        files = read_network(folder)
        roots = x509.load_pem_x509_certificates(files.root.read_bytes())
        settings = BuildSettings(roots=tuple(r.public_bytes(Encoding.DER) for r in roots))
        lake = Lake.open(folder / LAKE, create=True)
        pipeline = Pipeline(lake, lambda: spark)
        warm_up(spark)
        _tell(step=STEPS[0])
        journals = [Path(name) for name in json.loads(sys.stdin.readline() or "[]")]
        started = time.monotonic()
        rows = sum(
            export.rows
            for file in journals
            for export in export_job(file, lake.landing, ROWS).once()
        )
        _tell(step=STEPS[1])
        pipeline.ingest()
        _tell(step=STEPS[2])
        pipeline.build(settings)
        _tell(step=STEPS[3])
        audit = pipeline.verify(settings)
        _tell(step=STEPS[4])
    finally:
        spark.stop()
    (totals,) = key_figures(lake)[:1] or [{}]
    return {
        "journals": len(journals),
        "journal_rows": rows,
        **{name: totals.get(name) for name in _SHOWN},
        "reconciliation": counted(lake, "reconciliation", "verdict"),
        "proofs": audit["verdicts"],
        "lake": str(lake.root),
        "seconds": round(time.monotonic() - started, 3),
    }


def _tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    _tell(result=_run(Path(sys.argv[1])))
