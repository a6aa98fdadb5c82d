"""What a capacity service can have wrong: no broker, capacity allocated beyond the offer."""

from __future__ import annotations

from collections.abc import Sequence

from gridpost.core.alerts import AlertKind, Condition, Severity
from gridpost.services.capacity.service import CapacityService
from gridpost.services.operations.alerting import Observer


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
