"""Figures of a bus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class BusMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._treated = Counter(
            "gridpost_bus_envelopes", "Envelopes treated.", ("kind", "outcome"), registry=registry
        )
        self._seconds = Histogram(
            "gridpost_bus_request_seconds",
            "From the arrival of a request to its acknowledgement.",
            registry=registry,
        )
        self.under_way = Gauge(
            "gridpost_bus_under_way", "Envelopes that are being treated.", registry=registry
        )

        self.dead_letters = Gauge(
            "gridpost_bus_dead_letters",
            "Envelopes in the queue of dead letters, as last looked at.",
            ("context",),
            registry=registry,
        )

    def treated(self, event: bool, dead: bool, seconds: float) -> None:
        kind, outcome = "event" if event else "request", "dead" if dead else "done"
        self._treated.labels(kind, outcome).inc()
        if not event:
            self._seconds.observe(seconds)
