"""Configuration keys of alerts, the clock and the export of security events, the same for all components."""

from __future__ import annotations

from datetime import time, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from gridpost.assembly.configuration import Configuration, Period, Port
from gridpost.core.alerts import AlertPolicy, QuietHours
from gridpost.services.operations.observers import Thresholds


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(
            f"'{name}' is not a time zone: write for example Europe/Brussels"
        ) from None
    return name


def _hours(text: str) -> str:
    quiet_hours(text)
    return text


def quiet_hours(text: str) -> QuietHours:
    start, dash, end = text.partition("-")
    try:
        if not dash:
            raise ValueError
        return QuietHours(time.fromisoformat(start.strip()), time.fromisoformat(end.strip()))
    except ValueError:
        raise ValueError(f"'{text}': write quiet hours like 22:00-06:00") from None


def _http(url: str) -> str:
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"'{url}' must begin with https:// or http://")
    return url


Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RulesSection(_Section):
    """From when on something is worth an alert."""

    certificate_expiry: Period = timedelta(days=14)
    no_synchronisation: Period = timedelta(hours=1)
    waiting: Period = timedelta(hours=1)
    queue_age: Period = timedelta(hours=1)
    disk_free: Annotated[int, Field(ge=0)] = 1024 * 1024 * 1024
    window: Period = timedelta(minutes=10)
    expired_messages: Count = 1
    refused_connections: Count = 20
    clock_offset: Period = timedelta(seconds=1)

    def thresholds(self) -> Thresholds:
        return Thresholds(**self.model_dump())


class EmailSection(_Section):
    host: str
    port: Port = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    sender: str
    recipients: Annotated[tuple[str, ...], Field(min_length=1)]
    user: str = ""
    password: SecretStr = SecretStr("")
    """Better given by the environment than in the file."""
    ca: Path | None = None


class WebhookSection(_Section):
    url: Annotated[str, AfterValidator(_http)]
    secret: SecretStr = SecretStr("")
    ca: Path | None = None


class AlertsSection(_Section):
    """A log line is always written; e-mail and webhook where they are configured."""

    cycle: Period = timedelta(seconds=30)
    repeat: Period = timedelta(hours=24)
    quiet: tuple[Annotated[str, AfterValidator(_hours)], ...] = ()
    zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    rules: RulesSection = RulesSection()
    email: EmailSection | None = None
    webhook: WebhookSection | None = None

    def policy(self) -> AlertPolicy:
        return AlertPolicy(
            ZoneInfo(self.zone), self.repeat, tuple(quiet_hours(text) for text in self.quiet)
        )


class ClockSection(_Section):
    ntp: tuple[str, ...] = ()
    """Servers to compare this machine's clock with, in order; none: it is not compared."""
    every: Period = timedelta(minutes=5)


class SyslogSection(_Section):
    """Where audit and security events go as RFC 5424 lines."""

    address: str
    """tls://host:port, tcp://host:port or udp://host:port."""
    ca: Path | None = None


class WatchedConfiguration(Configuration):
    """What every component that runs can be told about watching itself."""

    alerts: AlertsSection = AlertsSection()
    clock: ClockSection = ClockSection()
    syslog: SyslogSection | None = None


def watched_in(folder: Path, configuration: WatchedConfiguration) -> dict[str, Any]:
    """Relative paths count from the folder of the file."""

    def beside(section: Any) -> Any:
        if section is None or section.ca is None:
            return section
        return section.model_copy(update={"ca": folder / section.ca})

    alerts = configuration.alerts
    ways = {"email": beside(alerts.email), "webhook": beside(alerts.webhook)}
    return {"alerts": alerts.model_copy(update=ways), "syslog": beside(configuration.syslog)}
