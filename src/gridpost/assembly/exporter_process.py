"""The exporter beside a component: a process of its own at low priority, started and stopped with it.

It ends with the component, however that ends: its standard input is a pipe that the component holds.
When it ends by itself it is started again, later each time. What a component commits does not depend
on it: what was not exported yet is exported by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry, Gauge

from gridpost.assembly.journal_configuration import ExportSection, landing_of
from gridpost.stores.process_time import cpu_seconds

log = structlog.get_logger(__name__)

COMMAND = "from gridpost.cli import main; main()"
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
STOP_SECONDS = 30.0
_SAMPLE_SECONDS = 5.0


@asynccontextmanager
async def exporting(
    section: ExportSection, file: Path | None, registry: CollectorRegistry
) -> AsyncIterator[None]:
    """Until the block ends. A component that was not started from a `file` has no exporter."""
    if not section.landing or file is None:
        yield
        return
    exporter = ExporterProcess(section, file, registry)
    task = asyncio.create_task(exporter.run())
    try:
        yield
    finally:
        await exporter.stop()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def next_pause(last: float, lasted: float) -> float:
    """Longer each time, unless it worked for a while in between."""
    if not last or lasted > LONGEST_PAUSE:
        return FIRST_PAUSE
    return min(2 * last, LONGEST_PAUSE)


class ExporterProcess:
    def __init__(self, section: ExportSection, file: Path, registry: CollectorRegistry) -> None:
        landing = landing_of(file, section.landing)
        self._command = (
            *(sys.executable, "-c", COMMAND, "journal", "export"),
            *("--config", str(file), "--landing", landing, "--follow", "--until-input-ends"),
            *("--interval", str(section.export_every.total_seconds())),
            *("--rows", str(section.export_rows), "--json"),
        )
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._starts = 0
        self._before = 0.0
        """CPU seconds of those that have ended."""
        self._used = 0.0
        """And of the one that runs, when it was last looked at."""
        self._own = time.process_time()
        self._tell(registry)

    def _tell(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"gridpost_journal_exporter_{name}", text, registry=registry)

        gauge("running", "Whether the exporter of the journal runs.").set_function(
            lambda: float(self._running is not None)
        )
        gauge("starts", "How often it was started.").set_function(lambda: float(self._starts))
        gauge("cpu_seconds", "Processor time of the exporter.").set_function(self.cpu_seconds)
        gauge(
            "cpu_share", "Processor time of the exporter for each second of the component."
        ).set_function(self.cpu_share)

    @property
    def _running(self) -> asyncio.subprocess.Process | None:
        process = self._process
        return process if process is not None and process.returncode is None else None

    def cpu_seconds(self) -> float:
        process = self._running
        if process is not None:
            self._used = max(self._used, cpu_seconds(process.pid) or 0.0)
        return self._before + self._used

    def cpu_share(self) -> float:
        return self.cpu_seconds() / max(time.process_time() - self._own, 0.01)

    async def run(self) -> None:
        """Until it is told to stop."""
        pause = 0.0
        while not self._stopping:
            started = time.monotonic()
            code, said = await self._once()
            if self._stopping:
                return
            pause = next_pause(pause, time.monotonic() - started)
            log.warning("journal exporter ended", code=code, reason=said, again_in_seconds=pause)
            await asyncio.sleep(pause)

    async def _once(self) -> tuple[int, str]:
        """How it ended, and the last thing that it said."""
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C is for the component, which then stops the exporter itself.
            start_new_session=True,
            # numpy, which pyarrow loads, would start a thread for each core, all of them busy for a while.
            env={"OPENBLAS_NUM_THREADS": "1", **os.environ},
        )
        self._starts += 1
        log.info("journal exporter started", pid=process.pid)
        sampling = asyncio.create_task(self._sample())
        said = ""
        try:
            assert process.stderr is not None
            async for line in process.stderr:
                said = line.decode("utf-8", "replace").strip() or said
            code = await process.wait()
        finally:
            sampling.cancel()
            self._before, self._used = self._before + self._used, 0.0
        return code, said

    async def _sample(self) -> None:
        """A process that has ended tells nothing any more."""
        while True:
            await asyncio.sleep(_SAMPLE_SECONDS)
            self.cpu_seconds()

    async def stop(self) -> None:
        """It exports what is left, unless that takes long."""
        self._stopping = True
        process = self._running
        if process is None:
            return
        self.cpu_seconds()
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
