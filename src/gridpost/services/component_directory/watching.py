"""What a component-directory can have wrong: certificates that end, other directories that are silent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from gridpost.core.alerts import AlertKind, Condition
from gridpost.core.ports import Clock
from gridpost.services.component_directory.upkeep import Upkeep
from gridpost.services.operations.alerting import Observer
from gridpost.services.operations.observers import expiry


def books(upkeep: Upkeep, clock: Clock, warning: timedelta, silence: timedelta) -> Observer:
    started = clock.now()

    async def observe() -> Sequence[Condition]:
        now = clock.now()
        health = await upkeep.health()
        found = [
            expiry(
                f"{e.component} {e.kind} {e.certificate_id}",
                f"the {e.kind} certificate {e.certificate_id} of {e.component}",
                e.not_after,
                now,
            )
            for e in health.expiring
            if e.not_after - now <= warning
        ]
        for peer in health.peers:
            last = peer.succeeded_at or started
            if now - last > silence:
                text = f"the component-directory {peer.code} has not answered since {last:%Y-%m-%d %H:%M} UTC"
                found.append(Condition(AlertKind.NO_SYNCHRONISATION, peer.code, text))
        return found

    return observe
