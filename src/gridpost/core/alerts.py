"""Which alerts are open, and when people are told of them.

An alert is a condition with a subject: `certificate_expiry` of one certificate. It is told once when
it begins, again after `repeat` while it lasts, and once when it is over. In quiet hours only critical
alerts are told; what began meanwhile and still lasts, or was over, is told when the quiet hours end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta, tzinfo
from enum import StrEnum


class AlertKind(StrEnum):
    CERTIFICATE_EXPIRY = "certificate_expiry"
    NO_SYNCHRONISATION = "no_synchronisation"
    MESSAGE_WAITING = "message_waiting"
    EXPIRED_MESSAGES = "expired_messages"
    QUEUE_AGE = "queue_age"
    DISK_SPACE = "disk_space"
    REFUSED_CONNECTIONS = "refused_connections"
    CLOCK_OFFSET = "clock_offset"
    STORE = "store"
    RABBITMQ = "rabbitmq"
    SHORTFALL = "shortfall"
    DEAD_LETTERS = "dead_letters"


class Severity(StrEnum):
    WARNING = "warning"
    CRITICAL = "critical"


class Phase(StrEnum):
    RAISED = "raised"
    REMINDED = "reminded"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is wrong now."""

    kind: AlertKind
    subject: str
    text: str
    severity: Severity = Severity.WARNING

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.subject}"


@dataclass(frozen=True, slots=True)
class OpenAlert:
    condition: Condition
    since: datetime
    told_at: datetime | None = None
    """None while quiet hours hold it back."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What is told to people."""

    phase: Phase
    condition: Condition
    since: datetime
    at: datetime


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A time of day from `start` to before `end`, past midnight when `end` is earlier."""

    start: time
    end: time

    def holds(self, at: time) -> bool:
        if self.start <= self.end:
            return self.start <= at < self.end
        return at >= self.start or at < self.end


@dataclass(frozen=True, slots=True)
class AlertPolicy:
    zone: tzinfo
    repeat: timedelta = timedelta(hours=24)
    quiet: tuple[QuietHours, ...] = ()

    def silent(self, condition: Condition, at: datetime) -> bool:
        if condition.severity is Severity.CRITICAL:
            return False
        local = at.astimezone(self.zone).time()
        return any(hours.holds(local) for hours in self.quiet)


@dataclass(frozen=True, slots=True)
class AlertBook:
    """The alerts that are open, by key."""

    open: Mapping[str, OpenAlert] = field(default_factory=dict)
    over: Mapping[str, OpenAlert] = field(default_factory=dict)
    """Those whose end nobody has been told of yet."""


def decide(
    book: AlertBook, conditions: Iterable[Condition], at: datetime, policy: AlertPolicy
) -> tuple[AlertBook, list[Notice]]:
    """The book after this look, and what is to be told."""
    now = {condition.key: condition for condition in conditions}
    after: dict[str, OpenAlert] = {}
    notices: list[Notice] = []
    known = {**book.over, **book.open}
    over: dict[str, OpenAlert] = {}
    for key, condition in now.items():
        before = known.get(key)
        alert = OpenAlert(condition, at) if before is None else replace(before, condition=condition)
        phase = _due(before, condition, at, policy)
        if phase is not None and not policy.silent(condition, at):
            notices.append(Notice(phase, condition, alert.since, at))
            alert = replace(alert, told_at=at)
        after[key] = alert
    for key, gone in known.items():
        # Nobody was told that it began, so nobody needs to hear that it ended.
        if key in now or gone.told_at is None:
            continue
        if policy.silent(gone.condition, at):
            over[key] = gone
        else:
            notices.append(Notice(Phase.CLEARED, gone.condition, gone.since, at))
    return AlertBook(after, over), notices


def _due(
    before: OpenAlert | None, condition: Condition, at: datetime, policy: AlertPolicy
) -> Phase | None:
    if before is None or before.told_at is None:
        return Phase.RAISED
    worse = (
        condition.severity is Severity.CRITICAL
        and before.condition.severity is not Severity.CRITICAL
    )
    if worse or at - before.told_at >= policy.repeat:
        return Phase.REMINDED
    return None
