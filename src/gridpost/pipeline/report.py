"""One HTML file with figures and charts: no script, no font and no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from gridpost.pipeline.completeness import COLUMN
from gridpost.pipeline.files import place
from gridpost.pipeline.jobs import lake_summary
from gridpost.pipeline.key_figures import key_figures, overview
from gridpost.pipeline.lake import Lake
from gridpost.pipeline.runs import totals

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;
color:#16302b;background:#fbfdfc}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2.2rem;border-bottom:1px solid #cfe0db}
table{border-collapse:collapse;width:100%;font-size:.86rem}
th,td{padding:.25rem .6rem;text-align:left;border-bottom:1px solid #e4eeeb}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.8rem}
.tile{background:#e8f3f0;border-radius:.5rem;padding:.7rem 1rem}
.tile b{display:block;font-size:1.5rem}.bad b{color:#a3261c}
svg{width:100%;height:auto;background:#fff;border:1px solid #e4eeeb;border-radius:.5rem}
figcaption,small{color:#54706a}figure{margin:1rem 0}
@media (prefers-color-scheme:dark){body{background:#101a18;color:#d8e8e3}
.tile{background:#1b2d29}svg{background:#14211e;border-color:#2a3f3a}th,td{border-color:#24362f}}
"""
_COLOURS = {
    "received": "#0f766e",
    "delivered": "#5eb8a9",
    "accepted": "#c9a227",
    "failed": "#b3261e",
}


def write_report(lake: Lake, out: Path) -> dict[str, Any]:
    page = render(lake)
    place(out).write(page.encode())
    return {"file": str(out), "octets": len(page.encode())}


def render(lake: Lake) -> str:
    known = overview(lake)
    totals = known["totals"][0] if known["totals"] else {}
    hours = key_figures(lake, ["hour"])
    messages = int(totals.get("messages", 0))
    mismatches = known["reconciliation"].get("mismatch", 0)
    tiles = [
        ("messages", messages, False),
        ("received", totals.get("received", 0), False),
        ("failed", totals.get("failed", 0), bool(totals.get("failed"))),
        ("waiting", known["waiting"], False),
        ("stuck", known["stuck"], known["stuck"] > 0),
        ("mismatches", mismatches, mismatches > 0),
        ("gaps", len(known["gaps"]), bool(known["gaps"])),
        (
            "proofs not proven",
            known["proofs"].get("not proven", 0),
            known["proofs"].get("not proven", 0) > 0,
        ),
    ]
    sections = [
        "<div class=tiles>",
        *(
            f'<div class="tile{" bad" if bad else ""}"><b>{value:,}</b>{escape(name)}</div>'
            for name, value, bad in tiles
        ),
        "</div>",
        _section("Messages per hour", _bars(hours)),
        _section(
            "Latency from acceptance to delivery, per day",
            _lines(known["by_day"], ("p50", "p95", "p99"), "accept_to_deliver"),
        ),
        _section("By message type", _table(known["by_type"])),
        _section("By pair of parties", _table(known["by_pair"])),
        _section("Service levels", _table(known["sla"])),
        _section("Reconciliation", _table(_pairs(known, "reconciliation"))),
        _section("Mismatches", _table(known["mismatches"])),
        _section("Why messages failed", _table(known["failures"])),
        _section("Evidence", _table(_pairs(known, "proofs"))),
        _section("Use of certificates", _table(known["certificates"])),
        _section("Capacity: the last word for each unit", _table(known["capacity_use"])),
        _section(
            "Capacity: broadcasts beside the ledger",
            _table(_pairs(known, "capacity_broadcasts", "broadcasts")),
        ),
        _section("Capacity: numbers no client saw", _table(known["capacity_broadcast_gaps"])),
        _section("Capacity: clients that missed them", _table(known["capacity_client_gaps"])),
        _section("Bus: response times", _table(known["response_times"])),
        _section("Bus: service levels", _table(known["response_sla"])),
        _section("Gaps in journals", _table(known["gaps"])),
        _section("Complete up to", _table(known["marks"])),
        _section("The lake", _table(_storage(lake, messages))),
        _section("What the pipeline costs", _table(_cost(lake, messages))),
    ]
    body = "\n".join(section for section in sections if section)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Gridpost: key figures</title><style>{_STYLE}</style></head><body>"
        "<h1>Gridpost: key figures of delivery</h1>"
        f"<small>Complete up to {escape(str(totals.get('complete_up_to')))}; latencies are by the"
        f" sender's clock; {totals.get('negative', 0)} negative ones were counted.</small>"
        f"{body}</body></html>"
    )


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>{content}" if content else ""


