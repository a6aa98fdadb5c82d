"""IEC 62325-451 documents: any `*_MarketDocument` to one row of the document and one for each point.

What is contradictory is set aside with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from lxml import etree

from gridpost.core.refusal import Refusal
from gridpost.pipeline.silver.market_values import (
    FACTORS,
    PRICE_FACTORS,
    QUARTER_US,
    SCALE,
    Contradiction,
    Steps,
    day_of,
    numbers,
    resolution_of,
    time_of,
    times,
)
from gridpost.wire.xml import parse_here
from gridpost.wire.xml_shape import in_own_thread

DECIMAL = pa.decimal128(38, SCALE)
TIME = pa.timestamp("us", tz="UTC")
DEFAULT_ZONE = "Europe/Brussels"
SEQUENTIAL, POINTS, BLOCKS = "A01", "A02", "A03"
OVERLAPPING, BREAKPOINTS = "A04", "A05"
CURVES = (SEQUENTIAL, POINTS, BLOCKS, OVERLAPPING, BREAKPOINTS)
# 62325-451: documents that end what an earlier one said.
ENDED = frozenset({"A09", "A13"})  # cancelled, withdrawn
_INTERVALS = (
    "period.timeInterval",
    "schedule_Time_Period.timeInterval",
    "schedule_Period.timeInterval",
    "time_Period.timeInterval",
)
_USUAL = 3000
"""Positions of a period: a month of quarters of an hour, and a day of minutes."""
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
# Where a document comes from: it goes through as it came.
ORIGIN = pa.schema(
    [
        ("day", pa.date32()),
        ("component", pa.string()),
        ("instance", pa.string()),
        ("sequence", pa.int64()),
        ("segment", pa.string()),
    ]
)
PARSED = pa.schema([*ORIGIN, *DOCUMENTS, pa.field("values", pa.list_(POINT))])
FORM = 3
"""Of these columns and rules: after a change of it every day is parsed anew."""
# The same for Spark.
SPARK_PARSED = (
    "day date, component string, instance string, sequence bigint, segment string, "
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


def parse_documents(
    zone: str = DEFAULT_ZONE,
) -> Any:
    """For mapInArrow: `ORIGIN`, message_id, known_at and content in, `PARSED` out."""

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
    origin = batch.select(ORIGIN.names).cast(ORIGIN)
    return pa.RecordBatch.from_arrays([*origin.columns, *documents.columns, values], schema=PARSED)


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
        arrays: dict[str, pa.Array] = {}
        for field in POINT:
            values = self.columns[field.name]
            plain = field.name.removesuffix("_normalised")
            if field.type != DECIMAL:
                arrays[field.name] = pa.array(values, field.type)
            elif plain in arrays and values == self.columns[plain]:
                # Most are in the unit that they are normalised to.
                arrays[field.name] = arrays[plain]
            else:
                arrays[field.name] = pa.array(values, pa.string()).cast(DECIMAL)
        return pa.StructArray.from_arrays(list(arrays.values()), fields=list(POINT))


def _head(root: Any, name: str) -> dict[str, Any]:
    head = _named(root)
    intervals = (_named(head[name]) for name in _INTERVALS if name in head)
    interval: dict[str, Any] = next(intervals, {})
    marked = head.get("docStatus")
    status = None if marked is None else _text(_named(marked), "value") or _text(head, "docStatus")
    revision = _text(head, "revisionNumber") or "1"
    if not revision.isdigit():
        raise Contradiction(f"revisionNumber {revision} is not a number")
    return {
        "document_mrid": _text(head, "mRID"),
        "revision": int(revision),
        "document": name,
        "type": _text(head, "type"),
        "process_type": _text(head, "process.processType"),
        "status": status,
        "ended": status in ENDED,
        "created": time_of(_text(head, "createdDateTime")),
        "sender": _text(head, "sender_MarketParticipant.mRID"),
        "receiver": _text(head, "receiver_MarketParticipant.mRID"),
        "period_start": time_of(_text(interval, "start")),
        "period_end": time_of(_text(interval, "end")),
    }


def _series(series: Any, zone: str, points: _Points) -> None:
    head = _named(series)
    curve = _text(head, "curveType") or SEQUENTIAL
    if curve not in CURVES:
        raise Contradiction(f"curve type {curve} is not known")
    unit = (
        _text(head, "quantity_Measure_Unit.name", "measurement_Unit.name", "measure_Unit.name")
        or ""
    )
    price_unit = _text(head, "price_Measure_Unit.name") or "MWH"
    before = len(points)
    periods = [
        _period(element, curve, (unit, price_unit), zone, points)
        for element in _children(series, "Period", "Series_Period")
    ]
    if curve != OVERLAPPING:
        _apart(periods)
    count = len(points) - before
    for name, value in (
        ("series_mrid", _text(head, "mRID")),
        ("business_type", _text(head, "businessType")),
        ("in_domain", _text(head, "in_Domain.mRID")),
        ("out_domain", _text(head, "out_Domain.mRID")),
        ("curve_type", curve),
        ("unit", unit),
        ("currency", _text(head, "currency_Unit.name")),
    ):
        points.columns[name] += [value] * count


def _apart(periods: list[tuple[datetime, datetime]]) -> None:
    """Positions of one period never overlap: only periods can, whatever their resolutions."""
    for (_, end), (start, _) in pairwise(sorted(periods)):
        if start < end:
            raise Contradiction(f"two periods of one series overlap at {start.isoformat()}")


def _period(
    element: Any, curve: str, units: tuple[str, str], zone: str, points: _Points
) -> tuple[datetime, datetime]:
    """From when to when it is."""
    interval = _child(element, "timeInterval")
    if interval is None:
        raise Contradiction("a period without its interval")
    ends = _named(interval)
    start, end = time_of(_text(ends, "start")), time_of(_text(ends, "end"))
    if start is None or end is None or end <= start:
        raise Contradiction("a period that ends before it starts")
    found = _child(element, "resolution")
    resolution = "" if found is None else (found.text or "").strip()
    period = Steps(start, end, resolution, *resolution_of(resolution))
    count = period.count(ZoneInfo(zone))
    texts, said_quantities, said_prices = _read_points(element)
    if len(texts) == count <= _USUAL and texts == _sequence(count):
        # Every position once and in order, as most documents have it.
        positions, carried = list(range(1, count + 1)), [False] * count
        quantities, prices = numbers(said_quantities), numbers(said_prices)
    else:
        positions, carried, quantities, prices = _held(
            zip(texts, said_quantities, said_prices, strict=True), curve, count
        )
    begins, until = period.extents(positions, ZoneInfo(zone))
    columns = points.columns
    columns["resolution"] += [resolution] * len(positions)
    columns["position"] += positions
    columns["start"] += begins
    columns["end"] += until
    columns["delivery_day"] += _days(begins, zone)
    columns["quantity"] += quantities
    columns["quantity_normalised"] += times(quantities, FACTORS.get(units[0]))
    columns["price"] += prices
    columns["price_normalised"] += times(prices, PRICE_FACTORS.get(units[1]))
    columns["carried"] += carried
    return start, end


Said = tuple[str, str | None, str | None]
Held = tuple[list[int], list[bool], list[str | None], list[str | None]]


def _held(read: Iterable[Said], curve: str, count: int) -> Held:
    """What holds at which position, by the rules of its curve."""
    said: dict[int, tuple[str | None, str | None]] = {}
    for text, quantity, price in read:
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
    return (
        positions,
        [position not in said for position in positions],
        numbers([q for q, _ in held]),
        numbers([p for _, p in held]),
    )


@lru_cache(maxsize=32)
def _sequence(count: int) -> list[str]:
    return [str(number) for number in range(1, count + 1)]


def _days(begins: list[int], zone: str) -> list[int]:
    """Times are in order: when the first and the last are of one day, all are."""
    if begins:
        first, last = (day_of(at // QUARTER_US, zone) for at in (begins[0], begins[-1]))
        if first == last:
            return [first] * len(begins)
    return [day_of(at // QUARTER_US, zone) for at in begins]


def _read_points(period: Any) -> tuple[list[str], list[str | None], list[str | None]]:
    """Position, quantity and price of each point, by columns."""
    namespace = period.tag.rpartition("}")[0][1:]
    count, *columns = (find(period) for find in _finders(namespace))
    whole = int(count)
    if len(columns[0]) == whole and all(len(c) in (0, whole) for c in columns[1:]):
        # Each point has one of each, or none has: the usual case, read by columns.
        position, quantity, price = (list(map(str.strip, column)) for column in columns)
        return position, _said(quantity, whole), _said(price, whole)
    read = [_point(point) for point in _children(period, "Point")]
    return [p for p, _, _ in read], [q for _, q, _ in read], [p for _, _, p in read]


def _said(texts: list[str], whole: int) -> list[str | None]:
    if not texts:
        return [None] * whole
    return [text or None for text in texts] if "" in texts else list(texts)


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


def _children(element: Any, *names: str) -> list[Any]:
    return [e for e in element if _local(e.tag) in names]


def _child(element: Any, *names: str) -> Any:
    return next((e for e in element if _local(e.tag) in names), None)


def _named(element: Any) -> dict[str, Any]:
    """The first child of each name: one look at the children instead of one for each name."""
    found: dict[str, Any] = {}
    for child in element:
        found.setdefault(_local(child.tag), child)
    return found


def _text(children: dict[str, Any], *names: str) -> str | None:
    for name in names:
        found = children.get(name)
        if found is not None and found.text and (text := found.text.strip()):
            return str(text)
    return None
