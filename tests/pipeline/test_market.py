"""Market documents: curve types, revisions, and days of 23 and 25 hours."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest

from gridpost.bench._documents import document
from gridpost.pipeline.silver.market import parse_document

KNOWN = datetime(2026, 3, 1, tzinfo=UTC)
SPRING = datetime(2026, 3, 28, 23, tzinfo=UTC)  # the local day of 29 March has 23 hours
AUTUMN = datetime(2026, 10, 24, 22, tzinfo=UTC)  # that of 25 October has 25


def parsed(**options: object) -> dict:
    return parse_document(document(**options), "m1", KNOWN)


@pytest.mark.parametrize(("start", "hours"), [(SPRING, 23), (AUTUMN, 25)])
def test_short_and_long_days_have_their_own_number_of_hours(start, hours):
    row = parsed(start=start, hours=hours, resolution="PT60M")
    assert row["problem"] is None
    values = row["values"]
    assert len(values) == hours
    assert {v["delivery_day"] for v in values} == {(start + timedelta(hours=3)).date()}
    assert values[-1]["end"] == start + timedelta(hours=hours)
    assert all(a["end"] == b["start"] for a, b in pairwise(values))


def test_a_calendar_day_is_one_position_whatever_its_length():
    row = parsed(start=SPRING, hours=23 + 24, resolution="P1D")
    assert [v["delivery_day"] for v in row["values"]] == [date(2026, 3, 29), date(2026, 3, 30)]
    assert row["values"][0]["end"] - row["values"][0]["start"] == timedelta(hours=23)


def test_blocks_carry_their_value_forward():
    row = parsed(start=SPRING, hours=4, curve="A03", positions=[1, 3])
    assert [v["carried"] for v in row["values"]] == [False, True, False, True]
    assert row["values"][1]["quantity"] == row["values"][0]["quantity"]


@pytest.mark.parametrize("curve", ["A02", "A04", "A05"])
def test_points_stay_points(curve):
    row = parsed(start=SPRING, hours=4, curve=curve, positions=[2, 4])
    assert row["problem"] is None
    assert [(v["curve_type"], v["position"], v["carried"]) for v in row["values"]] == [
        (curve, 2, False),
        (curve, 4, False),
    ]
    assert [v["start"] for v in row["values"]] == [SPRING + timedelta(hours=n) for n in (1, 3)]


@pytest.mark.parametrize("curve", ["A02", "A04", "A05"])
def test_a_position_stands_once_in_a_period_whatever_its_curve(curve):
    row = parsed(start=SPRING, hours=4, curve=curve, positions=[2, 2])
    assert (row["problem"], row["values"]) == ("position 2 twice", [])


def test_breakpoints_of_one_series_do_not_overlap():
    content = with_another_period(SPRING + timedelta(minutes=105), "A05")
    assert "overlap" in parse_document(content, "m", SPRING)["problem"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"curve": "A01", "positions": [1, 3]}, "position 2 is missing"),
        ({"curve": "A03", "positions": [2]}, "position 1 is missing"),
        ({"curve": "A77"}, "curve type A77"),
        ({"positions": [1, 2, 2, 3, 4]}, "twice"),
        ({"positions": [1, 2, 3, 4, 5]}, "position 5 of 4"),
        ({"resolution": "PT7M"}, "not a multiple"),
        ({"resolution": "soon"}, "resolution"),
        ({"quantity": "1.0000000001"}, "more digits"),
        ({"quantity": "many"}, "not a number"),
        ({"revision": "x"}, "revisionNumber"),
    ],
)
def test_what_contradicts_itself_is_set_aside(options, problem):
    row = parsed(**{"start": SPRING, "hours": 4, **options})
    assert problem in row["problem"]
    assert row["values"] == []


def with_another_period(start: datetime, curve: str) -> bytes:
    """A series of two hours, and a second period of it that has quarters of an hour."""
    first = document(start=SPRING, hours=2, curve=curve)
    other = document(start=start, hours=1, curve=curve, resolution="PT15M")
    period = other[other.index(b"<Period>") : other.index(b"</TimeSeries>")]
    return first.replace(b"</TimeSeries>", period + b"</TimeSeries>")


def test_periods_of_a_series_that_overlap_are_set_aside():
    """Though no two of their points start at the same time."""
    content = with_another_period(SPRING + timedelta(minutes=105), "A01")
    row = parse_document(content, "m1", KNOWN)
    assert row["problem"] == "two periods of one series overlap at 2026-03-29T00:45:00+00:00"
    assert row["values"] == []
    behind = parse_document(with_another_period(SPRING + timedelta(hours=2), "A01"), "m1", KNOWN)
    assert (behind["problem"], behind["points"]) == (None, 6)
    # A04 is the curve that may overlap.
    content = with_another_period(SPRING + timedelta(minutes=105), "A04")
    assert parse_document(content, "m1", KNOWN)["points"] == 6


def test_quantities_are_decimals_with_a_normalised_column():
    (value,) = parsed(start=SPRING, hours=1, quantity="1500.5", unit="KWT")["values"]
    assert value["quantity"] == Decimal("1500.5")
    assert value["quantity_normalised"] == Decimal("1.5005")


@pytest.mark.parametrize("content", [b"", b"<a/>", b"not xml", b"<!DOCTYPE a><a/>"])
def test_other_contents_are_no_documents(content):
    assert parse_document(content, "m", KNOWN)["problem"]


@pytest.mark.timeout(900)
def test_the_newest_revision_holds_and_history_can_be_asked(spark, world):
    from gridpost.pipeline.incremental import read
    from gridpost.pipeline.market_holding import holding_documents, points_of
    from gridpost.pipeline.silver.market_views import holding, holding_points

    lake = world.lake
    rows = lake.table("content", "market_documents").read().to_pylist()
    assert sorted(row["revision"] for row in rows) == [1, 2, 3, 5, 6]
    (bad,) = lake.table("content", "market_quarantine").read().to_pylist()
    assert bad["problem"] == "not a market document"
    assert lake.table("content", "market_points").pointer().rows == 5 * 23
    # Each row says the segment and the journal row it comes from.
    bronze = lake.table("bronze", "journal").read().to_pylist()
    origins = {
        (r["message"]["message_id"], r["component"], r["instance"], r["sequence"], r["segment"])
        for r in bronze
        if r["message"] is not None and r["message"]["content"] is not None
    }
    for name in ("market_documents", "market_points", "market_quarantine"):
        names = ["message_id", "component", "instance", "sequence", "segment"]
        told = lake.table("content", name).read(names).to_pylist()
        assert {tuple(r.values()) for r in told} <= origins, name
    documents = read(spark, lake.table("content", "market_documents"))
    points = read(spark, lake.table("content", "market_points"))
    # D1 was cancelled by its revision 5; D0 holds in its revision 6.
    assert [row.revision for row in holding(documents).collect()] == [6]
    series = read(spark, lake.table("content", "market_series"))
    assert holding_points(points, documents, series).count() == 23
    known = {row["revision"]: row["known_at"] for row in rows}
    then = [r for r in known if known[r] <= known[1]]
    expected = {max(r for r in then if r % 2 == n) for n in (0, 1) if any(r % 2 == n for r in then)}
    found = {row.revision for row in holding(documents, known[1]).collect()}
    assert found == expected - {5}
    # The same question without Spark, as the command asks it.
    at = sorted({*known.values(), min(known.values()) - timedelta(seconds=1)})
    for moment in (None, *at):
        told = holding_documents(lake, moment)
        there = {row.message_id: row.revision for row in holding(documents, moment).collect()}
        assert {row["message_id"]: row["revision"] for row in told} == there
        ours = points_of(lake, told)
        assert ours.num_rows == 23 * len(told)
        assert set(ours["message_id"].to_pylist()) == set(there)
