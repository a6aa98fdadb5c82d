"""Who in this process hears of what has just been committed: transfers to make, statuses, documents.

A signal carries no duty: whoever misses one finds the same facts in the store at its next look.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from gridpost.core.delivery import Decision, Effect, State, Status, TraceEntry
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
    generated: datetime
    """When the endpoint accepted the document."""
    elsewhere: bool = False
    """Another process of this endpoint committed it, and counts it."""


Enqueued = Callable[[Route, ComponentCode], None]
Told = Callable[[StatusChange], None]
Offered = Callable[[BoxEntry], None]


class Signals:
    """Listeners are called at once and must return at once."""

    def __init__(self) -> None:
        self._enqueued: list[Enqueued] = []
        self._told: list[Told] = []
        self._offered: list[Offered] = []
        self._traced: list[Offered] = []
        self._elsewhere: list[Offered] = []

    def on_enqueued(self, listener: Enqueued) -> None:
        self._enqueued.append(listener)

    def on_status(self, listener: Told) -> Callable[[], None]:
        """Call what is returned to hear no more."""
        self._told.append(listener)
        return lambda: self._told.remove(listener)

    def on_offered(self, listener: Offered) -> Callable[[], None]:
        self._offered.append(listener)
        return lambda: self._offered.remove(listener)

    def on_offered_elsewhere(self, listener: Offered) -> Callable[[], None]:
        """A document that another process of this endpoint has stored."""
        self._elsewhere.append(listener)
        return lambda: self._elsewhere.remove(listener)

    def on_traced(self, listener: Offered) -> None:
        """Every event of a sent message, whether it changed anything or not."""
        self._traced.append(listener)

    def enqueued(self, route: Route, receiver: ComponentCode) -> None:
        for listener in self._enqueued:
            listener(route, receiver)

    def offered(self, entry: BoxEntry) -> None:
        for listener in list(self._offered):
            listener(entry)

    def offered_elsewhere(self, entry: BoxEntry) -> None:
        for listener in list(self._elsewhere):
            listener(entry)

    def happened_elsewhere(self, entry: BoxEntry, last: TraceEntry) -> None:
        """Another process moved the delivery of a sent message."""
        for listen in self._traced:
            listen(entry)
        status = entry.delivery.status
        if status is not None:
            self._tell(_change(entry, entry.delivery.state, status, last, elsewhere=True))

    def decided(self, entry: BoxEntry, decision: Decision) -> None:
        """Pass on what an application wants to know; the rest stands in the trace."""
        for listen in self._traced:
            listen(entry)
        status = decision.delivery.status
        if status is None or Effect.TELL_APPLICATION not in decision.effects:
            return
        self._tell(_change(entry, decision.delivery.state, status, decision.entry))

    def _tell(self, change: StatusChange) -> None:
        for listener in list(self._told):
            listener(change)


def _change(
    entry: BoxEntry, state: State, status: Status, last: TraceEntry, *, elsewhere: bool = False
) -> StatusChange:
    return StatusChange(
        last.at,
        entry.message_id,
        status,
        state,
        entry.application,
        entry.metadata.message_type,
        entry.metadata.receiver_code,
        entry.metadata.ba_message_id,
        last.detail,
        entry.metadata.generated.at,
        elsewhere,
    )
