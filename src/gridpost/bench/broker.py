"""How fast a broker passes messages on, beside RabbitMQ with its AMQP 1.0 plugin.

Durable, over TLS, producer to broker to consumer on one machine, driven by the same client in the
same run. The two brokers take turns, so that a busy machine slows both alike; a turn begins when both
are done with the one before, so that neither pays for what the other put off.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gridpost.bench import Measurement
from gridpost.bench._amqp_load import Load, messages, pass_through
from gridpost.bench._broker_site import RECEIVER, SENDER, Site, running
from gridpost.bench._rabbitmq import NodePlan, private_rabbitmq

KIB, MIB = 1024, 1024 * 1024
ROUNDS = 3
# size in octets -> messages per round
SIZES = {"1k": (KIB, 10_000), "10k": (10 * KIB, 5_000), "1m": (MIB, 150)}
SETTLE_LOOKS = 12
SETTLE_SECONDS = 0.25
SETTLE_CPU = 0.02
"""Of one broker in that time; processes are accounted in hundredths of a second."""
DEEP = 1_000_000
DEEP_PROBE = 10_000


class Server(Protocol):
    def cpu_seconds(self) -> float: ...


@dataclass
class Side:
    """One broker under measurement."""

    server: Server
    load: Load
    speeds: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    def round(self, name: str, batch: list[bytes]) -> None:
        before = self.server.cpu_seconds()
        result = pass_through(self.load, batch)
        used = self.server.cpu_seconds() - before
        self.speeds.setdefault(name, []).append(result.per_second)
        self.cpu.setdefault(name, []).append(used / result.messages * 1e6)


def measure() -> Measurement:
    """GRIDPOST_BENCH_DEEP sets the depth of the deep queue where a million takes too long.

    GRIDPOST_BENCH_PARTS names some of 1k, 10k, 1m and deep: only these are measured.
    """
    deep = int(os.environ.get("GRIDPOST_BENCH_DEEP", DEEP))
    parts = os.environ.get("GRIDPOST_BENCH_PARTS", ",".join([*SIZES, "deep"])).split(",")
    sizes = {name: SIZES[name] for name in parts if name != "deep"}
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="gridpost-bench-", dir=_disk()) as name:
        site = Site(Path(name))
        if sizes:
            figures, ratios = _beside_rabbitmq(site, sizes)
        if "deep" in parts:
            more, deep_ratio = _deep(site, deep)
            figures, ratios = figures | more, ratios | deep_ratio
    return Measurement(figures, ratios)


def _beside_rabbitmq(
    site: Site, sizes: dict[str, tuple[int, int]]
) -> tuple[dict[str, float], dict[str, float]]:
    with _ours(site) as ours, _theirs(site) as theirs:
        for name, (size, count) in sizes.items():
            batch = messages(count // 10, size)
            for side in (ours, theirs):
                pass_through(side.load, batch)
            for _ in range(ROUNDS):
                for side in (ours, theirs):
                    batch = messages(count, size)
                    _settle(ours.server, theirs.server)
                    side.round(name, batch)
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for name in sizes:
        mine, other = statistics.median(ours.speeds[name]), statistics.median(theirs.speeds[name])
        my_cpu, other_cpu = statistics.median(ours.cpu[name]), statistics.median(theirs.cpu[name])
        figures |= {
            f"msgs_{name}_per_s": mine,
            f"rabbitmq_msgs_{name}_per_s": other,
            f"cpu_{name}_us": my_cpu,
            f"rabbitmq_cpu_{name}_us": other_cpu,
        }
        ratios[f"msgs_{name}_vs_rabbitmq"] = mine / other
        ratios[f"cpu_{name}_vs_rabbitmq"] = my_cpu / other_cpu
    return figures, ratios


def _settle(*servers: Server) -> None:
    """Wait until nobody works, or for a while: a broker may have a heartbeat or a log to write."""
    for _ in range(SETTLE_LOOKS):
        before = [server.cpu_seconds() for server in servers]
        time.sleep(SETTLE_SECONDS)
        after = [server.cpu_seconds() for server in servers]
        if all(late - early <= SETTLE_CPU for early, late in zip(before, after, strict=True)):
            return


def _deep(site: Site, depth: int) -> tuple[dict[str, float], dict[str, float]]:
    """In a deep queue the consumer gets older ones than were sent. Both take turns.

    It never waits for the producer, and so gets more than was sent while that goes on. What it gets
    counts: the broker has moved it. (Until 2026-11-18 only as many counted as were sent.)
    """
    speeds: dict[str, list[float]] = {"shallow": [], "deep": []}
    shallow_file, deep_file = site.prepare("shallow"), site.prepare("deep", depth)
    with running(shallow_file) as shallow, running(deep_file) as deep:
        for _ in range(ROUNDS):
            for name, server in (("shallow", shallow), ("deep", deep)):
                batch = messages(DEEP_PROBE, KIB)
                speeds[name].append(pass_through(_load(site, server.port), batch).per_second)
        resident = deep.resident()
    shallow_speed, deep_speed = (statistics.median(speeds[name]) for name in speeds)
    figures = {
        "shallow_msgs_per_s": shallow_speed,
        "deep_msgs_per_s": deep_speed,
        "deep_messages": float(depth),
        "deep_resident_mb": resident / 1e6,
    }
    return figures, {"deep_vs_shallow": deep_speed / shallow_speed}


@contextmanager
def _ours(site: Site) -> Iterator[Side]:
    with running(site.prepare("ours")) as server:
        yield Side(server, _load(site, server.port))


@contextmanager
def _theirs(site: Site) -> Iterator[Side]:
    queue = "bench"
    folder = site.folder / "rabbitmq"
    folder.mkdir()
    for file in ("chain.pem", "key.pem", "root.pem"):
        (folder / file).write_bytes((site.folder / file).read_bytes())
    plan = NodePlan(
        folder,
        users=[SENDER, RECEIVER],
        queues=[queue],
        plugins=["rabbitmq_amqp1_0", "rabbitmq_auth_mechanism_ssl"],
    )
    with private_rabbitmq(plan) as node:
        time.sleep(2)
        address = f"/amq/queue/{queue}"
        yield Side(
            node,
            Load(node.port, site.credentials(SENDER), site.credentials(RECEIVER), address, address),
        )


def _load(site: Site, port: int) -> Load:
    return Load(port, site.credentials(SENDER), site.credentials(RECEIVER), RECEIVER, RECEIVER)


def _disk() -> str | None:
    """Durable means a disk: a temporary folder in memory would measure something else."""
    return os.environ.get("GRIDPOST_BENCH_FOLDER")
