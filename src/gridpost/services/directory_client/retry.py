"""When the next attempt is made after a failure: later each time, and never all at the same moment."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(slots=True)
class Backoff:
    times: Callable[[], tuple[timedelta, timedelta]]
    """The first and the longest; both may be changed while the component runs."""
    failures: int = 0
    random: random.Random = field(default_factory=random.Random)

    def succeeded(self) -> None:
        self.failures = 0

    def failed(self) -> timedelta:
        """Half to the whole of a time that doubles: a directory that comes back is not run over."""
        doublings = min(self.failures, 20)
        first, most = self.times()
        full = min(most, first * (1 << doublings))
        self.failures += 1
        return full * (0.5 + self.random.random() / 2)
