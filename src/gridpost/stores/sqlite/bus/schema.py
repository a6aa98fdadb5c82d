"""The tables of a bus. A released migration never changes; a new version is one more entry."""

from __future__ import annotations

from gridpost.stores.sqlite.journal import JOURNAL

_FIRST = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    *JOURNAL,
    # A request that was handled; its keys are its MessageID and its nonce.
    """
    CREATE TABLE request (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        digest BLOB NOT NULL,
        at INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX request_by_time ON request (at)",
    """
    CREATE TABLE request_key (
        source TEXT NOT NULL,
        key TEXT NOT NULL,
        request INTEGER NOT NULL REFERENCES request (number) ON DELETE CASCADE,
        PRIMARY KEY (source, key)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX request_key_by_request ON request_key (request)",
    """
    CREATE TABLE outbox (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        request INTEGER REFERENCES request (number) ON DELETE CASCADE,
        address TEXT NOT NULL,
        body BLOB NOT NULL,
        message_id TEXT NOT NULL,
        correlation_id TEXT NOT NULL,
        reply INTEGER NOT NULL,
        sent INTEGER NOT NULL DEFAULT 0
    ) STRICT
    """,
    "CREATE INDEX outbox_by_request ON outbox (request)",
    "CREATE INDEX outbox_unsent ON outbox (sequence) WHERE sent = 0",
    """
    CREATE TABLE object (
        noun TEXT NOT NULL,
        mrid TEXT NOT NULL,
        state TEXT NOT NULL,
        content TEXT NOT NULL,
        PRIMARY KEY (noun, mrid)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE object_name (
        noun TEXT NOT NULL,
        mrid TEXT NOT NULL,
        name TEXT NOT NULL,
        id_type TEXT NOT NULL,
        id_authority TEXT NOT NULL,
        PRIMARY KEY (noun, mrid, name, id_type, id_authority)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX object_by_name ON object_name (noun, name)",
    # 61968-100 Annex B: the master keeps what an object was, also after it is deleted.
    """
    CREATE TABLE object_history (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        noun TEXT NOT NULL,
        mrid TEXT NOT NULL,
        state TEXT NOT NULL,
        content TEXT NOT NULL,
        at INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX object_history_by_object ON object_history (noun, mrid)",
    """
    CREATE TABLE reading (
        meter TEXT NOT NULL,
        reading_type TEXT NOT NULL,
        at INTEGER NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (meter, reading_type, at)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE TABLE instance (name TEXT PRIMARY KEY, seen INTEGER NOT NULL) STRICT, WITHOUT ROWID",
)

_SECOND = (
    "ALTER TABLE instance ADD COLUMN load INTEGER NOT NULL DEFAULT 0",
    # Replies that are expected from elsewhere, and where they go then.
    """
    CREATE TABLE expected (
        correlation TEXT PRIMARY KEY,
        address TEXT NOT NULL,
        transport TEXT NOT NULL,
        at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)

_THIRD = (
    # For alerts and a SIEM: few rows among many envelopes.
    "CREATE INDEX journal_administration ON journal (sequence) WHERE kind = 'administration'",
    "CREATE INDEX journal_refusal ON journal (sequence) WHERE kind = 'refusal'",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _SECOND, _THIRD)
