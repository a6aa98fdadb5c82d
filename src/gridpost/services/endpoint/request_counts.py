"""How many requests applications made, by channel and operation, and how they ended."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from gridpost.core.channels import Channel

ANSWERED = "answered"


class RequestCounts:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "gridpost_endpoint_requests",
            "Requests of applications; the outcome is 'answered' or an error code",
            ["channel", "operation", "outcome"],
            registry=registry,
        )

    def count(self, channel: Channel, operation: str, outcome: str = ANSWERED) -> None:
        self._counter.labels(channel.value, operation, outcome).inc()
