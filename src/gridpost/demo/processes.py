"""Component processes of the demonstration: started, watched, stopped; each with a log file.

When something ends too early or never gets ready, the refusal says which component, which log and
which line.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gridpost.assembly.network import NetworkFiles, Placed
from gridpost.core.refusal import Refusal, Rule

# What each component says in its log when it can be used.
READY = MappingProxyType({"capacity": "active", "bus": "serving"})
LISTENING = "listening"
READY_SECONDS, STOP_SECONDS = 180.0, 20.0
_AT_ONCE = 65_536
_ORDINARY = b'"level": "info"'
COMMAND = "from gridpost.cli import main; main()"


class ComponentProcess:
    def __init__(
        self, placed: Placed, log: Path, more: Mapping[str, str] | None = None, start: str = COMMAND
    ) -> None:
        self.placed = placed
        self._more = more or {}
        self._start = start
        self.log = log
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._lines = 0
        self._complaint: tuple[int, str] | None = None
        self._stopping = False
        self.ended = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Until the component listens."""
        self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            self._start,
            self.placed.command,
            "run",
            "--config",
            str(self.placed.configuration),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            # Ctrl-C is for the demonstration, which then stops its components in order.
            start_new_session=True,
            env=environment() | dict(self._more),
        )
        self._reader = asyncio.create_task(self._copy_log(self._process))
        waits = [asyncio.create_task(e.wait()) for e in (self._ready, self.ended)]
        await asyncio.wait(waits, timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if not self._ready.is_set() or self.ended.is_set():
            raise self.failure("did not start")

    def failure(self, what: str) -> Refusal:
        line, text = self._complaint or (self._lines, "see the end of the log")
        return Refusal(
            Rule.INTERNAL,
            f"the {self.placed.command} {self.placed.code} {what}: {text}",
            f"log {self.log}, line {line}",
        )

    @property
    def ended_by_itself(self) -> bool:
        return self.ended.is_set() and not self._stopping

    async def stop(self) -> None:
        """Orderly; a component that does not end in time is killed."""
        self._stopping = True
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._reader is not None:
            await self._reader

    async def _copy_log(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        # Written as it comes: a log is read while the component runs.
        rest = b""
        with self.log.open("ab", buffering=0) as file:
            while some := await process.stderr.read(_AT_ONCE):
                file.write(some)
                *lines, rest = (rest + some).split(b"\n")
                for line in lines:
                    self._lines += 1
                    # A busy component writes many lines that say nothing about its start or end.
                    if not self._ready.is_set() or _ORDINARY not in line:
                        self._look_at(line)
        if rest:
            self._look_at(rest)
        await process.wait()
        self.ended.set()

    def _look_at(self, line: bytes) -> None:
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            # A refusal of the command line, or an interpreter's last words: the last line tells.
            self._complaint = (self._lines, line.decode("utf-8", "replace").strip())
            return
        if entry.get("event") == READY.get(self.placed.command, LISTENING):
            self._ready.set()
        elif entry.get("level") in ("error", "critical"):
            self._complaint = (self._lines, str(entry.get("event", "")))


def check(processes: Iterable[ComponentProcess]) -> None:
    """Refuses when a component has ended by itself."""
    for process in processes:
        if process.ended_by_itself:
            raise process.failure("ended")


class Components:
    """All component processes of one network."""

    def __init__(
        self, files: NetworkFiles, more: Mapping[str, str] | None = None, start: str = COMMAND
    ) -> None:
        """`more` is added to their environment; `start` is the program that reads the command."""
        self.files = files
        self._more = more or {}
        self._start = start
        self.directory = self._of(files.directory)
        self.others = tuple(self._of(p) for p in (files.broker, *files.endpoints))

    def _of(self, placed: Placed) -> ComponentProcess:
        return ComponentProcess(
            placed, self.files.folder / "log" / f"{placed.code}.log", self._more, self._start
        )

    @property
    def all(self) -> tuple[ComponentProcess, ...]:
        return (self.directory, *self.others)

    async def start_others(self, started: Callable[[str], None]) -> None:
        async def one(process: ComponentProcess) -> None:
            await process.start()
            started(process.placed.code)

        async with asyncio.TaskGroup() as group:
            for process in self.others:
                group.create_task(one(process))

    def check(self) -> None:
        check(self.all)

    async def stop(self) -> None:
        # Endpoints and broker first: they say goodbye while the directory can still hear it.
        await asyncio.gather(*(process.stop() for process in self.others))
        await self.directory.stop()


def environment() -> dict[str, str]:
    """Without settings of other components that run on this machine."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GRIDPOST_")}
    # The components are this very package, wherever it was started from.
    here = str(Path(__file__).parents[2])
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, (here, kept.get("PYTHONPATH"))))
    return kept
