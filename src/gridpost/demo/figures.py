"""What the pipeline makes of the journals of the demonstration, in a process of its own.

Spark is started only where it and Java are there; without them the demonstration goes without.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gridpost.assembly.journal_export import export_job
from gridpost.assembly.network import NetworkFiles
from gridpost.core.refusal import Refusal
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


async def make_figures(files: NetworkFiles, done: Callable[[str], None]) -> dict[str, Any]:
    """Steps are told as they end; the last line of the process is the result."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", __name__, str(files.folder)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        said = asyncio.create_task(process.stderr.read())
        result: dict[str, Any] = {}
        async for line in process.stdout:
            told = json.loads(line)
            result = told.get("result", result)
            if "step" in told:
                done(told["step"])
        errors = await said
        if await process.wait() or not result:
            log = files.folder / "log" / "pipeline.log"
            log.write_bytes(errors)
            return {"problem": f"the pipeline did not end well, see {log}"}
        return result
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


STEPS = ("journals exported", "segments ingested", "tables built", "proofs audited")


def _run(folder: Path) -> dict[str, Any]:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    from gridpost.assembly.network import read_network
    from gridpost.pipeline.build import BuildSettings
    from gridpost.pipeline.jobs import Pipeline
    from gridpost.pipeline.key_figures import counted, key_figures
    from gridpost.pipeline.lake import Lake
    from gridpost.pipeline.session import SessionSettings, start

    started = time.monotonic()
    files = read_network(folder)
    lake = Lake.open(folder / LAKE, create=True)
    rows = sum(
        export.rows
        for placed in files.components
        for export in export_job(placed.configuration, lake.landing, ROWS).once()
    )
    _tell(step=STEPS[0])
    roots = x509.load_pem_x509_certificates(files.root.read_bytes())
    settings = BuildSettings(roots=tuple(r.public_bytes(Encoding.DER) for r in roots))
    spark = start(SessionSettings("local[2]", "", "1g", 2, options=OPTIONS))
    try:
        pipeline = Pipeline(lake, lambda: spark)
        pipeline.ingest()
        _tell(step=STEPS[1])
        pipeline.build(settings)
        _tell(step=STEPS[2])
        audit = pipeline.verify(settings)
        _tell(step=STEPS[3])
    finally:
        spark.stop()
    (totals,) = key_figures(lake)[:1] or [{}]
    return {
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