def _pairs(known: dict[str, Any], name: str, of: str = "messages") -> list[dict[str, Any]]:
    complete = known[COLUMN][name]
    return [{"verdict": key, of: count, COLUMN: complete} for key, count in known[name].items()]


def _storage(lake: Lake, messages: int) -> list[dict[str, Any]]:
    rows = lake_summary(lake)
    per_million = 1_000_000 / messages if messages else 0
    for row in rows:
        row["octets per million messages"] = round(row["octets"] * per_million)
    whole = sum(row["octets"] for row in rows)
    return [*rows, {"table": "all", "octets per million messages": round(whole * per_million)}]


def _cost(lake: Lake, messages: int) -> list[dict[str, Any]]:
    """Processor time of each command, all runs together."""
    per_million = 1_000_000 / messages if messages else 0
    return [
        {
            "command": row["command"],
            "runs": row["runs"],
            "rows": row["rows"],
            "CPU seconds": round(row["cpu_seconds"], 2),
            "CPU seconds per million messages": round(row["cpu_seconds"] * per_million, 1),
        }
        for row in totals(lake).values()
    ]


def _table(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    lines = []
    for row in rows:
        cells = []
        for name in names:
            value = row.get(name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            text = "" if value is None else f"{value:,}" if number else str(value)
            cells.append(f"<td{' class=n' if number else ''}>{escape(text)}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _bars(rows: Sequence[dict[str, Any]]) -> str:
    """Stacked by status; the newest 240 hours."""
    rows = rows[-240:]
    if not rows:
        return ""
    highest = max(row["messages"] for row in rows) or 1
    width, height = 960, 220
    step = width / len(rows)
    shapes = []
    for number, row in enumerate(rows):
        bottom = float(height)
        for status, colour in _COLOURS.items():
            size = (row[status] or 0) / highest * (height - 10)
            if size <= 0:
                continue
            bottom -= size
            shapes.append(
                f'<rect x="{number * step:.1f}" y="{bottom:.1f}" width="{max(step - 1, 0.5):.1f}" '
                f'height="{size:.1f}" fill="{colour}"><title>{escape(str(row["hour"]))}: '
                f"{row[status]:,} {status}</title></rect>"
            )
    legend = ", ".join(
        f'<span style="color:{colour}">■</span> {status}' for status, colour in _COLOURS.items()
    )
    first, last = escape(str(rows[0]["hour"])), escape(str(rows[-1]["hour"]))
    return (
        f'<figure><svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="messages per hour">{"".join(shapes)}</svg>'
        f"<figcaption>{legend}; {first} to {last}; highest {highest:,} an hour</figcaption></figure>"
    )


def _lines(rows: Sequence[dict[str, Any]], shares: Sequence[str], measure: str) -> str:
    series = {share: [row.get(f"{measure}_{share}_ms") for row in rows] for share in shares}
    highest = max((v for values in series.values() for v in values if v is not None), default=0)
    if not highest:
        return ""
    width, height = 960, 200
    step = width / max(len(rows) - 1, 1)
    colours = dict(zip(shares, ("#0f766e", "#c9a227", "#b3261e"), strict=False))
    shapes = []
    for share, values in series.items():
        points = " ".join(
            f"{number * step:.1f},{height - value / highest * (height - 12):.1f}"
            for number, value in enumerate(values)
            if value is not None
        )
        shapes.append(
            f'<polyline points="{points}" fill="none" stroke="{colours[share]}" stroke-width="2">'
            f"<title>{share}</title></polyline>"
        )
    legend = ", ".join(f'<span style="color:{c}">■</span> {s}' for s, c in colours.items())
    return (
        f'<figure><svg viewBox="0 0 {width} {height}" role="img" aria-label="latency per day">'
        f"{''.join(shapes)}</svg><figcaption>{legend}; highest {highest:,} ms</figcaption></figure>"
    )
