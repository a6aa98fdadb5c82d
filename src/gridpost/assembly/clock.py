"""The clock of a running component (503 cl. 10: the machine is synchronised with a reliable source)."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """core.ports.Clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)
