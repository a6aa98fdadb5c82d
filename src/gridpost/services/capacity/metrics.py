"""Figures of the capacity service for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class CapacityMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.requests = Counter(
            "gridpost_capacity_requests", "Requests by kind and outcome.", ["kind", "outcome"],
            registry=registry,
        )  # fmt: skip
        self.allocations = Counter(
            "gridpost_capacity_allocations", "Allocations made.", ["border"], registry=registry
        )
        self.broadcasts = Counter(
            "gridpost_capacity_broadcasts", "Broadcasts by kind.", ["kind"], registry=registry
        )
        self.lost = Counter(
            "gridpost_capacity_broadcasts_lost",
            "Broadcasts that were due while RabbitMQ was away; clients notice and ask.",
            ["kind"],
            registry=registry,
        )
        self.returned = Counter(
            "gridpost_capacity_responses_returned",
            "Responses that no queue took.",
            registry=registry,
        )
        self.service_seconds = Histogram(
            "gridpost_capacity_service_seconds",
            "From delivery of a request to publication of its response.",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5),
            registry=registry,
        )
        self.connected = Gauge(
            "gridpost_capacity_connected", "1 while connected to RabbitMQ.", registry=registry
        )
        self.shortfall = Gauge(
            "gridpost_capacity_shortfall_kilowatts",
            "Allocated beyond a lowered offer, over all open units.",
            ["border"],
            registry=registry,
        )
