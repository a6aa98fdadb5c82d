"""Looks at a component at intervals and tells people what is wrong, once and not at night.

What is wrong comes from observers; what is told, and when, is decided in `core.alerts`. A notifier
that fails is tried again at the next look; the log line is always written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import structlog

from gridpost.core.alerts import AlertBook, AlertPolicy, Condition, Notice, Phase, decide
from gridpost.core.ports import Clock

log = structlog.get_logger("gridpost.alerts")

Observer = Callable[[], Awaitable[Sequence[Condition]]]

MAX_UNSENT = 1000


class Notifier(Protocol):
    """One way to reach people."""

    name: str

    async def tell(self, component: str, notices: Sequence[Notice]) -> None:
        """Raises when they were not reached."""
        ...


class AlertMemory(Protocol):
    """Keeps the open alerts over a restart, so that nobody is told twice."""

    def load(self) -> AlertBook: ...

    def save(self, book: AlertBook) -> None: ...


@dataclass
class _Way:
    notifier: Notifier
    unsent: list[Notice]


class Alerting:
    def __init__(
        self,
        component: str,
        clock: Clock,
        observers: Sequence[Observer],
        notifiers: Sequence[Notifier],
        memory: AlertMemory,
        policy: AlertPolicy,
        cycle: timedelta,
    ) -> None:
        self._component = component
        self._clock = clock
        self._observers = observers
        self._ways = [_Way(notifier, []) for notifier in notifiers]
        self._memory = memory
        self._policy = policy
        self._cycle = cycle
        self._seen: dict[int, Sequence[Condition]] = {}
        self.book = AlertBook()

    async def run(self) -> None:
        """Until cancelled."""
        self.book = await asyncio.to_thread(self._memory.load)
        while True:
            await self.look()
            await asyncio.sleep(self._cycle.total_seconds())

    async def look(self) -> list[Notice]:
        conditions: list[Condition] = []
        for number, observer in enumerate(self._observers):
            try:
                self._seen[number] = await observer()
            except Exception:
                # One that cannot look hides nothing, and what it saw last is not over.
                log.exception("an observer failed")
            conditions += self._seen.get(number, ())
        self.book, notices = decide(self.book, conditions, self._clock.now(), self._policy)
        if notices:
            await asyncio.to_thread(self._memory.save, self.book)
        for notice in notices:
            _log(notice)
        for way in self._ways:
            way.unsent = (way.unsent + notices)[-MAX_UNSENT:]
            await self._send(way)
        return notices

    async def _send(self, way: _Way) -> None:
        if not way.unsent:
            return
        try:
            await way.notifier.tell(self._component, way.unsent)
        except Exception as error:
            log.warning(
                "alert not sent", by=way.notifier.name, waiting=len(way.unsent), reason=str(error)
            )
        else:
            way.unsent = []


def _log(notice: Notice) -> None:
    write = log.info if notice.phase is Phase.CLEARED else log.warning
    write(
        "alert",
        phase=notice.phase.value,
        kind=notice.condition.kind.value,
        subject=notice.condition.subject,
        severity=notice.condition.severity.value,
        text=notice.condition.text,
        since=notice.since.isoformat(),
    )
