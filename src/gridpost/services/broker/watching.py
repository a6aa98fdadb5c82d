"""What a broker can have wrong besides what every component can: queues that nobody empties."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from gridpost.core.alerts import AlertKind, Condition, Severity
from gridpost.core.ports import Clock
from gridpost.services.broker.broker import Broker
from gridpost.services.operations.alerting import Observer


def queue_age(broker: Broker, clock: Clock, limit: timedelta) -> Observer:
    async def observe() -> Sequence[Condition]:
        now = clock.now()
        return [
            Condition(
                AlertKind.QUEUE_AGE,
                view.code,
                f"the oldest of {view.depth} messages for {view.code} waits since "
                f"{view.oldest_at:%Y-%m-%d %H:%M:%S} UTC; {view.consumers} consumers are attached",
            )
            for view in broker.view()
            if view.oldest_at is not None and now - view.oldest_at > limit
        ]

    return observe


def space(broker: Broker) -> Observer:
    """New messages are refused: somebody has to act at once."""

    async def observe() -> Sequence[Condition]:
        found = broker.context.store.space
        if not found.refusing:
            return []
        return [Condition(AlertKind.STORE, "store", found.reason, Severity.CRITICAL)]

    return observe
