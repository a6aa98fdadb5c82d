"""A turn of the broker bench begins when both brokers are done with the one before."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from gridpost.bench import broker


class Working:
    """A server that has used so much processor time each time that it is asked."""

    def __init__(self, seconds: Iterable[float]) -> None:
        self._seconds = iter(seconds)
        self.asked = 0

    def cpu_seconds(self) -> float:
        self.asked += 1
        return next(self._seconds)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "SETTLE_SECONDS", 0.0)


def test_a_turn_waits_for_a_broker_that_still_works() -> None:
    idle, working = Working(itertools.repeat(7.0)), Working([1.0, 1.2, 1.2, 1.3, 1.3, 1.31])
    broker._settle(idle, working)
    assert working.asked == 6


def test_a_turn_does_not_wait_for_ever() -> None:
    never_done = Working(itertools.count(0.0, 1.0))
    broker._settle(never_done)
    assert never_done.asked == 2 * broker.SETTLE_LOOKS
