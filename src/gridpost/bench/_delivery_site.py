"""A network of processes for the delivery bench: directory, broker, two endpoints with AMQP channels.

They synchronise with the directory every ten seconds: two minutes, as they do by default, would be
long to wait for the first message-path, and every second is more than anybody's components ever do.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from gridpost.assembly.clock import SystemClock
from gridpost.assembly.network import NetworkFiles, NetworkPlan, Party, write_network
from gridpost.bench import _sampling
from gridpost.demo.enrolment import enrol_all
from gridpost.demo.processes import Components
from gridpost.transports.free_port import free_port

SENDER, RECEIVER = "BENCH-SENDER", "BENCH-RECEIVER"
_TICK = os.sysconf("SC_CLK_TCK")


class DeliverySite:
    def __init__(
        self,
        files: NetworkFiles,
        components: Components,
        ports: Mapping[str, int],
        samples: Path | None,
    ) -> None:
        self._files = files
        self._components = components
        self.ports = ports
        self._samples = samples

    def password(self, code: str) -> str:
        (placed,) = (p for p in self._files.endpoints if p.code == code)
        return self._files.password(placed).read_text(encoding="utf-8").strip()

    def pids(self) -> dict[str, int]:
        found = {p.placed.code: p.pid for p in self._components.all}
        return {code: pid for code, pid in found.items() if pid is not None} | {"load": os.getpid()}

    def cpu_seconds(self) -> dict[str, float]:
        """User and system time of each process since it began."""
        return {code: _cpu(pid) for code, pid in self.pids().items()}

    def activities(self) -> dict[str, dict[str, float]]:
        """CPU seconds of each component by activity, where they are sampled."""
        assert self._samples is not None
        pids = {code: pid for code, pid in self.pids().items() if code != "load"}
        return {code: _sampling.read(self._samples, pid) for code, pid in pids.items()}

    def resident_mib(self) -> dict[str, float]:
        return {code: _resident(pid) for code, pid in self.pids().items()}


@asynccontextmanager
async def delivery_site(folder: Path, *, sampled: bool = False) -> AsyncIterator[DeliverySite]:
    """`sampled`: the components tell on what they spend their time, and are slower for it."""
    parties = tuple(Party(code, "Bench", amqp_types=("*",)) for code in (SENDER, RECEIVER))
    plan = NetworkPlan(parties, ports=free_port, synchronisation="10s")
    files = write_network(folder / "network", plan, SystemClock().now())
    ports = {placed.code: placed.ports["amqp"] for placed in files.endpoints}
    samples = folder / "samples" if sampled else None
    if samples is None:
        components = Components(files)
    else:
        samples.mkdir(parents=True)
        start = f"from {_sampling.__name__} import main; main()"
        components = Components(files, {_sampling.FOLDER: str(samples)}, start)
    try:
        await components.directory.start()
        await enrol_all(files, lambda code: None)
        await components.start_others(lambda code: None)
        yield DeliverySite(files, components, ports, samples)
        components.check()
    finally:
        await components.stop()


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
