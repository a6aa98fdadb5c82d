"""The tables of the capacity ledger. A released migration never changes; a new version is one more entry."""

from __future__ import annotations

from gridpost.stores.sqlite.journal import JOURNAL

# One table for everything that happened, in one order. Triggers keep it append-only, also against
# a hand at the database.
_ENTRY = """
    CREATE TABLE entry (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        commit_number INTEGER NOT NULL,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        out_area TEXT NOT NULL DEFAULT '',
        in_area TEXT NOT NULL DEFAULT '',
        period_start INTEGER,
        period_end INTEGER,
        quantity INTEGER NOT NULL DEFAULT 0,
        event TEXT NOT NULL DEFAULT '',
        actor TEXT NOT NULL DEFAULT '',
        balancing_group TEXT NOT NULL DEFAULT '',
        client_id TEXT NOT NULL DEFAULT '',
        correlation_id TEXT NOT NULL DEFAULT '',
        text TEXT NOT NULL DEFAULT ''
    ) STRICT
"""
# What was answered to a request, for as long as a repetition of it is refused.
_OUTCOME = """
    CREATE TABLE outcome (
        user TEXT NOT NULL,
        correlation_id TEXT NOT NULL,
        at INTEGER NOT NULL,
        outcomes TEXT NOT NULL,
        PRIMARY KEY (user, correlation_id)
    ) STRICT, WITHOUT ROWID
"""
_FIRST = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    _ENTRY,
    "CREATE INDEX entry_by_period ON entry (period_start) WHERE period_start IS NOT NULL",
    """
    CREATE INDEX entry_by_group ON entry (balancing_group, period_start)
    WHERE kind = 'allocation'
    """,
    "CREATE INDEX entry_by_kind ON entry (kind, actor) WHERE kind IN ('status', 'login', 'active')",
    """
    CREATE TRIGGER entry_stays BEFORE UPDATE ON entry
    BEGIN SELECT raise(ABORT, 'the ledger is append-only'); END
    """,
    """
    CREATE TRIGGER entry_remains BEFORE DELETE ON entry
    BEGIN SELECT raise(ABORT, 'the ledger is append-only'); END
    """,
    _OUTCOME,
    "CREATE INDEX outcome_by_time ON outcome (at)",
    *JOURNAL,
)

# What people page through, among all rows of the journal.
_LISTED = (
    "CREATE INDEX journal_administration ON journal (sequence) WHERE kind = 'administration'",
    "CREATE INDEX journal_refusal ON journal (sequence) WHERE kind = 'refusal'",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _LISTED)
