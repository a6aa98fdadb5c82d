"""The figures of a component-directory for Prometheus: their names are a contract with dashboards."""

from __future__ import annotations

from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge

from gridpost.core.refusal import Rule


class DirectoryMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._answers = Counter(
            "gridpost_directory_answers",
            "Answers of the REST API",
            ["resource", "status"],
            registry=registry,
        )
        self._refusals = Counter(
            "gridpost_directory_refusals", "Requests refused, by rule", ["rule"], registry=registry
        )
        self._sent = Counter(
            "gridpost_directory_entries_sent",
            "Entries sent in synchronisation answers",
            registry=registry,
        )
        self._synchronised = Gauge(
            "gridpost_directory_synchronised_timestamp_seconds",
            "When the content of another component-directory was last received",
            ["component_directory"],
            registry=registry,
        )
        self._failures = Counter(
            "gridpost_directory_synchronisation_failures",
            "Synchronisations with another component-directory that failed",
            ["component_directory"],
            registry=registry,
        )
        self._expiry = Gauge(
            "gridpost_directory_certificate_expiry_timestamp_seconds",
            "When the last certificate of a kind ends, for components that must renew soon",
            ["component", "kind"],
            registry=registry,
        )
        self._pending = Gauge(
            "gridpost_directory_registrations_pending",
            "Registrations that wait for an administrator",
            registry=registry,
        )
        self._components = Gauge(
            "gridpost_directory_components",
            "Entries of the own subsystem",
            registry=registry,
        )

    def answered(self, resource: str, status: int) -> None:
        self._answers.labels(resource, str(status)).inc()

    def refused(self, rule: Rule) -> None:
        self._refusals.labels(rule.name).inc()

    def synchronised(self, entries: int) -> None:
        self._sent.inc(entries)

    def received(self, directory: str, at: datetime) -> None:
        self._synchronised.labels(directory).set(at.timestamp())

    def not_received(self, directory: str) -> None:
        self._failures.labels(directory).inc()

    def books(self, components: int, pending: int) -> None:
        self._components.set(components)
        self._pending.set(pending)

    def expiring(self, ends: dict[tuple[str, str], datetime]) -> None:
        self._expiry.clear()
        for (component, kind), end in ends.items():
            self._expiry.labels(component, kind).set(end.timestamp())
