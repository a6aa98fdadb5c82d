"""Maximum durations of deliveries (503 cl. 5.7)."""

from datetime import timedelta

import pytest

from gridpost.core.acceptance import DEFAULT_MAXIMUM_DURATION, MaximumDurations
from gridpost.core.identifiers import MessageTypePattern
from support.builders import NOW

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.mark.req("503-5.7-b")
@pytest.mark.req("503-5.7-d")
def test_each_message_type_has_its_duration_counted_from_acceptance() -> None:
    durations = MaximumDurations(
        by_type={
            MessageTypePattern("A"): MINUTE,
            MessageTypePattern("B*"): HOUR,
            MessageTypePattern("BB*"): 2 * HOUR,
            MessageTypePattern("*"): 3 * HOUR,
        }
    )
    assert durations.expiration("A", NOW) == NOW + MINUTE
    assert durations.of("BX") == HOUR
    assert durations.of("BBX") == 2 * HOUR
    assert durations.of("AX") == 3 * HOUR


@pytest.mark.req("503-5.7-c")
@pytest.mark.req("m11-3.11.2-a", component="endpoint")
def test_a_type_without_a_setting_has_the_default_and_the_default_cannot_go() -> None:
    assert MaximumDurations().of("ANY") == DEFAULT_MAXIMUM_DURATION
    assert MaximumDurations(HOUR, {MessageTypePattern("A"): MINUTE}).of("B") == HOUR
    for bad in (timedelta(0), -MINUTE):
        with pytest.raises(ValueError, match="positive"):
            MaximumDurations(bad)
        with pytest.raises(ValueError, match="positive"):
            MaximumDurations(by_type={MessageTypePattern("A"): bad})
