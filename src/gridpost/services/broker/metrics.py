"""The figures of a broker for Prometheus: their names are a contract with dashboards.

What counts messages are plain numbers, handed over when somebody asks: the library's own counters
take a lock each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from gridpost.core.queues import Space
from gridpost.core.refusal import Rule

_LATENCIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_GROUPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class BrokerMetrics(Collector):
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.stored = 0
        self.duplicates = 0
        self.expired_on_arrival = 0
        self.failed = 0
        self.octets_in = 0
        self.octets_out = 0
        self.left: Counter[str] = Counter({"delivered": 0, "expired": 0, "held": 0})
        self._refused: Counter[str] = Counter()
        self._depth = Gauge(
            "gridpost_broker_queue_messages", "Messages in a queue", ["queue"], registry=registry
        )
        self._age = Gauge(
            "gridpost_broker_queue_age_seconds",
            "Age of the oldest message of a queue",
            ["queue"],
            registry=registry,
        )
        self._connections = Gauge(
            "gridpost_broker_connections", "Open connections", registry=registry
        )
        self._commit = Histogram(
            "gridpost_broker_commit_seconds",
            "Time from the begin of a group to its being on the disk",
            buckets=_LATENCIES,
            registry=registry,
        )
        self._group = Histogram(
            "gridpost_broker_commit_operations",
            "Operations that shared one commit",
            buckets=_GROUPS,
            registry=registry,
        )
        self._free = Gauge(
            "gridpost_broker_store_free_bytes", "Free space of the disk", registry=registry
        )
        self._used = Gauge(
            "gridpost_broker_store_used_bytes", "What the store holds", registry=registry
        )
        registry.register(self)

    def refused(self, rule: Rule) -> None:
        self._refused[rule.name] += 1

    def committed(self, seconds: float, operations: int) -> None:
        self._commit.observe(seconds)
        self._group.observe(operations)

    def state(
        self,
        queues: Iterable[tuple[str, int, datetime | None]],
        connections: int,
        space: Space,
        now: datetime,
    ) -> None:
        """What is only looked at when somebody asks."""
        self._depth.clear()
        self._age.clear()
        for code, depth, oldest in queues:
            self._depth.labels(code).set(depth)
            self._age.labels(code).set(0 if oldest is None else (now - oldest).total_seconds())
        self._connections.set(connections)
        self._free.set(space.free)
        self._used.set(space.used)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """prometheus_client's Collector."""
        arrived = {
            "stored": self.stored,
            "duplicate": self.duplicates,
            "expired": self.expired_on_arrival,
        }
        yield _family("messages_in", "Messages that producers transferred", "outcome", arrived)
        yield _family("messages_out", "Messages that left a queue", "outcome", self.left)
        octets = {"in": self.octets_in, "out": self.octets_out}
        yield _family("octets", "Octets of messages", "direction", octets)
        yield _family("refused", "Refusals", "rule", self._refused)
        failed = CounterMetricFamily(
            "gridpost_broker_deliveries_failed", "Deliveries that a consumer did not complete"
        )
        failed.add_metric([], self.failed)
        yield failed


def _family(name: str, text: str, label: str, values: dict[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"gridpost_broker_{name}", text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
