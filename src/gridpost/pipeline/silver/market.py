"""IEC 62325-451 documents: any `*_MarketDocument` to one row of the document and one for each point.

What is contradictory is set aside with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
from lxml import etree

from gridpost.core.refusal import Refusal
from gridpost.pipeline.silver.market_points import (
    CURVES,
    OVERLAPPING,
    POINT,
    SEQUENTIAL,
    TIME,
    Points,
    Series,
)
from gridpost.pipeline.silver.market_runs import Run, Said, cut
from gridpost.pipeline.silver.market_values import Contradiction, Steps, resolution_of, time_of
from gridpost.wire.xml import parse_here
from gridpost.wire.xml_shape import in_own_thread

DEFAULT_ZONE = "Europe/Brussels"
# 62325-451: a document or a series of this status ends what an earlier one said.
ENDED = frozenset({"A09", "A13"})  # cancelled, withdrawn
# 62325-451: `cancelledTS` ends the series and what earlier documents said of it. It is an indicator, but
# some write the status.
CANCELLED = {"A01": True, "A02": False, **dict.fromkeys(ENDED, True)}
_BATCH_POINTS = 500_000
"""More points than these go out as a batch of their own: documents may be large."""
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
SERIES = pa.struct(
    [
        ("series_mrid", pa.string()),
        ("business_type", pa.string()),
        ("in_domain", pa.string()),
        ("out_domain", pa.string()),
        ("curve_type", pa.string()),
        ("status", pa.string()),
        ("ended", pa.bool_()),
        ("points", pa.int64()),
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
PARSED = pa.schema(
    [
        *ORIGIN,
        *DOCUMENTS,
        pa.field("values", pa.list_(POINT)),
        pa.field("listed", pa.list_(SERIES)),
    ]
)
FORM = 4
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
    "carried boolean>>, listed array<struct<series_mrid string, business_type string, "
    "in_domain string, out_domain string, curve_type string, status string, ended boolean, "
    "points bigint>>"
)


def parse_documents(
    zone: str = DEFAULT_ZONE,
) -> Any:
    """For mapInArrow: `ORIGIN`, message_id, known_at and content in, `PARSED` out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            at = 0
            while at < batch.num_rows:
                done = in_own_thread(partial(_parse_batch, batch.slice(at), zone))
                yield done
                at += done.num_rows

    return run


def _parse_batch(batch: pa.RecordBatch, zone: str) -> pa.RecordBatch:
    """As many documents as one batch should hold."""
    batch_of = _Batch(zone)
    given = (batch[name].to_pylist() for name in ("content", "message_id", "known_at"))
    for row in zip(*given, strict=True):
        batch_of.read(*row)
        if len(batch_of.points) > _BATCH_POINTS:
            break
    origin = batch.select(ORIGIN.names).slice(0, len(batch_of.rows)).cast(ORIGIN)
    return pa.RecordBatch.from_arrays([*origin.columns, *batch_of.columns()], schema=PARSED)


def parse_document(
    content: bytes, message_id: str, known_at: datetime, zone: str = DEFAULT_ZONE
) -> dict[str, Any]:
    """One row; a document that is not one, or not a sound one, has a problem instead of points."""
    batch = _Batch(zone)
    in_own_thread(lambda: batch.read(content, message_id, known_at))
    fields = [field for field in PARSED if field.name not in ORIGIN.names]
    return dict(pa.table(batch.columns(), schema=pa.schema(fields)).to_pylist()[0])


class _Unclear(Exception):
    """Points were taken out of a document where they cannot be put back."""


