"""What operators look for in the box, as a query that stays quick in a box of millions.

Newest first is the order of numbers, in which every index keeps the rows of one key. The first
field of `_FIELDS` that is asked for leads the query; SQLite would have to guess which one is rare.
"""

from __future__ import annotations

from gridpost.core.delivery import Side
from gridpost.core.message_box import Search
from gridpost.stores.box_rows import BOX_COLUMNS
from gridpost.stores.sqlite.schema import TROUBLE
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

_RARE = ("message_id", "conversation_id", "ba_message_id")
"""Fields of which a value has a few messages at most."""

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


_TEXT = f"""
    number IN (
        SELECT number FROM message INDEXED BY message_in_trouble WHERE state IN ({TROUBLE})
        UNION ALL
        SELECT message FROM outgoing WHERE due_at IS NOT NULL AND message IS NOT NULL
    )
    AND EXISTS (
        SELECT 1 FROM trace WHERE trace.message = message.number
        AND trace.detail LIKE :text ESCAPE '~'
    )
"""


def query(search: Search, limit: int, before: int | None) -> tuple[str, dict[str, object]]:
    """The SELECT of BOX_COLUMNS and its parameters."""
    conditions = ["1"]
    values: dict[str, object] = {"limit": limit}
    led = False
    text = bool(search.text)
    for field, partial in _FIELDS:
        value = getattr(search, field)
        if value:
            rare = field in _RARE or not text
            conditions.append(f"{'+' if led or not rare else ''}{field} = :{field}{partial}")
            values[field] = str(value)
            led = led or rare
    if search.text:
        # Few messages are in trouble: they lead, unless something rarer does.
        conditions.append(f"{'+' if led else ''}{_TEXT.strip()}")
        values["text"] = f"%{_literal(search.text)}%"
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


def _literal(text: str) -> str:
    """For LIKE: what somebody typed stands for itself."""
    return text.replace("~", "~~").replace("%", "~%").replace("_", "~_")
