"""What every component can have wrong, as the alerts put it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gridpost.core.alerts import Severity
from gridpost.services.operations import observers
from support.component_directory import TestClock

END = datetime(2030, 6, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


async def test_a_certificate_is_an_alert_before_its_end_and_after_it_until_it_is_replaced() -> None:
    clock, ends = TestClock(END - 20 * DAY), [("console", END)]
    look = observers.ending(clock, lambda: ends, 14 * DAY)
    assert await look() == []
    clock.at = END - 10 * DAY
    [early] = await look()
    assert (early.severity, early.subject) == (Severity.WARNING, "console")
    assert "ends at 2030-06-01 12:00 UTC" in early.text
    clock.at = END + 400 * DAY
    [late] = await look()
    assert (late.key, late.severity) == (early.key, Severity.CRITICAL)
    assert "has expired at 2030-06-01 12:00 UTC" in late.text
    ends[:] = [("console", END + 1000 * DAY)]
    assert await look() == []