class _Batch:
    """Documents that become columns together."""

    def __init__(self, zone: str) -> None:
        self.zone = zone
        self.rows: list[dict[str, Any]] = []
        self.points = Points()
        self._series: list[dict[str, Any]] = []
        self._offsets = [(0, 0)]

    def columns(self) -> list[pa.Array]:
        """Those of `DOCUMENTS`, and the two lists."""
        series, points = (
            pa.array(offset, pa.int32()) for offset in zip(*self._offsets, strict=True)
        )
        return [
            *pa.RecordBatch.from_pylist(self.rows, schema=DOCUMENTS).columns,
            pa.ListArray.from_arrays(points, self.points.to_arrow()),
            pa.ListArray.from_arrays(series, pa.array(self._series, SERIES)),
        ]

    def read(self, content: bytes, message_id: str, known_at: datetime) -> None:
        row: dict[str, Any] = dict.fromkeys(DOCUMENTS.names)
        row.update(message_id=message_id, known_at=known_at, series=0, points=0, ended=False)
        row.update(self._read(content))
        self.rows.append(row)
        self._offsets.append((len(self._series), len(self.points)))

    def _read(self, content: bytes) -> dict[str, Any]:
        taken = cut(content)
        if taken is not None:
            try:
                return self._document(parse_here(taken[0]), taken[1])
            except (Refusal, _Unclear):
                # What is wrong with it, or what it means, shows in all of it.
                self._forget()
        try:
            return self._document(parse_here(content))
        except Refusal as refusal:
            return {"problem": f"not XML: {refusal.message}"}

    def _forget(self) -> None:
        """What the document at hand has left so far."""
        series, points = self._offsets[-1]
        del self._series[series:]
        self.points.cut(points)

    def _document(self, root: Any, runs: list[Run] | None = None) -> dict[str, Any]:
        name = etree.QName(root).localname
        if not name.endswith("_MarketDocument"):
            return {"document": name, "problem": "not a market document"}
        found: dict[str, Any] = {"document": name}
        left = None if runs is None else dict(enumerate(runs))
        try:
            found.update(_head(root))
            for element in root:
                if _is_series(_local(element.tag)):
                    self._add_series(element, left)
        except (Contradiction, Refusal, ValueError, OverflowError) as error:
            self._forget()
            return {**found, "problem": str(error) or type(error).__name__}
        if left:
            raise _Unclear
        series, points = self._offsets[-1]
        found.update(series=len(self._series) - series, points=len(self.points) - points)
        return found

    def _add_series(self, element: Any, runs: dict[int, Run] | None) -> None:
        head = _named(element)
        curve = _text(head, "curveType") or SEQUENTIAL
        if curve not in CURVES:
            raise Contradiction(f"curve type {curve} is not known")
        series = Series(
            _text(head, "mRID"),
            _text(head, "businessType"),
            _text(head, "in_Domain.mRID"),
            _text(head, "out_Domain.mRID"),
            curve,
            _text(head, "quantity_Measure_Unit.name", "measurement_Unit.name", "measure_Unit.name")
            or "",
            _text(head, "currency_Unit.name"),
            _text(head, "price_Measure_Unit.name") or "MWH",
        )
        before = len(self.points)
        periods = []
        for child in element:
            if _local(child.tag) in ("Period", "Series_Period"):
                period = _period(child)
                self.points.add(series, period, _said(child, runs), self.zone)
                periods.append((period.start, period.end))
        if curve != OVERLAPPING:
            _apart(periods)
        status = _status(head, "status")
        cancelled = _text(head, "cancelledTS")
        if cancelled is not None and cancelled not in CANCELLED:
            raise Contradiction(f"cancelledTS {cancelled} is not known")
        self._series.append(
            {
                "series_mrid": series.mrid,
                "business_type": series.business_type,
                "in_domain": series.in_domain,
                "out_domain": series.out_domain,
                "curve_type": curve,
                "status": status,
                "ended": status in ENDED or CANCELLED.get(cancelled or "", False),
                "points": len(self.points) - before,
            }
        )


def _head(root: Any) -> dict[str, Any]:
    head = _named(root)
    intervals = (_named(head[name]) for name in head if name.endswith(".timeInterval"))
    interval: dict[str, Any] = next(intervals, {})
    status = _status(head, "docStatus")
    revision = _text(head, "revisionNumber") or "1"
    if not revision.isdigit():
        raise Contradiction(f"revisionNumber {revision} is not a number")
    return {
        "document_mrid": _text(head, "mRID"),
        "revision": int(revision),
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


def _is_series(name: str) -> bool:
    """`TimeSeries`, `Bid_TimeSeries` and others; what an acknowledgement rejects is another's series."""
    return name == "TimeSeries" or (name.endswith("_TimeSeries") and name != "Rejected_TimeSeries")


def _status(head: dict[str, Any], name: str) -> str | None:
    marked = head.get(name)
    return None if marked is None else _text(_named(marked), "value") or _text(head, name)


def _apart(periods: list[tuple[datetime, datetime]]) -> None:
    """Positions of one period never overlap: only periods can, whatever their resolutions."""
    for (_, end), (start, _) in pairwise(sorted(periods)):
        if start < end:
            raise Contradiction(f"two periods of one series overlap at {start.isoformat()}")


def _period(element: Any) -> Steps:
    head = _named(element)
    if "timeInterval" not in head:
        raise Contradiction("a period without its interval")
    ends = _named(head["timeInterval"])
    start, end = time_of(_text(ends, "start")), time_of(_text(ends, "end"))
    if start is None or end is None or end <= start:
        raise Contradiction("a period that ends before it starts")
    resolution = _text(head, "resolution") or ""
    return Steps(start, end, resolution, *resolution_of(resolution))


def _said(period: Any, runs: dict[int, Run] | None) -> Run | Said:
    if runs is None:
        return _read_points(period)
    marks = [child for child in period if _local(child.tag) == "Point"]
    if not marks:
        return [], [], []
    # Those of another namespace than their period's are no points of it.
    if len(marks) > 1 or _namespace(marks[0]) != _namespace(period):
        raise _Unclear
    return runs.pop(int(marks[0][0].text))


def _namespace(element: Any) -> str:
    return str(element.tag.rpartition("}")[0][1:])


def _read_points(period: Any) -> Said:
    """Position, quantity and price of each point, by columns."""
    count, *columns = (find(period) for find in _finders(_namespace(period)))
    whole = int(count)
    if len(columns[0]) == whole and all(len(c) in (0, whole) for c in columns[1:]):
        # Each point has one of each, or none has: the usual case, read by columns.
        position, quantity, price = (list(map(str.strip, column)) for column in columns)
        return position, _or_none(quantity, whole), _or_none(price, whole)
    read = [_point(point) for point in _children(period, "Point")]
    return [p for p, _, _ in read], [q for _, q, _ in read], [p for _, _, p in read]


def _or_none(texts: list[str], whole: int) -> list[str | None]:
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
