"""What a capacity service can have wrong: no broker, capacity allocated beyond the offer, its certificate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from gridpost.core.alerts import AlertKind, Condition, Severity
from gridpost.core.ports import Clock
from gridpost.services.capacity.service import CapacityService
from gridpost.services.operations.alerting import Observer

_CRITICAL = timedelta(days=3)


def broker(service: CapacityService) -> Observer:
    async def observe() -> Sequence[Condition]:
        if service.connected_now:
            return []
        text = "there is no connection to RabbitMQ: nobody can ask for capacity"
        return [Condition(AlertKind.RABBITMQ, "rabbitmq", text, Severity.CRITICAL)]

    return observe


def shortfall(service: CapacityService) -> Observer:
    """An offer was lowered below what is allocated: somebody has to act outside of this service."""

    async def observe() -> Sequence[Condition]:
        return [
            Condition(
                AlertKind.SHORTFALL,
                border,
                f"{quantity} kW are allocated on {border} beyond what is offered",
            )
            for border, quantity in service.shortfalls().items()
            if quantity
        ]

    return observe


def certificate(
    clock: Clock, ends: Callable[[], Iterable[tuple[str, datetime]]], limit: timedelta
) -> Observer:
    """`ends` gives name and last moment of each certificate this service shows."""

    async def observe() -> Sequence[Condition]:
        now = clock.now()
        return [
            Condition(
                AlertKind.CERTIFICATE_EXPIRY,
                name,
                f"the certificate of {name} ends at {end:%Y-%m-%d %H:%M} UTC: renew it",
                Severity.CRITICAL if end - now <= _CRITICAL else Severity.WARNING,
            )
            for name, end in ends()
            if end - now <= limit
        ]

    return observe
