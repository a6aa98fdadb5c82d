"""Key figures for people and for the console: gold tables added up, read with pyarrow alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from gridpost.pipeline.lake import Lake
from gridpost.pipeline.percentile import percentile

GROUPS = ("day", "hour", "message_type", "route", "sender_code", "receiver_code")
COUNTS = (
    "messages",
    "sent",
    "arrived",
    "accepted",
    "delivered",
    "received",
    "failed",
    "expired",
    "octets",
)
_RESPONSES = ("requests", "answered", "failed", "within", "beyond", "octets")
MEASURES = ("accept_to_deliver", "accept_to_receive")
SHARES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


def key_figures(lake: Lake, by: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Counts and latencies per group: histograms are added up, so that percentiles are right."""
    keys = list(by)
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    marks = marks_of(lake)
    for row in _rows(lake, "delivery"):
        group = groups.setdefault(tuple(row[k] for k in keys), _empty(keys, row))
        for name in COUNTS:
            group[name] += row[name] or 0
        group["_senders"].add(row["sender_code"])
    histograms: dict[tuple[Any, ...], dict[str, dict[int, int]]] = {}
    for row in _rows(lake, "latency_histograms"):
        found = histograms.setdefault(tuple(row[k] for k in keys), {})
        counts = found.setdefault(row["measure"], {})
        counts[row["bucket"]] = counts.get(row["bucket"], 0) + row["messages"]
    result = []
    for key in sorted(groups, key=lambda k: tuple(map(str, k))):
        group = groups[key]
        measured = histograms.get(key, {})
        for measure in MEASURES:
            for share, value in SHARES.items():
                us = percentile(measured.get(measure, {}), value)
                group[f"{measure}_{share}_ms"] = None if us is None else round(us / 1000, 3)
        group["negative"] = sum(counts.get(-1, 0) for counts in measured.values())
        known = [marks[code] for code in group.pop("_senders") if code in marks]
        group["complete_up_to"] = min(known).isoformat() if known else None
        result.append({name: _plain(value) for name, value in group.items()})
    return result


def marks_of(lake: Lake) -> dict[str, datetime]:
    return {row["component"]: row["time"].astimezone(UTC) for row in _rows(lake, "marks")}


def counted(lake: Lake, table: str, column: str) -> dict[str, int]:
    """How many rows of a gold table have which value."""
    found: dict[str, int] = {}
    rows = lake.table("gold", table).read([column])
    for value in [] if rows is None else rows[column].to_pylist():
        found[str(value)] = found.get(str(value), 0) + 1
    return dict(sorted(found.items()))


def overview(lake: Lake) -> dict[str, Any]:
    """What the report and the console show of the whole lake."""
    waiting = _rows(lake, "waiting")
    return {
        "totals": key_figures(lake)[:1],
        "by_day": key_figures(lake, ["day"]),
        "by_type": key_figures(lake, ["message_type"]),
        "by_pair": key_figures(lake, ["sender_code", "receiver_code"]),
        "failures": _top(_rows(lake, "failure_reasons"), ("event", "reason")),
        "waiting": len(waiting),
        "stuck": sum(1 for row in waiting if row["stuck"]),
        "reconciliation": counted(lake, "reconciliation", "verdict"),
        "mismatches": [
            _line(row) for row in _rows(lake, "reconciliation") if row["verdict"] == "mismatch"
        ][:200],
        "duplicates": sum(1 for _ in _rows(lake, "duplicates")),
        "gaps": [_line(row) for row in _rows(lake, "gaps")],
        "proofs": counted(lake, "proof_audit", "verdict"),
        "certificates": _top(_rows(lake, "certificate_usage"), ("role", "owner", "certificate_id")),
        "sla": [_line(row) for row in _rows(lake, "sla")],
        "capacity_use": [
            _line(row) for row in sorted(_rows(lake, "capacity_use"), key=_in_time)[-200:]
        ],
        "capacity_broadcasts": counted(lake, "capacity_reconciliation", "verdict"),
        "capacity_broadcast_gaps": [_line(row) for row in _rows(lake, "capacity_broadcast_gaps")],
        "response_times": _response_times(lake),
        "response_sla": [_line(row) for row in _rows(lake, "response_sla")],
        "marks": [_line(row) for row in _rows(lake, "marks")],
    }


def _response_times(lake: Lake) -> list[dict[str, Any]]:
    """Per verb and noun: counts add up, of percentiles only the highest of an hour can be said."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in _rows(lake, "response_times"):
        known = found.setdefault(
            (row["verb"], row["noun"]),
            {"verb": row["verb"], "noun": row["noun"], **dict.fromkeys(_RESPONSES, 0)},
        )
        for name in _RESPONSES:
            known[name] += row[name] or 0
        for name in ("p95_ms", "p99_ms", "longest_ms"):
            if row[name] is not None:
                label = name if name == "longest_ms" else f"worst_hour_{name}"
                known[label] = max(known.get(label, 0), row[name])
    return [found[key] for key in sorted(found)]


def _in_time(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["period_start"], row["border"], row["out_area"])


def _rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    rows = lake.table("gold", table).read()
    return [] if rows is None else rows.to_pylist()


def _empty(keys: list[str], row: Mapping[str, Any]) -> dict[str, Any]:
    return {**{k: row[k] for k in keys}, **dict.fromkeys(COUNTS, 0), "_senders": set()}


def _top(
    rows: list[dict[str, Any]], keys: tuple[str, ...], limit: int = 20
) -> list[dict[str, Any]]:
    sums: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key = tuple(row[k] for k in keys)
        sums[key] = sums.get(key, 0) + row["messages"]
    ordered = sorted(sums.items(), key=lambda item: (-item[1], tuple(map(str, item[0]))))
    return [
        {**dict(zip(keys, key, strict=True)), "messages": count} for key, count in ordered[:limit]
    ]


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row.items() if name != "build"}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
