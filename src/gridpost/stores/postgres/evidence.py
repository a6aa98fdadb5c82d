"""The acknowledgements that moved a sent message, kept as evidence as long as its metadata (4.5.4)."""

from __future__ import annotations

from gridpost.core.message import InternalMessage
from gridpost.stores.postgres.session import Connection
from gridpost.stores.values import read_metadata, write_metadata

_KEEP = """
    INSERT INTO acknowledgement (message, line, metadata, content)
    SELECT m.number,
        1 + coalesce((SELECT max(line) FROM acknowledgement WHERE message = m.number), 0), %s, %s
    FROM message m WHERE m.message_id = %s AND m.side = 'sent'
"""
_OF = """
    SELECT a.metadata, a.content FROM message m JOIN acknowledgement a ON a.message = m.number
    WHERE m.message_id = %s AND m.side = 'sent' ORDER BY a.line
"""


def keep(connection: Connection, acknowledgement: InternalMessage) -> None:
    metadata = acknowledgement.metadata
    text = write_metadata(metadata)
    kept = connection.execute(_KEEP, (text, acknowledgement.content, metadata.related_message_id))
    if kept.rowcount == 0:
        raise ValueError(f"no sent message {metadata.related_message_id} is in the box")


def of(connection: Connection, message_id: str) -> list[InternalMessage]:
    rows = connection.execute(_OF, (message_id,)).fetchall()
    return [InternalMessage(read_metadata(metadata), bytes(content)) for metadata, content in rows]
