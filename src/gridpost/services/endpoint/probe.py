"""Deep health: a real tracing message to a partner and back (503 cl. 5.12), not more often than needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gridpost.core.delivery import Status
from gridpost.core.refusal import Refusal
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.signals import StatusChange
from gridpost.services.endpoint.submission import Submission

NAME = "gridpost-health"
_FRESH_SECONDS = 15.0
"""Whoever asks more often gets the last answer: a monitor must not become traffic."""


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    partner: str
    message_type: str = "HEALTH"
    seconds: float = 30.0


class Probe:
    def __init__(
        self,
        context: EndpointContext,
        submission: Submission,
        health: Callable[[], Awaitable[dict[str, Any]]],
        settings: ProbeSettings | None,
    ) -> None:
        self._context = context
        self._submission = submission
        self._health = health
        self._settings = settings
        self._one = asyncio.Lock()
        self._last: tuple[float, dict[str, Any]] | None = None

    async def health(self) -> dict[str, Any]:
        """The ordinary health, and whether a message gets through."""
        found = await self._health()
        if self._settings is None:
            return {**found, "probe": {"ok": None, "reason": "operations.probe names no partner"}}
        probed = await self._probe(self._settings)
        return {**found, "ok": bool(found.get("ok")) and probed["ok"], "probe": probed}

    async def _probe(self, settings: ProbeSettings) -> dict[str, Any]:
        async with self._one:
            if self._last is not None and time.monotonic() - self._last[0] < _FRESH_SECONDS:
                return self._last[1]
            answer = await self._send(settings)
            self._last = (time.monotonic(), answer)
            return answer

    async def _send(self, settings: ProbeSettings) -> dict[str, Any]:
        ended: dict[str, StatusChange] = {}
        news = asyncio.Event()

        def told(change: StatusChange) -> None:
            if change.application == NAME and change.status in (Status.DELIVERED, Status.FAILED):
                ended[change.message_id] = change
                news.set()

        stop = self._context.signals.on_status(told)
        started = time.monotonic()
        try:
            message_id = await self._submission.test_connectivity(
                NAME, settings.partner, settings.message_type
            )
            async with asyncio.timeout(settings.seconds):
                while message_id not in ended:
                    await news.wait()
                    news.clear()
        except Refusal as refusal:
            return {"ok": False, "partner": settings.partner, "reason": refusal.message}
        except TimeoutError:
            reason = f"{settings.partner} has not answered in {settings.seconds:g} seconds"
            return {"ok": False, "partner": settings.partner, "reason": reason}
        finally:
            stop()
        change = ended[message_id]
        return {
            "ok": change.status is Status.DELIVERED,
            "partner": settings.partner,
            "message_id": message_id,
            "milliseconds": round((time.monotonic() - started) * 1000, 1),
            "reason": change.detail if change.status is Status.FAILED else "",
        }
