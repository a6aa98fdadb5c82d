"""When people are told of an alert: once, again after a while, when it is over, and not at night."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.alerts import (
    AlertBook,
    AlertKind,
    AlertPolicy,
    Condition,
    Phase,
    QuietHours,
    Severity,
    decide,
)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
POLICY = AlertPolicy(UTC, repeat=timedelta(hours=1))
NIGHT = AlertPolicy(UTC, timedelta(hours=1), (QuietHours(time(22), time(6)),))
DISK = Condition(AlertKind.DISK_SPACE, "data", "little is free")
CRITICAL = Condition(AlertKind.DISK_SPACE, "data", "nothing is free", Severity.CRITICAL)


def test_a_condition_is_told_once_and_again_only_after_a_while():
    book, told = decide(AlertBook(), [DISK], NOON, POLICY)
    assert [(n.phase, n.condition) for n in told] == [(Phase.RAISED, DISK)]
    book, told = decide(book, [DISK], NOON + timedelta(minutes=59), POLICY)
    assert told == []
    book, told = decide(book, [DISK], NOON + timedelta(minutes=60), POLICY)
    assert [n.phase for n in told] == [Phase.REMINDED]
    assert told[0].since == NOON


def test_its_end_is_told_with_its_beginning():
    book, _ = decide(AlertBook(), [DISK], NOON, POLICY)
    book, told = decide(book, [], NOON + timedelta(minutes=5), POLICY)
    assert [(n.phase, n.since) for n in told] == [(Phase.CLEARED, NOON)]
    assert decide(book, [], NOON + timedelta(minutes=6), POLICY)[1] == []


def test_getting_critical_is_told_at_once():
    book, _ = decide(AlertBook(), [DISK], NOON, POLICY)
    _, told = decide(book, [CRITICAL], NOON + timedelta(minutes=1), POLICY)
    assert [n.condition for n in told] == [CRITICAL]


def test_quiet_hours_hold_back_until_they_end():
    late = datetime(2026, 6, 1, 23, tzinfo=UTC)
    book, told = decide(AlertBook(), [DISK], late, NIGHT)
    assert told == []
    book, told = decide(book, [DISK], late + timedelta(hours=6), NIGHT)
    assert told == []
    _, told = decide(book, [DISK], late + timedelta(hours=7), NIGHT)
    assert [(n.phase, n.since) for n in told] == [(Phase.RAISED, late)]


def test_what_came_and_went_in_quiet_hours_is_never_told():
    late = datetime(2026, 6, 1, 23, tzinfo=UTC)
    book, _ = decide(AlertBook(), [DISK], late, NIGHT)
    assert decide(book, [], late + timedelta(hours=8), NIGHT)[1] == []


def test_the_end_of_an_alert_wakes_nobody_and_is_told_in_the_morning():
    evening = datetime(2026, 6, 1, 21, tzinfo=UTC)
    book, _ = decide(AlertBook(), [DISK], evening, NIGHT)
    book, told = decide(book, [], evening + timedelta(hours=3), NIGHT)
    assert (told, dict(book.open)) == ([], {})
    # It comes back and goes again: nobody hears of that either.
    book, told = decide(book, [DISK], evening + timedelta(hours=4), NIGHT)
    assert (told, set(book.open)) == ([], {DISK.key})
    book, told = decide(book, [], evening + timedelta(hours=5), NIGHT)
    assert told == []
    book, [notice] = decide(book, [], evening + timedelta(hours=10), NIGHT)
    assert (notice.phase, notice.since) == (Phase.CLEARED, evening)
    assert decide(book, [], evening + timedelta(hours=11), NIGHT)[1] == []


def test_critical_alerts_know_no_quiet_hours():
    late = datetime(2026, 6, 1, 23, tzinfo=UTC)
    assert len(decide(AlertBook(), [CRITICAL], late, NIGHT)[1]) == 1


def test_quiet_hours_are_those_of_the_configured_zone():
    policy = AlertPolicy(ZoneInfo("Europe/Brussels"), quiet=(QuietHours(time(22), time(6)),))
    in_brussels_summer = datetime(2026, 7, 1, 20, 30, tzinfo=UTC)  # 22:30 there
    assert policy.silent(DISK, in_brussels_summer)
    assert not policy.silent(DISK, in_brussels_summer - timedelta(hours=1))


conditions = st.lists(
    st.builds(
        Condition,
        st.sampled_from(AlertKind),
        st.sampled_from(["a", "b"]),
        st.text(max_size=3),
        st.sampled_from(Severity),
    ),
    max_size=5,
)


@given(st.lists(conditions, max_size=12))
def test_every_clearing_follows_a_raising_and_the_book_holds_what_is_wrong(looks):
    book = AlertBook()
    raised: set[str] = set()
    for number, found in enumerate(looks):
        book, notices = decide(book, found, NOON + timedelta(minutes=20 * number), NIGHT)
        assert set(book.open) == {condition.key for condition in found}
        for notice in notices:
            key = notice.condition.key
            if notice.phase is Phase.RAISED:
                assert key not in raised
                raised.add(key)
            elif notice.phase is Phase.CLEARED:
                raised.remove(key)
            else:
                assert key in raised
