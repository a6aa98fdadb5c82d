"""IEC 62325-451 documents: any `*_MarketDocument` to one row of the document and one for each point.

A position becomes a time by its resolution from the start of its period, in UTC; days of 23 and 25
hours need no rule of their own that way. What is contradictory is set aside with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from lxml import etree

from gridpost.core.instant import Instant
from gridpost.core.refusal import Refusal
from gridpost.wire.xml import parse_here
from gridpost.wire.xml_shape import in_own_thread

SCALE = 8
DECIMAL = pa.decimal128(38, SCALE)
TIME = pa.timestamp("us", tz="UTC")
DEFAULT_ZONE = "Europe/Brussels"
SEQUENTIAL, POINTS, BLOCKS = "A01", "A02", "A03"
OVERLAPPING, BREAKPOINTS = "A04", "A05"
CURVES = (SEQUENTIAL, POINTS, BLOCKS, OVERLAPPING, BREAKPOINTS)
# 62325-451: documents that end what an earlier one said.
ENDED = frozenset({"A09", "A13"})  # cancelled, withdrawn
# To megawatts and megawatt-hours.
_FACTORS = {
    "MAW": Decimal(1),
    "MWH": Decimal(1),
    "KWT": Decimal("0.001"),
    "KWH": Decimal("0.001"),
    "GWH": Decimal(1000),
}
# Currency for one of these; a price becomes currency for one megawatt-hour.
_PRICE_FACTORS = {
    "MWH": Decimal(1),
    "MAW": Decimal(1),
    "KWH": Decimal(1000),
    "KWT": Decimal(1000),
    "GWH": Decimal("0.001"),
}
# What the tables hold without a look: most numbers of most documents.
_PLAIN_NUMBER = re.compile(r"[+-]?\d{1,29}(?:\.\d{1,8})?")
_PLAIN_NUMBERS = re.compile(rf"{_PLAIN_NUMBER.pattern}(?: {_PLAIN_NUMBER.pattern})*+")
_RESOLUTION = re.compile(
    r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?"
)
_MAX_POINTS = 1_000_000
QUARTER_US = 15 * 60 * 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = EPOCH.toordinal()

DOCUMENTS = pa.schema(
    [
        ("message_id", pa.string()),
        ("document_mrid", pa.string()),
        ("revision", pa.int64()),
        ("document", pa.string()),
        ("type", pa.string()),
        ("process_type", pa.string()),
        ("status", pa.string()),
        ("created", TIME),
        ("sender", pa.string()),
        ("receiver", pa.string()),
        ("period_start", TIME),
        ("period_end", TIME),
        ("series", pa.int64()),
        ("points", pa.int64()),
        ("problem", pa.string()),
        ("known_at", TIME),
        ("ended", pa.bool_()),
    ]
)
POINT = pa.struct(
    [
        ("series_mrid", pa.string()),
        ("business_type", pa.string()),
        ("in_domain", pa.string()),
        ("out_domain", pa.string()),
        ("curve_type", pa.string()),
        ("resolution", pa.string()),
        ("unit", pa.string()),
        ("currency", pa.string()),
        ("position", pa.int64()),
        ("start", TIME),
        ("end", TIME),
        ("delivery_day", pa.date32()),
        ("quantity", DECIMAL),
        ("quantity_normalised", DECIMAL),
        ("price", DECIMAL),
        ("price_normalised", DECIMAL),
        ("carried", pa.bool_()),
    ]
)
PARSED = pa.schema([*DOCUMENTS, pa.field("values", pa.list_(POINT))])
# The same for Spark.
SPARK_PARSED = (
    "message_id string, document_mrid string, revision bigint, document string, type string, "
    "process_type string, status string, created timestamp, sender string, receiver string, "
    "period_start timestamp, period_end timestamp, series bigint, points bigint, problem string, "
    "known_at timestamp, ended boolean, values array<struct<series_mrid string, "
    "business_type string, in_domain string, out_domain string, curve_type string, "
    "resolution string, unit string, currency string, position bigint, start timestamp, "
    "end timestamp, delivery_day date, quantity decimal(38,8), "
    "quantity_normalised decimal(38,8), price decimal(38,8), price_normalised decimal(38,8), "
    "carried boolean>>"
)


class Contradiction(Exception):
    """The document cannot mean what it says."""


@dataclass(frozen=True, slots=True)
class _Period:
    start: datetime
    end: datetime
    resolution: str
    step: timedelta | None
    months: int

    def at(self, position: int, zone: ZoneInfo) -> datetime:
        """Where a position starts; days and months are those of the market's zone."""
        if self.step is not None:
            return self.start + (position - 1) * self.step
        local = self.start.astimezone(zone)
        if self.months < 0:
            moved = local.replace(tzinfo=None) + timedelta(days=-self.months * (position - 1))
            return moved.replace(tzinfo=zone).astimezone(self.start.tzinfo)
        month = local.month - 1 + self.months * (position - 1)
        moved = local.replace(year=local.year + month // 12, month=month % 12 + 1)
        return moved.astimezone(self.start.tzinfo)

    def extents(self, positions: list[int], zone: ZoneInfo) -> tuple[list[int], list[int]]:
        """Where positions start and end, in microseconds."""
        if self.step is not None:
            first, step = _us(self.start), self.step // timedelta(microseconds=1)
            begins = [first + (position - 1) * step for position in positions]
            return begins, [at + step for at in begins]
        return (
            [_us(self.at(position, zone)) for position in positions],
            [_us(self.at(position + 1, zone)) for position in positions],
        )

    def count(self, zone: ZoneInfo) -> int:
        if self.step is not None:
            whole, rest = divmod(self.end - self.start, self.step)
            if rest:
                raise Contradiction("the period is not a multiple of its resolution")
        else:
            whole = 0
            while self.at(whole + 1, zone) < self.end:
                whole += 1
            if self.at(whole + 1, zone) != self.end:
                raise Contradiction("the period is not a multiple of its resolution")
        if not 0 < whole <= _MAX_POINTS:
            raise Contradiction(f"a period of {whole} positions")
        return int(whole)


def _us(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def parse_documents(
    zone: str = DEFAULT_ZONE,
) -> Any:
    """For mapInArrow: message_id, known_at and content in, `PARSED` out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield in_own_thread(partial(_parse_batch, batch, zone))

    return run


def _parse_batch(batch: pa.RecordBatch, zone: str) -> pa.RecordBatch:
    points = _Points()
    rows, offsets = [], [0]
    for row in batch.select(["message_id", "known_at", "content"]).to_pylist():
        rows.append(_parse(row["content"], row["message_id"], row["known_at"], zone, points))
        offsets.append(len(points))
    values = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), points.to_arrow())
    documents = pa.RecordBatch.from_pylist(rows, schema=DOCUMENTS)
    return pa.RecordBatch.from_arrays([*documents.columns, values], schema=PARSED)


def parse_document(
    content: bytes, message_id: str, known_at: datetime, zone: str = DEFAULT_ZONE
) -> dict[str, Any]:
    """One row; a document that is not one, or not a sound one, has a problem instead of points."""
    points = _Points()
    row = in_own_thread(lambda: _parse(content, message_id, known_at, zone, points))
    return {**row, "values": points.to_arrow().to_pylist()}


def _parse(
    content: bytes, message_id: str, known_at: datetime, zone: str, points: _Points
) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(DOCUMENTS.names)
    row.update(message_id=message_id, known_at=known_at, series=0, points=0, ended=False)
    try:
        root = parse_here(content)
    except Refusal as refusal:
        return {**row, "problem": f"not XML: {refusal.message}"}
    name = etree.QName(root).localname
    if not name.endswith("_MarketDocument"):
        return {**row, "document": name, "problem": "not a market document"}
    before = len(points)
    try:
        row.update(_head(root, name))
        series = _children(root, "TimeSeries")
        for one in series:
            _series(one, zone, points)
        row.update(series=len(series), points=len(points) - before)
    except (Contradiction, Refusal, ValueError, OverflowError) as error:
        points.cut(before)
        return {**row, "document": name, "problem": str(error) or type(error).__name__}
    return row


class _Points:
    """Points of many documents by column: building an object for each would cost more than XML."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {field.name: [] for field in POINT}

    def __len__(self) -> int:
        return len(self.columns["position"])

    def cut(self, length: int) -> None:
        for column in self.columns.values():
            del column[length:]

    def to_arrow(self) -> pa.StructArray:
        arrays = []
        for field in POINT:
            values = self.columns[field.name]
            if field.type == DECIMAL:
                arrays.append(pa.array(values, pa.string()).cast(DECIMAL))
            else:
                arrays.append(pa.array(values, field.type))
        return pa.StructArray.from_arrays(arrays, fields=list(POINT))


def _head(root: Any, name: str) -> dict[str, Any]:
    interval = _child(
        root,
        "period.timeInterval",
        "schedule_Time_Period.timeInterval",
        "schedule_Period.timeInterval",
        "time_Period.timeInterval",
    )
    status = _text(root, "docStatus/value") or _text(root, "docStatus")
    revision = _text(root, "revisionNumber") or "1"
    if not revision.isdigit():
        raise Contradiction(f"revisionNumber {revision} is not a number")
    return {
        "document_mrid": _text(root, "mRID"),
        "revision": int(revision),
        "document": name,
        "type": _text(root, "type"),
        "process_type": _text(root, "process.processType"),
        "status": status,
        "ended": status in ENDED,
        "created": _time(_text(root, "createdDateTime")),
        "sender": _text(root, "sender_MarketParticipant.mRID"),
        "receiver": _text(root, "receiver_MarketParticipant.mRID"),
        "period_start": None if interval is None else _time(_text(interval, "start")),
        "period_end": None if interval is None else _time(_text(interval, "end")),
    }


def _series(series: Any, zone: str, points: _Points) -> None:
    curve = _text(series, "curveType") or SEQUENTIAL
    if curve not in CURVES:
        raise Contradiction(f"curve type {curve} is not known")
    unit = (
        _text(series, "quantity_Measure_Unit.name", "measurement_Unit.name", "measure_Unit.name")
        or ""
    )
    price_unit = _text(series, "price_Measure_Unit.name") or "MWH"
    before = len(points)
    for element in _children(series, "Period", "Series_Period"):
        _period(element, curve, (unit, price_unit), zone, points)
    count = len(points) - before
    for name, value in (
        ("series_mrid", _text(series, "mRID")),
        ("business_type", _text(series, "businessType")),
        ("in_domain", _text(series, "in_Domain.mRID")),
        ("out_domain", _text(series, "out_Domain.mRID")),
        ("curve_type", curve),
        ("unit", unit),
        ("currency", _text(series, "currency_Unit.name")),
    ):
        points.columns[name] += [value] * count
    starts = points.columns["start"][before:]
    if curve != OVERLAPPING and len(set(starts)) != len(starts):
        raise Contradiction("two points of one series at the same time")


def _period(element: Any, curve: str, units: tuple[str, str], zone: str, points: _Points) -> None:
    interval = _child(element, "timeInterval")
    if interval is None:
        raise Contradiction("a period without its interval")
    start, end = _time(_text(interval, "start")), _time(_text(interval, "end"))
    if start is None or end is None or end <= start:
        raise Contradiction("a period that ends before it starts")
    resolution = _text(element, "resolution") or ""
    period = _Period(start, end, resolution, *_resolution(resolution))
    count = period.count(ZoneInfo(zone))
    said: dict[int, tuple[str | None, str | None]] = {}
    for text, quantity, price in _read_points(element):
        position = int(text) if text.isdigit() else 0
        if not 1 <= position <= count:
            raise Contradiction(f"position {text} of {count}")
        if position in said:
            raise Contradiction(f"position {position} twice")
        said[position] = quantity, price
    if curve == SEQUENTIAL and len(said) != count:
        missing = next(p for p in range(1, count + 1) if p not in said)
        raise Contradiction(f"position {missing} is missing, which curve type A01 does not allow")
    if curve == BLOCKS and 1 not in said:
        raise Contradiction("position 1 is missing: nothing to carry forward")
    positions = list(range(1, count + 1)) if curve == BLOCKS else sorted(said)
    # A03: a value holds until the next one.
    last: tuple[str | None, str | None] = (None, None)
    held = [last := said.get(position, last) for position in positions]
    quantities, prices = _numbers([q for q, _ in held]), _numbers([p for _, p in held])
    begins, ends = period.extents(positions, ZoneInfo(zone))
    columns = points.columns
    columns["resolution"] += [resolution] * len(positions)
    columns["position"] += positions
    columns["start"] += begins
    columns["end"] += ends
    columns["delivery_day"] += [_day(at // QUARTER_US, zone) for at in begins]
    columns["quantity"] += quantities
    columns["quantity_normalised"] += _times(quantities, _FACTORS.get(units[0]))
    columns["price"] += prices
    columns["price_normalised"] += _times(prices, _PRICE_FACTORS.get(units[1]))
    columns["carried"] += [position not in said for position in positions]


def _read_points(period: Any) -> Iterable[tuple[str, str | None, str | None]]:
    """Position, quantity and price of each point."""
    namespace = period.tag.rpartition("}")[0][1:]
    count, *columns = (find(period) for find in _finders(namespace))
    whole = int(count)
    if len(columns[0]) == whole and all(len(c) in (0, whole) for c in columns[1:]):
        # Each point has one of each, or none has: the usual case, read by columns.
        position, quantity, price = (
            [text.strip() or None for text in column] or [None] * whole for column in columns
        )
        return zip([p or "" for p in position], quantity, price, strict=True)
    return [_point(point) for point in _children(period, "Point")]


@lru_cache(maxsize=256)
def _finders(namespace: str) -> tuple[etree.XPath, ...]:
    names = {"m": namespace} if namespace else None
    prefix = "m:" if namespace else ""
    return tuple(
        etree.XPath(path, namespaces=names, smart_strings=False)
        for path in (
            f"count({prefix}Point)",
            *(
                f"{prefix}Point/{prefix}{name}[1]/text()"
                for name in ("position", "quantity", "price.amount")
            ),
        )
    )


def _point(point: Any) -> tuple[str, str | None, str | None]:
    position, quantity, price = "", None, None
    for child in point:
        name = _local(child.tag)
        text = (child.text or "").strip() or None
        if name == "position":
            position = text or ""
        elif name == "quantity":
            quantity = text
        elif name == "price.amount":
            price = text
    return position, quantity, price


@lru_cache(maxsize=4096)
def _local(tag: Any) -> str:
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


@lru_cache(maxsize=65536)
def _day(quarter: int, zone: str) -> int:
    """The local day, in days since 1970; every zone is a whole number of quarters off UTC."""
    at = datetime.fromtimestamp(quarter * QUARTER_US // 1_000_000, ZoneInfo(zone))
    return at.toordinal() - EPOCH_DAY


def _resolution(text: str) -> tuple[timedelta | None, int]:
    """A fixed step, or months (positive) or days (negative) of the calendar."""
    match = _RESOLUTION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise Contradiction(f"resolution {text!r} is not known")
    years, months, days, hours, minutes, seconds = (int(g or 0) for g in match.groups())
    fixed = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    calendar = years * 12 + months
    if sum(map(bool, (fixed, calendar, days))) != 1:
        raise Contradiction(f"resolution {text!r} is not known")
    if fixed:
        return fixed, 0
    return None, calendar or -days


def _numbers(texts: list[str | None]) -> list[str | None]:
    """All at once where they are plain."""
    if None not in texts and _PLAIN_NUMBERS.fullmatch(" ".join(texts)):  # type: ignore[arg-type]
        return texts
    return [_number(text) for text in texts]


def _number(text: str | None) -> str | None:
    """As the tables hold it, never rounded: what does not fit is a problem of the document."""
    if text is None or _PLAIN_NUMBER.fullmatch(text):
        return text
    try:
        return _fitting(Decimal(text))
    except InvalidOperation:
        raise Contradiction(f"{text!r} is not a number") from None


def _times(values: list[str | None], factor: Decimal | None) -> list[str | None]:
    if factor is None:
        return [None] * len(values)
    if factor == 1:
        return values
    return [None if v is None else _fitting(Decimal(v) * factor) for v in values]


def _fitting(value: Decimal) -> str:
    if not value.is_finite():
        raise Contradiction(f"{value} is not a number")
    scaled = value.quantize(Decimal(1).scaleb(-SCALE))
    if scaled != value or abs(value) >= Decimal(10) ** 29:
        raise Contradiction(f"{value} has more digits than the tables hold")
    return f"{scaled:f}"


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    # Intervals are written without seconds: 2026-03-28T23:00Z.
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\dZ", text):
        text = f"{text[:-1]}:00Z"
    return Instant.parse(text).at


def _children(element: Any, *names: str) -> list[Any]:
    return [e for e in element if _local(e.tag) in names]


def _child(element: Any, *names: str) -> Any:
    return next((e for e in element if _local(e.tag) in names), None)


def _text(element: Any, *paths: str) -> str | None:
    for path in paths:
        found = element
        for name in path.split("/"):
            found = None if found is None else _child(found, name)
        if found is not None and found.text and found.text.strip():
            return str(found.text.strip())
    return None
