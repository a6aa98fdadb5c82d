"""Key figures for people and for the console: gold tables added up, read with pyarrow alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import compute

from gridpost.pipeline.completeness import COLUMN, complete_up_to
from gridpost.pipeline.lake import Lake, Table
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
# What the overview counts, and where.
COUNTED = {
    "reconciliation": "reconciliation",
    "waiting": "waiting",
    "duplicates": "duplicates",
    "proofs": "proof_audit",
    "capacity_broadcasts": "capacity_reconciliation",
}
_HIDDEN = ("build", "journals")
MEASURES = ("accept_to_deliver", "accept_to_receive")
SHARES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


def key_figures(lake: Lake, by: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Counts and latencies per group: histograms are added up, so that percentiles are right."""
    keys = list(by)
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    behind: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in _rows(lake, "delivery"):
        key = tuple(row[k] for k in keys)
        group = groups.setdefault(key, _empty(keys, row))
        for name in COUNTS:
            group[name] += row[name] or 0
        behind.setdefault(key, []).append(row)
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
        group[COLUMN] = complete_text(behind[key])
        result.append({name: _plain(value) for name, value in group.items()})
    return result


def complete_text(rows: Iterable[Mapping[str, Any]]) -> str | None:
    known = complete_up_to(rows)
    return None if known is None else known.isoformat()


def _complete(table: Table) -> str | None:
    """Of a table with a row for each message: per day is enough."""
    try:
        rows = table.read(["day", COLUMN])
    except pa.ArrowInvalid:
        # Made by an older version.
        return None
    if rows is None:
        return None
    least = rows.group_by("day").aggregate([(COLUMN, "min")])
    return complete_text(least.rename_columns(["day", COLUMN]).to_pylist())


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
            _line(row)
            for row in _rows(lake, "reconciliation", compute.field("verdict") == "mismatch")[:200]
        ],
        "duplicates": lake.table("gold", "duplicates").pointer().rows,
        "gaps": [_line(row) for row in _rows(lake, "gaps")],
        "proofs": counted(lake, "proof_audit", "verdict"),
        "certificates": _top(_rows(lake, "certificate_usage"), ("role", "owner", "certificate_id")),
        "sla": [_line(row) for row in _rows(lake, "sla")],
        "capacity_use": [
            _line(row) for row in sorted(_rows(lake, "capacity_use"), key=_in_time)[-200:]
        ],
        "capacity_broadcasts": counted(lake, "capacity_reconciliation", "verdict"),
        "capacity_broadcast_gaps": [_line(row) for row in _rows(lake, "capacity_broadcast_gaps")],
        "capacity_client_gaps": [_line(row) for row in _rows(lake, "capacity_client_gaps")],
        "response_times": _response_times(lake),
        "response_sla": [_line(row) for row in _rows(lake, "response_sla")],
        "marks": [_line(row) for row in _rows(lake, "marks")],
        "complete_up_to": {
            name: _complete(lake.table("gold", table)) for name, table in COUNTED.items()
        },
    }


def _response_times(lake: Lake) -> list[dict[str, Any]]:
    """Per verb and noun: counts add up, of percentiles only the highest of an hour can be said."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    behind: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in _rows(lake, "response_times"):
        known = found.setdefault(
            (row["verb"], row["noun"]),
            {"verb": row["verb"], "noun": row["noun"], **dict.fromkeys(_RESPONSES, 0)},
        )
        behind.setdefault((row["verb"], row["noun"]), []).append(row)
        for name in _RESPONSES:
            known[name] += row[name] or 0
        for name in ("p95_ms", "p99_ms", "longest_ms"):
            if row[name] is not None:
                label = name if name == "longest_ms" else f"worst_hour_{name}"
                known[label] = max(known.get(label, 0), row[name])
    return [{**found[key], COLUMN: complete_text(behind[key])} for key in sorted(found)]


def _in_time(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (row["period_start"], row["border"], row["out_area"])


def _rows(lake: Lake, table: str, where: Any = None) -> list[dict[str, Any]]:
    rows = lake.table("gold", table).read(where=where)
    return [] if rows is None else rows.to_pylist()


def _empty(keys: list[str], row: Mapping[str, Any]) -> dict[str, Any]:
    return {**{k: row[k] for k in keys}, **dict.fromkeys(COUNTS, 0)}


def _top(
    rows: list[dict[str, Any]], keys: tuple[str, ...], limit: int = 20
) -> list[dict[str, Any]]:
    sums: dict[tuple[Any, ...], int] = {}
    behind: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = tuple(row[k] for k in keys)
        sums[key] = sums.get(key, 0) + row["messages"]
        behind.setdefault(key, []).append(row)
    ordered = sorted(sums.items(), key=lambda item: (-item[1], tuple(map(str, item[0]))))
    return [
        {
            **dict(zip(keys, key, strict=True)),
            "messages": count,
            COLUMN: complete_text(behind[key]),
        }
        for key, count in ordered[:limit]
    ]


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row.items() if name not in _HIDDEN}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
