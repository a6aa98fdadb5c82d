"""The tables of a broker's queues. A released migration never changes; a new version is one more entry."""

from __future__ import annotations

from gridpost.stores.sqlite.directory_client import DIRECTORY_CLIENT
from gridpost.stores.sqlite.journal import JOURNAL

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
    *JOURNAL,
    *DIRECTORY_CLIENT,
)

# As in the other stores: people's actions and refusals are found among millions of transfers.
_LISTED = (
    "CREATE INDEX journal_administration ON journal (sequence) WHERE kind = 'administration'",
    "CREATE INDEX journal_refusal ON journal (sequence) WHERE kind = 'refusal'",
)

# The highest number that a consumer was given since the store was opened; 0 after an orderly end.
_HANDED_OUT = ("ALTER TABLE queue ADD COLUMN handed_out INTEGER NOT NULL DEFAULT 0",)

# Where in its file a body begins: several bodies share a file.
_START = ("ALTER TABLE message ADD COLUMN start INTEGER NOT NULL DEFAULT 0",)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _LISTED, _HANDED_OUT, _START)
