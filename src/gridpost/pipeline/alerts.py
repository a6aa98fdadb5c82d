"""Live alerts: what needs a look now. A late row clears its alert; silence is an alert by itself.

Evaluated on the wall clock and on each component's own high-water mark, also when nothing lands.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from gridpost.pipeline.completeness import marks_of
from gridpost.pipeline.lake import Lake

STUCK_AFTER = 900


def evaluate(
    lake: Lake, now: datetime, silence: float, stuck_after: float = STUCK_AFTER
) -> dict[str, dict[str, Any]]:
    """Alerts by a key that stays the same as long as the alert does."""
    found: dict[str, dict[str, Any]] = {}
    for row in _rows(lake, "waiting"):
        seconds = _stuck_for(row, now, stuck_after)
        if seconds is not None:
            text = f"{row['message_type']} from {row['sender_code']} to {row['receiver_code']}"
            found[f"stuck/{row['message_id']}/{row['seen_by']}"] = {
                "alert": "stuck message",
                "message_id": row["message_id"],
                "text": f"{text}: {row['stands']} for {seconds} s, as {row['seen_by']} says",
            }
    for row in _rows(lake, "gaps"):
        key = f"gap/{row['component']}/{row['instance']}/{row['first']}"
        found[key] = {
            "alert": "gap",
            "component": row["component"],
            "text": f"rows {row['first']} to {row['last']} are missing",
        }
    for row in _rows(lake, "reconciliation"):
        if row["verdict"] == "mismatch":
            found[f"mismatch/{row['message_id']}"] = {
                "alert": "mismatch",
                "message_id": row["message_id"],
                "text": row["reason"],
            }
    marks = marks_of(lake)
    for row in _orphans(lake):
        mark = marks.get(row["component"])
        # A message comes before its acknowledgement: once the journal is complete, it is not late.
        if mark is not None and row["time"] <= mark:
            found[f"unmatched/{row['component']}/{row['acknowledgement_id']}"] = {
                "alert": "unmatched acknowledgement",
                "component": row["component"],
                "message_id": row["message_id"],
                "text": f"{row['acknowledgement_id']} acknowledges a message that is not known",
            }
    for component, mark in marks.items():
        quiet = (now - mark).total_seconds()
        if quiet > silence:
            found[f"silent/{component}"] = {
                "alert": "silent component",
                "component": component,
                "text": f"nothing landed since {mark.isoformat()}",
            }
    return found


def _stuck_for(row: dict[str, Any], now: datetime, stuck_after: float) -> int | None:
    """Seconds; None: it is not stuck. A quiet journal has no newer row that would tell the time."""
    since, expires = row["since"], row["expiration_time"]
    if since is not None and expires is not None and now < expires:
        seconds = int((now - since).total_seconds())
        return seconds if seconds > stuck_after else None
    return int(row["seconds"]) if row["stuck"] else None


def changes(
    before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    for key in now.keys() - before.keys():
        yield {"raised": True, **now[key]}
    for key in before.keys() - now.keys():
        yield {"raised": False, **before[key]}


def _orphans(lake: Lake) -> list[dict[str, Any]]:
    """Acknowledgements whose message their journal does not know; they have no day yet."""
    table = lake.table("silver", "acknowledgements")
    waiting = [part for part in table.pointer().parts if part.partition is None]
    names = ["component", "time", "message_id", "acknowledgement_id"]
    rows = table.read(names, parts=waiting) if waiting else None
    return [] if rows is None else rows.to_pylist()


def _rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    rows = lake.table("gold", table).read()
    return [] if rows is None else rows.to_pylist()
