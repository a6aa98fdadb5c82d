"""What a demo run came to; `gridpost demo --json` prints it, and scripts rely on its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class DemoResult:
    sent: int
    received: int
    failed: int
    proofs_verified: int
    by_channel: Mapping[str, int]
    seconds: float
    key_figures: Mapping[str, Any] | None = None
    """What the pipeline made of all journals; None where it did not run."""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """What capacity, bus and the node of MADES 1.1 did."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Parts that were not shown, each with the reason."""
    total_seconds: float = 0.0
    """Until everything was shown, key figures among it."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
