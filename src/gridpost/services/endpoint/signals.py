"""Who in this process hears of what has just been committed: transfers to make, statuses, documents.

A signal carries no duty: whoever misses one finds the same facts in the store at its next look.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from gridpost.core.delivery import Decision, Effect, State, Status
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_box import BoxEntry
from gridpost.core.message_path import Route


@dataclass(frozen=True, slots=True)
class StatusChange:
    """What a sender application is told (503 cl. 5.6.1)."""

    at: datetime
    message_id: str
    status: Status
    state: State
    application: str
    message_type: str
    receiver_code: str
    ba_message_id: str
    detail: str


Enqueued = Callable[[Route, ComponentCode], None]
Told = Callable[[StatusChange], None]
Offered = Callable[[BoxEntry], None]


class Signals:
    """Listeners are called at once and must return at once."""

    def __init__(self) -> None:
        self._enqueued: list[Enqueued] = []
        self._told: list[Told] = []
        self._offered: list[Offered] = []

    def on_enqueued(self, listener: Enqueued) -> None:
        self._enqueued.append(listener)

    def on_status(self, listener: Told) -> Callable[[], None]:
        """Call what is returned to hear no more."""
        self._told.append(listener)
        return lambda: self._told.remove(listener)

    def on_offered(self, listener: Offered) -> Callable[[], None]:
        self._offered.append(listener)
        return lambda: self._offered.remove(listener)

    def enqueued(self, route: Route, receiver: ComponentCode) -> None:
        for listener in self._enqueued:
            listener(route, receiver)

    def offered(self, entry: BoxEntry) -> None:
        for listener in list(self._offered):
            listener(entry)

    def decided(self, entry: BoxEntry, decision: Decision) -> None:
        """Pass on what an application wants to know; the rest stands in the trace."""
        status = decision.delivery.status
        if status is None or Effect.TELL_APPLICATION not in decision.effects:
            return
        change = StatusChange(
            decision.entry.at,
            entry.message_id,
            status,
            decision.delivery.state,
            entry.application,
            entry.metadata.message_type,
            entry.metadata.receiver_code,
            entry.metadata.ba_message_id,
            decision.entry.detail,
        )
        for listener in list(self._told):
            listener(change)
