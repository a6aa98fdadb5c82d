"""What the box forgets, and when (503 cl. 5.9): contents, metadata and identifiers, each in its time.

Metadata may go before the content: what is left is a remnant, which also remembers the identifier
of a received message, so that a duplicate is still recognised (503 cl. 5.8.3).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta

from gridpost.core.delivery import Side
from gridpost.core.message_box import Purged, Retention
from gridpost.stores.sqlite.bodies import WorkFiles
from gridpost.stores.values import to_microseconds

# A message that is still to be transferred keeps its metadata and its content.
_NOT_OUTGOING = "NOT EXISTS (SELECT 1 FROM outgoing WHERE outgoing.message = message.number)"

_CONTENTS_OF_MESSAGES = f"""
    SELECT number FROM message INDEXED BY message_final_with_content
    WHERE side = ? AND final_at <= ? AND has_content = 1 AND {_NOT_OUTGOING} {{others}}
    ORDER BY final_at, number LIMIT ?
"""
_CONTENTS_OF_REMNANTS = """
    SELECT number FROM remnant INDEXED BY remnant_final_with_content
    WHERE side = ? AND final_at <= ? AND has_content = 1
    ORDER BY final_at, number LIMIT ?
"""
_DELETE_CONTENT = "DELETE FROM content WHERE number = ? RETURNING file"
_WITHOUT_CONTENT = "UPDATE message SET has_content = 0 WHERE number = ?"
_REMNANT_WITHOUT_CONTENT = "UPDATE remnant SET has_content = 0 WHERE number = ?"
_ENTRIES = f"""
    SELECT number FROM message INDEXED BY message_final
    WHERE side = ? AND final_at <= ? AND {_NOT_OUTGOING} {{others}}
    ORDER BY final_at, number LIMIT ?
"""
_REMEMBER = """
    INSERT INTO remnant (number, side, message_id, final_at, has_content)
    SELECT number, side, message_id, final_at, has_content FROM message WHERE number = ?
"""
_DELETE_ENTRY = "DELETE FROM message WHERE number = ?"
FINISHED = f"""
    SELECT message_id FROM message INDEXED BY message_final
    WHERE side = ? AND final_at <= ? AND {_NOT_OUTGOING}
    ORDER BY final_at, number LIMIT ?
"""
_FINISHED_ONE = f"""
    SELECT number FROM message
    WHERE message_id = ? AND side = ? AND final_at IS NOT NULL AND {_NOT_OUTGOING}
"""
_FORGET_SENT = "DELETE FROM remnant WHERE side = 'sent' AND has_content = 0"
_FORGET_RECEIVED = """
    DELETE FROM remnant WHERE number IN (
        SELECT number FROM remnant INDEXED BY remnant_final
        WHERE side = 'received' AND final_at <= ? AND has_content = 0
        ORDER BY final_at, number LIMIT ?
    )
"""


def purge(
    connection: sqlite3.Connection,
    files: WorkFiles,
    retention: Retention,
    now: datetime,
    limit: int,
) -> Purged:
    def cutoff(kept_for: timedelta) -> int:
        return to_microseconds(now - kept_for)

    contents = entries = 0
    for side in Side:
        until = cutoff(retention.content(side))
        for query, types, mark in (
            (_CONTENTS_OF_MESSAGES, retention.content_stays, _WITHOUT_CONTENT),
            (_CONTENTS_OF_REMNANTS, (), _REMNANT_WITHOUT_CONTENT),
        ):
            values = (side.value, until, *types, limit - contents)
            due = connection.execute(query.format(others=_but(types)), values).fetchall()
            for number in due:
                for (file,) in connection.execute(_DELETE_CONTENT, number).fetchall():
                    files.doom(file)
            connection.executemany(mark, due)
            contents += len(due)
    for side in Side:
        until = cutoff(retention.metadata(side))
        types = retention.metadata_stays
        values = (side.value, until, *types, limit - entries)
        due = connection.execute(_ENTRIES.format(others=_but(types)), values).fetchall()
        connection.executemany(_REMEMBER, due)
        connection.executemany(_DELETE_ENTRY, due)
        entries += len(due)
    # Our own identifiers need not be remembered: nobody else makes them.
    connection.execute(_FORGET_SENT)
    until = cutoff(retention.received_ids)
    identifiers = connection.execute(_FORGET_RECEIVED, (until, limit)).rowcount
    return Purged(contents, entries, identifiers)


def discard(
    connection: sqlite3.Connection, files: WorkFiles, side: Side, message_ids: Sequence[str]
) -> int:
    gone = 0
    for message_id in message_ids:
        number = connection.execute(_FINISHED_ONE, (message_id, side.value)).fetchone()
        if number is None:
            continue
        for (file,) in connection.execute(_DELETE_CONTENT, number).fetchall():
            files.doom(file)
        for statement in (_WITHOUT_CONTENT, _REMEMBER, _DELETE_ENTRY):
            connection.execute(statement, number)
        gone += 1
    connection.execute(_FORGET_SENT)
    return gone


def _but(types: Sequence[str]) -> str:
    return f"AND message_type NOT IN ({', '.join('?' * len(types))})" if types else ""
