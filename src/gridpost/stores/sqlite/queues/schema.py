"""The tables of a broker's queues. A released migration never changes; a new version is one more entry."""

from __future__ import annotations

from gridpost.stores.sqlite.directory_client import DIRECTORY_CLIENT

# A queue that was removed keeps its row: ids that arrived in it stay known until they expire.
_QUEUE = """
    CREATE TABLE queue (
        queue INTEGER PRIMARY KEY,
        code TEXT NOT NULL UNIQUE,
        active INTEGER NOT NULL
    ) STRICT
"""
# AUTOINCREMENT: a number is never given twice. What is asked of many rows stands before the body,
# so that no page of a body is read for it.
_MESSAGE = """
    CREATE TABLE message (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        queue INTEGER NOT NULL,
        message_id BLOB NOT NULL,
        sender TEXT NOT NULL,
        message_type TEXT NOT NULL,
        stored_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        size INTEGER NOT NULL,
        priority INTEGER,
        deliveries INTEGER NOT NULL,
        held TEXT,
        file TEXT,
        body BLOB
    ) STRICT
"""
# Every id that arrived, until it expires. Without an index by time: `forget` walks the key.
_KNOWN = """
    CREATE TABLE known (
        message_id BLOB NOT NULL,
        queue INTEGER NOT NULL,
        number INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        PRIMARY KEY (message_id, queue)
    ) STRICT, WITHOUT ROWID
"""
_FIRST = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    _QUEUE,
    _MESSAGE,
    # Counts, sums and order of a queue are answered by this index alone.
    "CREATE INDEX message_ready ON message (queue, number, size) WHERE held IS NULL",
    "CREATE INDEX message_held ON message (queue) WHERE held IS NOT NULL",
    "CREATE INDEX message_by_expiry ON message (expires_at)",
    "CREATE INDEX message_by_file ON message (file, size) WHERE file IS NOT NULL",
    _KNOWN,
    # As in the other stores: what reads a journal reads this one too.
    """
    CREATE TABLE journal (
        sequence INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        schema_version INTEGER NOT NULL,
        payload TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE journal_state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        pruned INTEGER NOT NULL,
        exported INTEGER NOT NULL
    ) STRICT
    """,
    "INSERT INTO journal_state (one, pruned, exported) VALUES (1, 0, 0)",
    *DIRECTORY_CLIENT,
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST,)
