"""The figures of a broker for Prometheus: their names are a contract with dashboards."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gridpost.core.queues import Space
from gridpost.core.refusal import Rule

_LATENCIES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_GROUPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class BrokerMetrics:
    """Counters for every message are children that are looked up once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        arrived = Counter(
            "gridpost_broker_messages_in",
            "Messages that producers transferred, by outcome",
            ["outcome"],
            registry=registry,
        )
        self.stored = arrived.labels("stored").inc
        self.duplicate = arrived.labels("duplicate").inc
        self.expired_on_arrival = arrived.labels("expired").inc
        left = Counter(
            "gridpost_broker_messages_out",
            "Messages that left a queue, by outcome",
            ["outcome"],
            registry=registry,
        )
        self.delivered = left.labels("delivered").inc
        self.expired = left.labels("expired").inc
        self.held = left.labels("held").inc
        self.redelivered = Counter(
            "gridpost_broker_deliveries_failed",
            "Deliveries that a consumer did not complete",
            registry=registry,
        ).inc
        octets = Counter(
            "gridpost_broker_octets", "Octets of messages", ["direction"], registry=registry
        )
        self.octets_in = octets.labels("in").inc
        self.octets_out = octets.labels("out").inc
        self._refused = Counter(
            "gridpost_broker_refused", "Refusals, by rule", ["rule"], registry=registry
        )
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

    def refused(self, rule: Rule) -> None:
        self._refused.labels(rule.name).inc()

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
