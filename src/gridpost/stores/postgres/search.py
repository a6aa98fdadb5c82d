"""What operators look for in the box, as a query that stays quick in a box of millions.

Newest first is the order of numbers, in which every index keeps the rows of one key; the server knows
by its statistics which field is rare.
"""

from __future__ import annotations

from gridpost.core.delivery import Side
from gridpost.core.message_box import Search
from gridpost.stores.box_rows import BOX_COLUMNS
from gridpost.stores.postgres.endpoint_schema import TROUBLE
from gridpost.stores.postgres.text import storable
from gridpost.stores.values import to_microseconds

# A field and what its index is limited to.
_FIELDS = (
    ("message_id", ""),
    ("conversation_id", " AND conversation_id <> '' AND side = 'sent'"),
    ("ba_message_id", " AND ba_message_id <> ''"),
    ("peer", ""),
    ("status", " AND status IS NOT NULL"),
    ("message_type", ""),
)
# Arrival times follow the numbers only as well as the clock did: the range of numbers makes the
# query quick, the comparison makes it right.
_SINCE = """
    number >= (SELECT min(number) FROM message WHERE arrived_at >= %(since)s)
    AND arrived_at >= %(since)s
"""
_UNTIL = """
    number <= (SELECT max(number) FROM message WHERE arrived_at < %(until)s)
    AND arrived_at < %(until)s
"""
_TEXT = f"""
    number IN (
        SELECT number FROM message WHERE state IN ({TROUBLE})
        UNION ALL
        SELECT message FROM outgoing WHERE due_at IS NOT NULL AND message IS NOT NULL
    )
    AND EXISTS (
        SELECT 1 FROM trace WHERE trace.message = message.number
        AND trace.detail ILIKE %(text)s ESCAPE '~'
    )
"""


def query(search: Search, limit: int, before: int | None) -> tuple[str, dict[str, object]] | None:
    """The SELECT of BOX_COLUMNS and its parameters; None: nothing can match."""
    conditions = ["true"]
    values: dict[str, object] = {"limit": limit}
    for field, partial in _FIELDS:
        value = getattr(search, field)
        if value:
            conditions.append(f"{field} = %({field})s{partial}")
            values[field] = str(value)
    if search.text:
        conditions.append(_TEXT)
        values["text"] = f"%{_literal(search.text)}%"
    if search.side is not None:
        conditions.append("side = %(side)s")
        values["side"] = Side(search.side).value
    if search.since is not None:
        conditions.append(_SINCE)
        values["since"] = to_microseconds(search.since)
    if search.until is not None:
        conditions.append(_UNTIL)
        values["until"] = to_microseconds(search.until)
    if before is not None:
        conditions.append("number < %(before)s")
        values["before"] = before
    if not all(storable(value) for value in values.values() if isinstance(value, str)):
        return None
    return (
        f"SELECT {BOX_COLUMNS} FROM message WHERE {' AND '.join(conditions)} "
        "ORDER BY number DESC LIMIT %(limit)s",
        values,
    )


def _literal(text: str) -> str:
    """For LIKE: what somebody typed stands for itself."""
    return text.replace("~", "~~").replace("%", "~%").replace("_", "~_")
