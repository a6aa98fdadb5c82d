"""Capacity as operators hand it in: CSV and Capacity_MarketDocument (IEC 62325-451-3) become offers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.capacity import Offer
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.cmm.capacity_file import read_capacity

EON, DK1 = "10YDE-EON------1", "10YDK-1--------W"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def document(
    points="<Point><position>1</position><quantity>3.5</quantity></Point>",
    *,
    start="2026-03-01T12:00Z",
    end="2026-03-01T15:00Z",
    resolution="PT60M",
    unit="<measure_Unit.name>MAW</measure_Unit.name>",
    root="Capacity_MarketDocument",
) -> bytes:
    return f"""<?xml version="1.0" encoding="UTF-8"?>
    <{root} xmlns="urn:iec62325.351:tc57wg16:451-3:capacity:7:1"><mRID>1</mRID><TimeSeries>
      <in_Domain.mRID codingScheme="A01">{DK1}</in_Domain.mRID>
      <out_Domain.mRID codingScheme="A01">{EON}</out_Domain.mRID>{unit}
      <Period><timeInterval><start>{start}</start><end>{end}</end></timeInterval>
      <resolution>{resolution}</resolution>{points}</Period></TimeSeries></{root}>""".encode()


def point(position, quantity) -> str:
    return f"<Point><position>{position}</position><quantity>{quantity}</quantity></Point>"


def test_csv_is_read_in_kw_or_mw_in_any_order_of_columns():
    kilowatts = (
        f"out_area,in_area,period_start,quantity_kw\n{EON},{DK1},2026-03-01T12:00:00Z,3500\n"
    )
    assert read_capacity(kilowatts.encode()) == [Offer(EON, DK1, NOON, 3500)]
    megawatts = (
        "\ufeffperiod_start , quantity_mw, in_area, out_area, remark\r\n"
        f"2026-03-01T13:00:00+01:00, 3.5, {DK1}, {EON}, by hand\r\n"
    )
    assert read_capacity(megawatts.encode()) == [Offer(EON, DK1, NOON, 3500)]


@given(st.dictionaries(st.integers(0, 99), st.integers(0, 2**53 - 1), min_size=1))
def test_every_line_of_csv_becomes_the_offer_it_says(quantities):
    lines = ["out_area,in_area,period_start,quantity_kw"]
    offers = [Offer(EON, DK1, NOON + n * HOUR, quantity) for n, quantity in quantities.items()]
    lines += [f"{o.out_area},{o.in_area},{o.start.isoformat()},{o.quantity}" for o in offers]
    assert read_capacity("\n".join(lines).encode()) == offers


def test_a_document_repeats_a_position_that_is_left_out():
    found = read_capacity(document(point(1, "3.5") + point(3, "0.001")))
    assert found == [
        Offer(EON, DK1, NOON, 3500, HOUR),
        Offer(EON, DK1, NOON + HOUR, 3500, HOUR),
        Offer(EON, DK1, NOON + 2 * HOUR, 1, HOUR),
    ]


@pytest.mark.parametrize(
    ("unit", "kilowatts"),
    [
        ("<measure_Unit.name>KWT</measure_Unit.name>", 7),
        ("<quantity_Measure_Unit.name>MAW</quantity_Measure_Unit.name>", 7000),
    ],
)
@pytest.mark.parametrize(
    ("resolution", "minutes"), [("PT15M", 15), ("PT30M", 30), ("PT1H", 60), ("PT60M", 60)]
)
def test_a_document_says_its_unit_and_its_resolution(unit, kilowatts, resolution, minutes):
    found = read_capacity(document(point(1, 7), unit=unit, resolution=resolution))
    step = timedelta(minutes=minutes)
    assert found == [
        Offer(EON, DK1, NOON + number * step, kilowatts, step) for number in range(180 // minutes)
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\xff\xfe\x00",
        b"a,b\n1,2",
        b"out_area,in_area,period_start\n",
        b"out_area,in_area,period_start,quantity_kw\n",
        f"out_area,in_area,period_start,quantity_kw\n{EON},{DK1},tomorrow,1".encode(),
        f"out_area,in_area,period_start,quantity_kw\n{EON},{DK1},2026-03-01T12:00Z,-1".encode(),
        f"out_area,in_area,period_start,quantity_kw\n{EON},{DK1},2026-03-01T12:00Z,1.5".encode(),
        f"out_area,in_area,period_start,quantity_kw\n{EON},{DK1},2026-03-01T12:00Z,NaN".encode(),
        f"out_area,in_area,period_start,quantity_mw\n{EON},{DK1},2026-03-01T12:00Z,1e300".encode(),
        document(root="Publication_MarketDocument"),
        document(unit=""),
        document(unit="<measure_Unit.name>C62</measure_Unit.name>"),
        document(resolution="P1D"),
        document(resolution="PT0M"),
        document(""),
        document(point(2, 1)),
        document(point(1, 1) + point(1, 2)),
        document(point(1, 1) + point(4, 2)),
        document(point("one", 1)),
        document(point(1, "much")),
        document(point(1, "0.0001")),
        # Half an hour would be left without an offer.
        document(point(1, 1), end="2026-03-01T14:30Z"),
        document(point(1, 1), end="2026-03-01T11:00Z"),
        # A mistyped year.
        document(point(1, 1), end="2062-03-01T12:00Z"),
        document(point(1, 1)).replace(b"timeInterval>", b"interval>"),
        document(point(1, 1)).replace(b"TimeSeries>", b"Series>"),
    ],
)
def test_what_is_no_capacity_is_refused(wrong):
    with pytest.raises(Refusal) as refused:
        read_capacity(wrong)
    assert refused.value.rule is Rule.BAD_CAPACITY


def test_xml_that_is_broken_or_has_entities_is_refused():
    for wrong in (b"<a", b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"):
        with pytest.raises(Refusal):
            read_capacity(wrong)
