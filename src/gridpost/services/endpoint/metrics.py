"""The figures of an endpoint for Prometheus: their names are a contract with dashboards.

What counts messages are plain numbers, handed over when somebody asks: the library's own counters
take a lock each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from gridpost.core.certificate import Certificate
from gridpost.core.delivery import Status
from gridpost.core.message_box import BoxEntry, Tally
from gridpost.services.endpoint.lines import LineView
from gridpost.services.endpoint.signals import Signals, StatusChange

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400)
_TIMED = frozenset({Status.DELIVERED, Status.RECEIVED})


class EndpointMetrics(Collector):
    def __init__(self, registry: CollectorRegistry, signals: Signals) -> None:
        self._reached: Counter[str] = Counter({status.value: 0 for status in Status})
        self._arrived = 0
        self._expired = 0
        self._latency = Histogram(
            "gridpost_endpoint_delivery_seconds",
            "From acceptance to the status, by this endpoint's clock",
            ["status"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._messages = _gauge(registry, "messages", "Sent messages in the box", "status")
        self._waiting = _gauge(registry, "documents_waiting", "Documents for applications")
        self._oldest_waiting = _gauge(
            registry, "oldest_waiting_seconds", "Age of the oldest document for an application"
        )
        self._queued = _gauge(registry, "transfers_waiting", "Messages to be transferred")
        self._oldest_queued = _gauge(
            registry, "oldest_transfer_seconds", "Age of the oldest message to be transferred"
        )
        self._connected = _gauge(registry, "connected", "1 while connected", "peer")
        self._expiry = _gauge(
            registry, "certificate_expiry_timestamp_seconds", "End of a certificate", "kind", "id"
        )
        self._synchronised = _gauge(
            registry, "synchronised_timestamp_seconds", "Last answer of a component-directory"
        )
        registry.register(self)
        signals.on_status(self._told)
        signals.on_offered(self._offered)

    def expired(self, messages: int) -> None:
        self._expired += messages

    def state(
        self,
        tally: Tally,
        now: datetime,
        lines: Iterable[LineView],
        certificates: Sequence[Certificate],
        synchronised_at: datetime | None,
    ) -> None:
        for status in Status:
            self._messages.labels(status.value).set(tally.statuses.get(status, 0))
        self._waiting.set(tally.waiting)
        self._oldest_waiting.set(_age(tally.oldest_waiting, now))
        self._queued.set(tally.queued)
        self._oldest_queued.set(_age(tally.oldest_queued, now))
        self._connected.clear()
        for line in lines:
            self._connected.labels(str(line.peer)).set(int(line.connected))
        self._expiry.clear()
        for c in certificates:
            self._expiry.labels(c.kind, c.certificate_id).set(c.not_after.timestamp())
        self._synchronised.set(0 if synchronised_at is None else synchronised_at.timestamp())

    def collect(self) -> Iterator[CounterMetricFamily]:
        reached = CounterMetricFamily(
            "gridpost_endpoint_status", "Sent messages that reached a status", labels=["status"]
        )
        for status, count in self._reached.items():
            reached.add_metric([status], count)
        yield reached
        yield CounterMetricFamily(
            "gridpost_endpoint_documents_arrived",
            "Documents that were offered to applications",
            value=self._arrived,
        )
        yield CounterMetricFamily(
            "gridpost_endpoint_messages_expired", "Messages that expired", value=self._expired
        )

    def _told(self, change: StatusChange) -> None:
        if change.elsewhere:
            return
        self._reached[change.status.value] += 1
        if change.status in _TIMED:
            seconds = (change.at - change.generated).total_seconds()
            self._latency.labels(change.status.value).observe(max(0.0, seconds))

    def _offered(self, entry: BoxEntry) -> None:
        self._arrived += 1


def _gauge(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"gridpost_endpoint_{name}", text, labels, registry=registry)


def _age(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())
