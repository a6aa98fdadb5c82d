"""The tables of a component-directory (503 cl. 7, 8). A released list of statements never changes."""

from __future__ import annotations

# Rows of `registration` and `ledger` are never deleted: they say whose key was certified and when.
COMPONENT_DIRECTORY = (
    """
    CREATE TABLE registration (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        registration_id TEXT NOT NULL UNIQUE,
        code TEXT NOT NULL,
        status TEXT NOT NULL,
        request TEXT NOT NULL,
        submitted_at INTEGER NOT NULL,
        submitted_by BLOB NOT NULL,
        extension INTEGER NOT NULL,
        reason TEXT NOT NULL,
        decided_at INTEGER,
        decided_by TEXT NOT NULL,
        issued TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX registration_by_code ON registration (code)",
    "CREATE INDEX registration_by_status ON registration (status)",
    """
    CREATE TABLE invitation (
        fingerprint BLOB PRIMARY KEY,
        code TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        created_by TEXT NOT NULL,
        expires_at INTEGER NOT NULL,
        registration_id TEXT NOT NULL,
        withdrawn_at INTEGER
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX invitation_by_code ON invitation (code)",
    """
    CREATE TABLE ledger (
        fingerprint BLOB PRIMARY KEY,
        key_digest BLOB NOT NULL,
        code TEXT NOT NULL,
        kind TEXT NOT NULL,
        certificate_id TEXT NOT NULL,
        not_after INTEGER NOT NULL,
        revoked_at INTEGER
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX ledger_by_key ON ledger (key_digest)",
    "CREATE INDEX ledger_by_code ON ledger (code)",
    """
    CREATE TABLE entry (
        code TEXT PRIMARY KEY,
        component TEXT NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    # `number` keeps the order of the first synchronisation, by which duplicates are judged.
    """
    CREATE TABLE replica (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        component_directory TEXT NOT NULL UNIQUE,
        content_id TEXT NOT NULL,
        valid_until INTEGER
    ) STRICT
    """,
    """
    CREATE TABLE replica_entry (
        replica INTEGER NOT NULL REFERENCES replica (number) ON DELETE CASCADE,
        line INTEGER NOT NULL,
        component TEXT NOT NULL,
        PRIMARY KEY (replica, line)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE entries_state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        revision INTEGER NOT NULL
    ) STRICT
    """,
    "INSERT INTO entries_state (one, revision) VALUES (1, 0)",
)
