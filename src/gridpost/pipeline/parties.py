"""Parties of the market from an EIC list (CSV): code, name, type and validity.

Column names differ between publishers; the ones that are known are tried in order.
"""

from __future__ import annotations

import csv
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline.lake import Lake

_COLUMNS = {
    "code": ("EicCode", "mRID", "code"),
    "name": ("EicLongName", "LongName", "EicDisplayName", "name"),
    "display_name": ("EicDisplayName", "DisplayName", "display_name"),
    "type": ("type", "EicTypeFunctionList", "function"),
    "status": ("EicStatus", "docStatus", "status"),
    "valid_from": ("valid_from", "validFrom"),
    "valid_until": ("valid_until", "validUntil"),
}
_SCHEMA = pa.schema(
    [
        ("code", pa.string()),
        ("name", pa.string()),
        ("display_name", pa.string()),
        ("type", pa.string()),
        ("status", pa.string()),
        ("valid_from", pa.date32()),
        ("valid_until", pa.date32()),
    ]
)
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-"


def import_parties(lake: Lake, file: Path) -> dict[str, Any]:
    """The list replaces the one before; lines that are no EIC are counted and named."""
    rows, bad = read_parties(file)
    if not rows:
        raise Refusal(Rule.USAGE, f"{file} holds no EIC codes", "a CSV with a column EicCode")
    table = lake.table("silver", "parties")
    table.overwrite(table.stage_arrow(pa.Table.from_pylist(rows, schema=_SCHEMA)))
    return {"parties": len(rows), "refused": bad[:20], "refused_lines": len(bad)}


def read_parties(file: Path) -> tuple[list[dict[str, Any]], list[str]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(Rule.USAGE, f"{file} cannot be read: {error}") from None
    head = text.partition("\n")[0]
    delimiter = ";" if head.count(";") >= head.count(",") else ","
    rows: dict[str, dict[str, Any]] = {}
    bad = []
    for line in csv.DictReader(text.splitlines(), delimiter=delimiter):
        row = {name: _first(line, columns) for name, columns in _COLUMNS.items()}
        code = row["code"] or ""
        if not is_eic(code):
            bad.append(code)
            continue
        try:
            for name in ("valid_from", "valid_until"):
                row[name] = date.fromisoformat(row[name]) if row[name] else None
        except ValueError:
            bad.append(code)
            continue
        rows[code] = row
    return [rows[code] for code in sorted(rows)], bad


def is_eic(code: str) -> bool:
    """Sixteen characters, of which the last one is computed from the others."""
    if len(code) != 16 or any(letter not in _LETTERS for letter in code):
        return False
    total = sum(
        _LETTERS.index(letter) * weight
        for letter, weight in zip(code[:15], range(16, 1, -1), strict=True)
    )
    return _LETTERS[36 - (total - 1) % 37] == code[15] != "-"


def _first(line: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((line[name].strip() for name in names if line.get(name)), None)
