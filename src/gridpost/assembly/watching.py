"""How a running component watches itself: alerts, its clock, and security events for a SIEM."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from gridpost.assembly.directory_configuration import read_certificates
from gridpost.assembly.postgres_configuration import PostgresSection
from gridpost.assembly.surroundings import certificate_files
from gridpost.assembly.watching_configuration import AlertsSection, WatchedConfiguration
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal
from gridpost.services.operations import observers
from gridpost.services.operations.alerting import Alerting, Notifier, Observer
from gridpost.services.operations.journal_follow import (
    Cursor,
    JournalFollower,
    RecentTrouble,
    Streams,
    Take,
)
from gridpost.services.operations.observers import ClockWatch, Thresholds
from gridpost.services.operations.siem import Siem
from gridpost.stores.notes import AlertFile, CursorFile
from gridpost.transports.notices import MailNotifier, MailServer, WebhookNotifier
from gridpost.transports.ntp import clock_offset
from gridpost.transports.syslog import SyslogPort
from gridpost.wire.x509.read import load

log = structlog.get_logger(__name__)


Cursors = Callable[[str, str], Cursor]
"""By the name of a follower and an instance."""


def shared_cursors(postgres: PostgresSection | None) -> Cursors | None:
    """In the database, where there is one: whichever process has a stream next goes on there."""
    if postgres is None:
        return None
    # The driver is there with gridpost[postgres] only.
    from gridpost.stores.postgres.cursors import PostgresCursor

    return partial(PostgresCursor, postgres.settings())


@dataclass(frozen=True, slots=True)
class Watched:
    """Whom to watch."""

    code: str
    home: Path
    clock: Clock
    streams: Streams
    """People's actions and refusals among the rows of its journal."""
    cursors: Cursors | None = None
    """None: in files below home."""


class Watching:
    """What the health of a component tells of this."""

    def __init__(self, alerting: Alerting, clock: ClockWatch | None) -> None:
        self._alerting = alerting
        self._clock = clock

    def alerts(self) -> list[dict[str, str]]:
        return [
            {
                "kind": alert.condition.kind.value,
                "subject": alert.condition.subject,
                "severity": alert.condition.severity.value,
                "text": alert.condition.text,
                "since": alert.since.isoformat(),
            }
            for alert in self._alerting.book.open.values()
        ]

    def health(self) -> dict[str, Any]:
        told: dict[str, Any] = {"alerts": self.alerts()}
        return told if self._clock is None else told | {"clock": self._clock.health()}


@asynccontextmanager
async def watching(
    who: Watched,
    configuration: WatchedConfiguration,
    recent: RecentTrouble,
    more: Sequence[Observer],
) -> AsyncIterator[Watching]:
    """Until the block ends. `more` are the observers of this kind of component."""
    thresholds = configuration.alerts.rules.thresholds()
    async with AsyncExitStack() as stack:
        duties: list[Coroutine[Any, Any, None]] = []
        clock = _clock(configuration, thresholds)
        if clock is not None:
            duties.append(clock.run())
        if configuration.syslog is not None:
            port = SyslogPort(configuration.syslog.address, configuration.syslog.ca)
            stack.push_async_callback(port.close)
            syslog = _follow(who, "syslog", lambda instance: Siem(who.code, instance, port).take)
            duties.append(syslog.run())
        duties.append(_follow(who, "alerts-journal", lambda _: recent.take).run())
        alerting = Alerting(
            who.code,
            who.clock,
            [
                observers.disk(who.home, thresholds.disk_free),
                observers.trouble(who.clock, recent, thresholds),
                observers.ending(
                    who.clock, lambda: _ends(configuration), thresholds.certificate_expiry
                ),
                *([] if clock is None else [clock.observe]),
                *more,
            ],
            _notifiers(configuration.alerts),
            AlertFile(who.home / "alerts.json"),
            configuration.alerts.policy(),
            configuration.alerts.cycle,
        )
        duties.append(alerting.run())
        for duty in duties:
            stack.push_async_callback(_ended, asyncio.create_task(duty))
        yield Watching(alerting, clock)


def _follow(who: Watched, name: str, take: Callable[[str], Take]) -> JournalFollower:
    def cursor(instance: str) -> Cursor:
        if who.cursors is not None:
            return who.cursors(name, instance)
        return CursorFile(who.home / f"{name}.json", instance)

    return JournalFollower(who.streams, cursor, take)


def _clock(configuration: WatchedConfiguration, thresholds: Thresholds) -> ClockWatch | None:
    section = configuration.clock
    if not section.ntp:
        return None
    return ClockWatch(partial(clock_offset, section.ntp), thresholds.clock_offset, section.every)


def _ends(configuration: WatchedConfiguration) -> Iterator[tuple[str, datetime]]:
    """Of the certificates in files, read each time: a renewed one counts at once."""
    for place, file in certificate_files(configuration):
        try:
            found = [load(der).not_valid_after_utc for der in read_certificates(file)]
        except Refusal as refusal:
            # Half-way through a renewal; whoever uses it says what is wrong with it.
            log.info("a certificate cannot be read", file=str(file), reason=refusal.message)
            continue
        if found:
            yield place, min(found)


def _notifiers(section: AlertsSection) -> list[Notifier]:
    found: list[Notifier] = []
    if section.email is not None:
        email = section.email
        found.append(
            MailNotifier(
                MailServer(
                    email.host,
                    email.port,
                    email.sender,
                    email.recipients,
                    email.security,
                    email.user,
                    email.password.get_secret_value(),
                    email.ca,
                )
            )
        )
    if section.webhook is not None:
        hook = section.webhook
        found.append(WebhookNotifier(hook.url, hook.secret.get_secret_value(), hook.ca))
    return found


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
