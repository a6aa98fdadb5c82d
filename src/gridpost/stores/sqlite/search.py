"""What operators look for in the box, as a query that stays quick in a box of millions.

Newest first is the order of numbers, in which every index keeps the rows of one key. The first
field of `_FIELDS` that is asked for leads the query; SQLite would have to guess which one is rare.
"""

from __future__ import annotations

from gridpost.core.delivery import Side
from gridpost.core.message_box import Search
from gridpost.stores.sqlite.rows import BOX_COLUMNS
from gridpost.stores.values import to_microseconds

# A field and what its index is limited to (without this, SQLite would not use the index).
_FIELDS = (
    ("message_id", ""),
    ("conversation_id", " AND conversation_id <> '' AND side = 'sent'"),
    ("ba_message_id", " AND ba_message_id <> ''"),
    ("peer", ""),
    ("status", ""),
    ("message_type", ""),
)

# Arrival times follow the numbers only as well as the clock did: the range of numbers makes the
# query quick, the comparison makes it right. A leading '+' keeps SQLite from walking along that
# column instead: for min(number) it would read message by message until one is late enough.
_SINCE = """
    number >= (
        SELECT min(+number) FROM message INDEXED BY message_by_arrival WHERE arrived_at >= :since
    )
    AND +arrived_at >= :since
"""
_UNTIL = """
    number <= (
        SELECT max(+number) FROM message INDEXED BY message_by_arrival WHERE arrived_at < :until
    )
    AND +arrived_at < :until
"""


def query(search: Search, limit: int, before: int | None) -> tuple[str, dict[str, object]]:
    """The SELECT of BOX_COLUMNS and its parameters."""
    conditions = ["1"]
    values: dict[str, object] = {"limit": limit}
    led = False
    for field, partial in _FIELDS:
        value = getattr(search, field)
        if value:
            conditions.append(f"{'+' if led else ''}{field} = :{field}{partial}")
            values[field] = str(value)
            led = True
    if search.side is not None:
        conditions.append("+side = :side")
        values["side"] = Side(search.side).value
    if search.since is not None:
        conditions.append(_SINCE)
        values["since"] = to_microseconds(search.since)
    if search.until is not None:
        conditions.append(_UNTIL)
        values["until"] = to_microseconds(search.until)
    if before is not None:
        conditions.append("number < :before")
        values["before"] = before
    return (
        f"SELECT {BOX_COLUMNS} FROM message WHERE {' AND '.join(conditions)} "
        "ORDER BY number DESC LIMIT :limit",
        values,
    )
