"""How often a client asks (CMM 3.2.5.1): refused requests count too, so a flood ends by slowing down."""

from __future__ import annotations

from collections import deque


class RequestRate:
    """Of one client: the moments of its last requests, as many as are allowed in a period."""

    __slots__ = ("_limit", "_moments", "_period")

    def __init__(self, limit: int, period: float) -> None:
        self._limit = limit
        self._period = period
        self._moments: deque[float] = deque(maxlen=limit)

    def admits(self, now: float) -> bool:
        moments = self._moments
        exceeded = len(moments) == self._limit and now - moments[0] < self._period
        moments.append(now)
        return not exceeded
