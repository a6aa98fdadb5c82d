"""Capacity as an operator hands it in: CSV, or a capacity document of IEC 62325-451-3.

Both become offers, one for each market time unit and direction. Quantities of a document are in MW
where it says so (`MAW`), in kW otherwise (`KWT`).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal, InvalidOperation

from lxml import etree

from gridpost.core.capacity import Offer
from gridpost.core.identifiers import clip
from gridpost.core.instant import Instant
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.xml import parse

COLUMNS = ("out_area", "in_area", "period_start")
_QUANTITIES = {"quantity_kw": 1, "quantity_mw": 1000}
_UNITS = {"KWT": 1, "MAW": 1000}
_POSITIONS = 100_000
"""Of one Period: more than two years of quarter hours is a mistyped date."""
_RESOLUTION = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?")


def read_capacity(data: bytes) -> list[Offer]:
    """By what it begins with."""
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return read_document(data)
    try:
        return read_csv(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise Refusal(Rule.BAD_CAPACITY, "the file is neither XML nor text in UTF-8") from None


def read_csv(text: str) -> list[Offer]:
    """With the columns out_area, in_area, period_start, and quantity_kw or quantity_mw."""
    rows = csv.DictReader(io.StringIO(text))
    found = [name.strip() for name in rows.fieldnames or ()]
    quantity = next((name for name in _QUANTITIES if name in found), None)
    missing = [name for name in COLUMNS if name not in found]
    if missing or quantity is None:
        wanted = ", ".join([*COLUMNS, "quantity_kw"])
        raise Refusal(Rule.BAD_CAPACITY, f"the first line must name the columns {wanted}")
    rows.fieldnames = found
    offers = []
    for row in rows:
        where = f"line {rows.line_num}"
        values = {name: (row.get(name) or "").strip() for name in found}
        try:
            start = Instant.parse(values["period_start"]).at
        except Refusal as refusal:
            raise Refusal(Rule.BAD_CAPACITY, f"{where}: {refusal.message}") from None
        kilowatts = _kilowatts(values[quantity], _QUANTITIES[quantity], where)
        offers.append(Offer(values["out_area"], values["in_area"], start, kilowatts))
    if not offers:
        raise Refusal(Rule.BAD_CAPACITY, "the file holds no capacity")
    return offers


def read_document(data: bytes) -> list[Offer]:
    """Capacity_MarketDocument, whatever the version of its namespace."""
    root = parse(data)
    if etree.QName(root).localname != "Capacity_MarketDocument":
        raise Refusal(
            Rule.BAD_CAPACITY,
            f"{clip(etree.QName(root).localname)} is not a Capacity_MarketDocument",
        )
    offers: list[Offer] = []
    for series in _children(root, "TimeSeries"):
        unit = _UNITS.get(_text(series, "measure_Unit.name", "quantity_Measure_Unit.name"))
        if unit is None:
            raise Refusal(Rule.BAD_CAPACITY, f"the unit must be one of {', '.join(_UNITS)}")
        out_area = _text(series, "out_Domain.mRID")
        in_area = _text(series, "in_Domain.mRID")
        for period in _children(series, "Period"):
            offers += _points(period, out_area, in_area, unit)
    if not offers:
        raise Refusal(Rule.BAD_CAPACITY, "the document holds no capacity")
    return offers


def _points(period: etree._Element, out_area: str, in_area: str, unit: int) -> list[Offer]:
    interval = next(_children(period, "timeInterval"), None)
    if interval is None:
        raise Refusal(Rule.BAD_CAPACITY, "a Period has no timeInterval")
    start, end = (Instant.parse(_seconds(_text(interval, name))).at for name in ("start", "end"))
    match = _RESOLUTION.fullmatch(_text(period, "resolution"))
    step = timedelta(hours=int(match[1] or 0), minutes=int(match[2] or 0)) if match else None
    if not step:
        raise Refusal(Rule.BAD_CAPACITY, "the resolution of a Period must be like PT60M")
    count = (end - start) // step
    if (end - start) % step or not 0 < count <= _POSITIONS:
        raise Refusal(
            Rule.BAD_CAPACITY,
            f"a timeInterval must be 1 to {_POSITIONS} whole steps of its resolution",
            f"from {start.isoformat()} to {end.isoformat()}",
        )
    points: dict[int, int] = {}
    for point in _children(period, "Point"):
        number = _text(point, "position")
        where = f"position {clip(number)}"
        if not number.isdecimal() or not 1 <= int(number) <= count or int(number) in points:
            raise Refusal(Rule.BAD_CAPACITY, f"{where} is not a new one between 1 and {count}")
        points[int(number)] = _kilowatts(_text(point, "quantity"), unit, where)
    if 1 not in points:
        raise Refusal(Rule.BAD_CAPACITY, "a Period has no Point with position 1")
    offers, quantity = [], 0
    for position in range(1, count + 1):
        # A position that is left out repeats the one before it (curve type A03).
        quantity = points.get(position, quantity)
        offers.append(Offer(out_area, in_area, start + (position - 1) * step, quantity, step))
    return offers


def _children(element: etree._Element, name: str) -> Iterator[etree._Element]:
    return (child for child in element.iterchildren("{*}" + name))


def _text(element: etree._Element, *names: str) -> str:
    for name in names:
        for child in element.iterchildren("{*}" + name):
            return (child.text or "").strip()
    raise Refusal(Rule.BAD_CAPACITY, f"{etree.QName(element).localname} has no {names[0]}")


def _seconds(text: str) -> str:
    """These documents write minutes only."""
    return re.sub(r"(T\d\d:\d\d)(?=Z|[+-]|$)", r"\1:00", text)


def _kilowatts(text: str, unit: int, where: str) -> int:
    try:
        kilowatts = Decimal(text) * unit
        whole = int(kilowatts)
    except (InvalidOperation, ValueError, OverflowError):
        raise Refusal(Rule.BAD_CAPACITY, f"{where}: '{clip(text)}' is not a quantity") from None
    if whole != kilowatts or not 0 <= whole < 2**53:
        raise Refusal(Rule.BAD_CAPACITY, f"{where}: '{clip(text)}' is not a whole number of kW")
    return whole
