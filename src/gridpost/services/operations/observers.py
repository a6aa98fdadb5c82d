"""What every component can have wrong: certificates, directory news, disk, clock, refused peers."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from gridpost.core.alerts import AlertKind, Condition, Severity
from gridpost.core.certificate import Certificate
from gridpost.core.ports import Clock
from gridpost.services.operations.alerting import Observer
from gridpost.services.operations.journal_follow import RecentTrouble

_CRITICAL_DAYS = 3


@dataclass(frozen=True, slots=True)
class Thresholds:
    certificate_expiry: timedelta = timedelta(days=14)
    no_synchronisation: timedelta = timedelta(hours=1)
    waiting: timedelta = timedelta(hours=1)
    queue_age: timedelta = timedelta(hours=1)
    disk_free: int = 1024 * 1024 * 1024
    window: timedelta = timedelta(minutes=10)
    """In which expired messages and refused connections are counted."""
    expired_messages: int = 1
    refused_connections: int = 20
    clock_offset: timedelta = timedelta(seconds=1)


def certificates(
    clock: Clock, found: Callable[[], Iterable[Certificate]], limit: timedelta
) -> Observer:
    """`found` gives the certificates that have no successor yet."""

    async def observe() -> Sequence[Condition]:
        now = clock.now()
        return [
            expiry(
                f"{c.kind} {c.certificate_id}",
                f"the {c.kind} certificate {c.certificate_id}",
                c.not_after,
                now,
            )
            for c in found()
            if c.not_after - now <= limit
        ]

    return observe


def ending(
    clock: Clock, ends: Callable[[], Iterable[tuple[str, datetime]]], limit: timedelta
) -> Observer:
    """`ends` gives name and last moment of each certificate that no directory issued."""

    async def observe() -> Sequence[Condition]:
        now = clock.now()
        return [
            expiry(name, f"the certificate of {name}", end, now)
            for name, end in await asyncio.to_thread(lambda: list(ends()))
            if end - now <= limit
        ]

    return observe


def expiry(subject: str, which: str, end: datetime, now: datetime) -> Condition:
    """Lasts after the end too: whoever uses the certificate is refused by others from then on."""
    said = "has expired at" if end < now else "ends at"
    urgent = end - now <= timedelta(days=_CRITICAL_DAYS)
    return Condition(
        AlertKind.CERTIFICATE_EXPIRY,
        subject,
        f"{which} {said} {end:%Y-%m-%d %H:%M} UTC: renew it",
        Severity.CRITICAL if urgent else Severity.WARNING,
    )


def synchronisation(
    clock: Clock, succeeded_at: Callable[[], datetime | None], since: datetime, limit: timedelta
) -> Observer:
    """`since` is when the component started: before that it could not ask."""

    async def observe() -> Sequence[Condition]:
        last = succeeded_at() or since
        waited = clock.now() - last
        if waited <= limit:
            return []
        text = f"no component-directory has answered since {last:%Y-%m-%d %H:%M:%S} UTC"
        return [Condition(AlertKind.NO_SYNCHRONISATION, "component-directory", text)]

    return observe


def disk(folder: Path, limit: int) -> Observer:
    async def observe() -> Sequence[Condition]:
        free = (await asyncio.to_thread(shutil.disk_usage, folder)).free
        if free >= limit:
            return []
        text = f"{free // 1_048_576} MiB are free for {folder.name}, the mark is {limit // 1_048_576} MiB"
        severity = Severity.CRITICAL if free < limit // 4 else Severity.WARNING
        return [Condition(AlertKind.DISK_SPACE, folder.name, text, severity)]

    return observe


def trouble(clock: Clock, recent: RecentTrouble, thresholds: Thresholds) -> Observer:
    async def observe() -> Sequence[Condition]:
        now = clock.now()
        minutes = int(thresholds.window.total_seconds() // 60)
        found = []
        expired = recent.expired(now)
        if expired >= thresholds.expired_messages:
            text = f"{expired} messages expired in the last {minutes} minutes"
            found.append(Condition(AlertKind.EXPIRED_MESSAGES, "messages", text))
        for peer, times in recent.refused(now).items():
            if times >= thresholds.refused_connections:
                text = f"{peer} was refused {times} times in the last {minutes} minutes"
                found.append(Condition(AlertKind.REFUSED_CONNECTIONS, peer, text))
        return found

    return observe


class ClockWatch:
    """The offset of this machine's clock, asked of NTP servers now and then."""

    def __init__(
        self, ask: Callable[[], Awaitable[timedelta]], limit: timedelta, every: timedelta
    ) -> None:
        self._ask = ask
        self._limit = limit
        self._every = every
        self.offset: timedelta | None = None
        self.reason = "not asked yet"

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                self.offset = await self._ask()
                self.reason = ""
            except OSError as error:
                self.reason = str(error)
            await asyncio.sleep(self._every.total_seconds())

    async def observe(self) -> Sequence[Condition]:
        if self.offset is None or abs(self.offset) <= self._limit:
            return []
        text = f"the clock of this machine is {self.offset.total_seconds():+.3f} s off: check NTP"
        return [Condition(AlertKind.CLOCK_OFFSET, "clock", text)]

    def health(self) -> dict[str, object]:
        offset = self.offset
        return {
            "offset_ms": None if offset is None else round(offset.total_seconds() * 1000, 3),
            "reason": self.reason,
        }
