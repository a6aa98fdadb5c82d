"""What the box forgets, and when (503 cl. 5.9): contents, metadata and identifiers, each in its time.

Metadata may go before the content: what is left is a remnant, which also remembers the identifier
of a received message, so that a duplicate is still recognised (503 cl. 5.8.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gridpost.core.delivery import Side
from gridpost.core.message_box import Purged, Retention
from gridpost.stores.postgres.session import Connection
from gridpost.stores.values import to_microseconds

# A message that is still to be transferred keeps its metadata and its content.
_NOT_OUTGOING = "NOT EXISTS (SELECT 1 FROM outgoing WHERE outgoing.message = message.number)"

_CONTENTS_OF_MESSAGES = f"""
    SELECT number FROM message
    WHERE side = %s AND final_at <= %s AND has_content = 1 AND {_NOT_OUTGOING}
        AND message_type <> ALL(%s)
    ORDER BY final_at, number LIMIT %s FOR UPDATE SKIP LOCKED
"""
_CONTENTS_OF_REMNANTS = """
    SELECT number FROM remnant
    WHERE side = %s AND final_at <= %s AND has_content = 1
    ORDER BY final_at, number LIMIT %s FOR UPDATE SKIP LOCKED
"""
_DELETE_CONTENTS = "DELETE FROM content WHERE message = ANY(%s)"
_WITHOUT_CONTENT = "UPDATE message SET has_content = 0 WHERE number = ANY(%s)"
_REMNANT_WITHOUT_CONTENT = "UPDATE remnant SET has_content = 0 WHERE number = ANY(%s)"
_ENTRIES = f"""
    SELECT number FROM message
    WHERE side = %s AND final_at <= %s AND {_NOT_OUTGOING} AND message_type <> ALL(%s)
    ORDER BY final_at, number LIMIT %s FOR UPDATE SKIP LOCKED
"""
_REMEMBER = """
    INSERT INTO remnant (number, side, message_id, final_at, has_content)
    SELECT number, side, message_id, final_at, has_content FROM message WHERE number = ANY(%s)
"""
_DELETE_ENTRIES = "DELETE FROM message WHERE number = ANY(%s)"
FINISHED = f"""
    SELECT message_id FROM message
    WHERE side = %s AND final_at <= %s AND {_NOT_OUTGOING}
    ORDER BY final_at, number LIMIT %s
"""
_FINISHED_THESE = f"""
    SELECT number FROM message
    WHERE side = %s AND message_id = ANY(%s) AND final_at IS NOT NULL AND {_NOT_OUTGOING}
    ORDER BY number FOR UPDATE SKIP LOCKED
"""
_FORGET_SENT = "DELETE FROM remnant WHERE side = 'sent' AND has_content = 0"
_FORGET_RECEIVED = """
    DELETE FROM remnant WHERE number IN (
        SELECT number FROM remnant
        WHERE side = 'received' AND final_at <= %s AND has_content = 0
        ORDER BY final_at, number LIMIT %s
    )
"""


def purge(connection: Connection, retention: Retention, now: datetime, limit: int) -> Purged:
    def cutoff(kept_for: timedelta) -> int:
        return to_microseconds(now - kept_for)

    def due(query: str, side: Side, kept_for: timedelta, done: int, *types: list[str]) -> list[int]:
        values = (side.value, cutoff(kept_for), *types, limit - done)
        return [number for (number,) in connection.execute(query, values).fetchall()]

    contents = entries = 0
    for side in Side:
        kept_for, types = retention.content(side), list(retention.content_stays)
        numbers = due(_CONTENTS_OF_MESSAGES, side, kept_for, contents, types)
        connection.execute(_DELETE_CONTENTS, (numbers,))
        connection.execute(_WITHOUT_CONTENT, (numbers,))
        contents += len(numbers)
        numbers = due(_CONTENTS_OF_REMNANTS, side, kept_for, contents)
        connection.execute(_DELETE_CONTENTS, (numbers,))
        connection.execute(_REMNANT_WITHOUT_CONTENT, (numbers,))
        contents += len(numbers)
    for side in Side:
        kept_for, types = retention.metadata(side), list(retention.metadata_stays)
        numbers = due(_ENTRIES, side, kept_for, entries, types)
        connection.execute(_REMEMBER, (numbers,))
        connection.execute(_DELETE_ENTRIES, (numbers,))
        entries += len(numbers)
    # Our own identifiers need not be remembered: nobody else makes them.
    connection.execute(_FORGET_SENT)
    until = cutoff(retention.received_ids)
    identifiers = connection.execute(_FORGET_RECEIVED, (until, limit)).rowcount
    return Purged(contents, entries, identifiers)


def discard(connection: Connection, side: Side, message_ids: Sequence[str]) -> int:
    found = connection.execute(_FINISHED_THESE, (side.value, list(message_ids))).fetchall()
    numbers = [number for (number,) in found]
    for statement in (_DELETE_CONTENTS, _WITHOUT_CONTENT, _REMEMBER, _DELETE_ENTRIES):
        connection.execute(statement, (numbers,))
    connection.execute(_FORGET_SENT)
    return len(numbers)
