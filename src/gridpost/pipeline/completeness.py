"""What "complete up to" means: every row of gold says it of the journals that it was made from.

It is the least high-water mark of these journals, but no later than the end of the row's own day:
days that are past do not change any more when journals go on, and are not made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from gridpost.pipeline.lake import Lake

COLUMN = "complete_up_to"


def marks_of(lake: Lake) -> dict[str, datetime]:
    """Up to when the journal of each component was complete at the last build."""
    rows = lake.table("gold", "marks").read(["component", "time"])
    return {
        row["component"]: row["time"].astimezone(UTC)
        for row in ([] if rows is None else rows.to_pylist())
    }


def still_open(marks: Mapping[str, datetime], day: str) -> list[str]:
    """What the completeness of a day depends on; nothing once every journal is past it."""
    end = day_end(date.fromisoformat(day))
    return [f"{name}={at.isoformat()}" for name, at in marks.items() if at < end]


def complete_up_to(rows: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Of rows taken together: each of them is complete up to then, or up to its end.

    None: there are no rows, or an older version has made one of them.
    """
    ends: list[datetime] = []
    least: list[datetime] = []
    for row in rows:
        at = row.get(COLUMN)
        if at is None:
            return None
        ends.append(day_end(row["day"]))
        if at < ends[-1]:
            least.append(at)
    return min([max(ends), *least]).astimezone(UTC) if ends else None


def day_end(day: date) -> datetime:
    return datetime.combine(day, time(), UTC) + timedelta(days=1)
