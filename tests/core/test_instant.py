"""Times keep the text they came in."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.instant import Instant
from gridpost.core.refusal import Refusal


@given(st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1)))
def test_what_we_write_we_read_back(at: datetime) -> None:
    written = Instant.of(at.replace(tzinfo=UTC))
    read = Instant.parse(written.text)
    assert read == written
    assert read.text == written.text
    assert Instant.of_milliseconds(written.milliseconds).text == written.text


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2024-01-01T00:00:00+01:00", "2023-12-31T23:00:00.000Z"),
        ("2024-01-01T00:00:00.123456789Z", "2024-01-01T00:00:00.123Z"),
        ("2024-02-29T24:00:00Z", "2024-03-01T00:00:00.000Z"),
        ("2024-01-01T00:00:00", "2024-01-01T00:00:00.000Z"),
        ("2024-01-01T00:00:00-14:00", "2024-01-01T14:00:00.000Z"),
    ],
)
def test_every_form_of_xsd_date_time_is_read_and_its_text_kept(text: str, utc: str) -> None:
    read = Instant.parse(text)
    assert str(read) == text
    assert Instant.of(read.at).text == utc


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-01-01",
        "2024-01-01 00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-02-30T00:00:00Z",
        "2024-01-01T24:00:01Z",
        "2024-01-01T24:00:00.5Z",
        "2024-01-01T00:00:00+15:00",
        "2024-01-01T00:00:00+01:60",
        "0000-01-01T00:00:00Z",
        "9999-12-31T24:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "٢٠٢٤-01-01T00:00:00Z",
        "2024-01-01T00:00:00Z\n",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match="not a date and time"):
        Instant.parse(text)


def test_a_timestamp_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(Refusal):
        Instant.of_milliseconds(2**62)


def test_instants_compare_by_time_whatever_their_text() -> None:
    zulu = Instant.parse("2024-01-01T00:00:00Z")
    paris = Instant.parse("2024-01-01T01:00:00+01:00")
    assert zulu == paris
    assert zulu <= paris
    assert Instant.of(datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1)))) < zulu


@given(
    st.from_regex(r"\A[0-2][0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z\Z")
    | st.from_regex(r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z")
    | st.sampled_from(["2026-01-31T24:00:00.000Z", "2026-01-31T24:00:00.001Z"])
)
def test_our_own_form_is_read_like_any_other(text: str) -> None:
    def outcome(read: Callable[[str], Instant]) -> object:
        try:
            instant = read(text)
        except Refusal as refusal:
            return refusal.rule, refusal.message
        return instant.at, instant.at.tzinfo, instant.text

    assert outcome(Instant.parse) == outcome(Instant.parse_any_form)
