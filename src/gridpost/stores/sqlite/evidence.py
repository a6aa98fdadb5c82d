"""The acknowledgements that moved a sent message, kept as evidence as long as its metadata (4.5.4)."""

from __future__ import annotations

from gridpost.core.delivery import Side
from gridpost.core.message import InternalMessage
from gridpost.stores.sqlite.group import Group
from gridpost.stores.values import read_metadata, write_metadata

_KEEP = "INSERT INTO acknowledgement (message, line, metadata, content)"
_OF = """
    SELECT a.metadata, a.content FROM message m JOIN acknowledgement a ON a.message = m.number
    WHERE m.message_id = ? AND m.side = 'sent' ORDER BY a.line
"""


def keep(group: Group, acknowledgement: InternalMessage) -> None:
    metadata = acknowledgement.metadata
    known = group.entries.find((metadata.related_message_id, Side.SENT.value))
    if known is None:
        raise ValueError(f"no sent message {metadata.related_message_id} is in the box")
    line = known.next_acknowledgement()
    text = write_metadata(metadata)
    group.add(_KEEP, (known.number, line, text, acknowledgement.content))


def of(group: Group, message_id: str) -> list[InternalMessage]:
    group.flush()
    rows = group.connection.execute(_OF, (message_id,)).fetchall()
    return [InternalMessage(read_metadata(metadata), content) for metadata, content in rows]
