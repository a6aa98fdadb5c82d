"""The tables of the embedded store, and how a database of an older version becomes a current one.

A released migration never changes; a new version of the tables is one more entry at the end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.sqlite.controls import CONTROLS
from gridpost.stores.sqlite.directory_client import DIRECTORY_CLIENT
from gridpost.stores.sqlite.directory_schema import COMPONENT_DIRECTORY
from gridpost.stores.sqlite.journal import JOURNAL
from gridpost.stores.sqlite.notices import NOTICES

# What the standards call a message is a row of `message` with its `content` and its `trace`. Each
# goes at its own time (503 cl. 5.9); what is left of a message after its metadata is a `remnant`.
#
# Three columns of `message` repeat what others say, in the form that questions are asked in:
#   open_until  when EXPIRE would move the message; NULL where it would not
#   final_at    when retention begins to count: core.delivery.final_since
#   peer        the other endpoint
_FIRST = (
    """
    CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    # AUTOINCREMENT: a number is never given twice, also after its row has gone.
    """
    CREATE TABLE message (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        side TEXT NOT NULL,
        state TEXT NOT NULL,
        expires_at INTEGER NOT NULL,
        changed_at INTEGER NOT NULL,
        message_id TEXT NOT NULL,
        receiver_code TEXT NOT NULL,
        message_type TEXT NOT NULL,
        generated_at INTEGER NOT NULL,
        generated TEXT NOT NULL,
        expiration_at INTEGER,
        expiration TEXT,
        sender_code TEXT NOT NULL,
        internal_type TEXT NOT NULL,
        extension TEXT NOT NULL,
        related_message_id TEXT NOT NULL,
        sender_application TEXT NOT NULL,
        ba_message_id TEXT NOT NULL,
        processors TEXT NOT NULL,
        mversion INTEGER NOT NULL,
        route TEXT NOT NULL,
        fingerprint BLOB NOT NULL,
        size INTEGER NOT NULL,
        application TEXT NOT NULL,
        conversation_id TEXT NOT NULL,
        status TEXT,
        open_until INTEGER,
        final_at INTEGER,
        peer TEXT NOT NULL,
        arrived_at INTEGER NOT NULL,
        has_content INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE UNIQUE INDEX message_by_id ON message (message_id, side)",
    """
    CREATE UNIQUE INDEX message_by_conversation ON message (conversation_id, application)
    WHERE side = 'sent' AND conversation_id <> ''
    """,
    "CREATE INDEX message_by_ba_id ON message (ba_message_id) WHERE ba_message_id <> ''",
    "CREATE INDEX message_by_type ON message (message_type)",
    "CREATE INDEX message_by_peer ON message (peer)",
    "CREATE INDEX message_by_status ON message (status) WHERE status IS NOT NULL",
    "CREATE INDEX message_by_arrival ON message (arrived_at)",
    """
    CREATE INDEX message_waiting ON message (message_type, number, expires_at)
    WHERE state = 'WAITING'
    """,
    "CREATE INDEX message_open ON message (open_until) WHERE open_until IS NOT NULL",
    "CREATE INDEX message_final ON message (side, final_at) WHERE final_at IS NOT NULL",
    """
    CREATE INDEX message_final_with_content ON message (side, final_at)
    WHERE final_at IS NOT NULL AND has_content = 1
    """,
    # `number` is that of the message or of its remnant; the body is here or in a file.
    """
    CREATE TABLE content (
        number INTEGER PRIMARY KEY,
        size INTEGER NOT NULL,
        body BLOB,
        file TEXT,
        CHECK ((body IS NULL) <> (file IS NULL))
    ) STRICT
    """,
    "CREATE UNIQUE INDEX content_by_file ON content (file) WHERE file IS NOT NULL",
    """
    CREATE TABLE trace (
        message INTEGER NOT NULL REFERENCES message (number) ON DELETE CASCADE,
        line INTEGER NOT NULL,
        at INTEGER NOT NULL,
        event TEXT NOT NULL,
        state TEXT NOT NULL,
        moved INTEGER NOT NULL,
        detail TEXT NOT NULL,
        acknowledgement_id TEXT NOT NULL,
        PRIMARY KEY (message, line)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE acknowledgement (
        message INTEGER NOT NULL REFERENCES message (number) ON DELETE CASCADE,
        line INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        content BLOB NOT NULL,
        PRIMARY KEY (message, line)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE remnant (
        number INTEGER PRIMARY KEY,
        side TEXT NOT NULL,
        message_id TEXT NOT NULL,
        final_at INTEGER NOT NULL,
        has_content INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE UNIQUE INDEX remnant_by_id ON remnant (message_id, side)",
    "CREATE INDEX remnant_final ON remnant (side, final_at) WHERE has_content = 0",
    "CREATE INDEX remnant_final_with_content ON remnant (side, final_at) WHERE has_content = 1",
    # metadata NULL: as in `message`; body and file NULL: the content of `message`.
    """
    CREATE TABLE outgoing (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        message_id TEXT NOT NULL,
        message INTEGER REFERENCES message (number),
        metadata TEXT,
        size INTEGER NOT NULL,
        body BLOB,
        file TEXT,
        route TEXT NOT NULL,
        expires_at INTEGER NOT NULL,
        priority INTEGER NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        due_at INTEGER,
        CHECK (metadata IS NOT NULL OR message IS NOT NULL),
        CHECK ((message IS NULL) + (body IS NULL) + (file IS NULL) = 2)
    ) STRICT
    """,
    "CREATE INDEX outgoing_by_id ON outgoing (message_id)",
    "CREATE INDEX outgoing_by_message ON outgoing (message)",
    "CREATE INDEX outgoing_by_expiry ON outgoing (expires_at)",
    "CREATE INDEX outgoing_ready ON outgoing (priority DESC) WHERE due_at IS NULL",
    """
    CREATE INDEX outgoing_postponed ON outgoing (due_at, expires_at, priority)
    WHERE due_at IS NOT NULL
    """,
    """
    CREATE INDEX outgoing_postponed_in_order
    ON outgoing (priority DESC, number, due_at, expires_at) WHERE due_at IS NOT NULL
    """,
    "CREATE UNIQUE INDEX outgoing_by_file ON outgoing (file) WHERE file IS NOT NULL",
    *JOURNAL,
)

# Spelled out: a released migration must not change with the code.
AWAITING = "'ACCEPTED', 'DELIVERING', 'RECEIVE_HELD', 'DELIVERED', 'TRACING'"
_LISTENING = (
    f"""
    CREATE INDEX message_awaited ON message (route, expires_at)
    WHERE side = 'sent' AND state IN ({AWAITING})
    """,
)

# This version writes the processors of a message as separated fields and still reads JSON, so that no
# row has to change; an older Gridpost could not read the new ones.
_SEPARATED: tuple[str, ...] = ()
# What operators look for: people's actions and refusals among all rows, texts of errors among all
# messages. Partial, so that ordinary traffic writes none of them.
TROUBLE = "'EXPIRED', 'FAILED', 'REFUSED'"
_OPERATING = (
    "CREATE INDEX journal_administration ON journal (sequence) WHERE kind = 'administration'",
    "CREATE INDEX journal_refusal ON journal (sequence) WHERE kind = 'refusal'",
    f"CREATE INDEX message_in_trouble ON message (number, state) WHERE state IN ({TROUBLE})",
)
# A search by the text of an error meets messages in trouble, and those whose transfer is repeated.
_REPEATED = (
    """
    CREATE INDEX outgoing_repeated ON outgoing (message)
    WHERE due_at IS NOT NULL AND message IS NOT NULL
    """,
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    _FIRST,
    COMPONENT_DIRECTORY,
    DIRECTORY_CLIENT,
    _LISTENING,
    NOTICES,
    _SEPARATED,
    _OPERATING,
    CONTROLS,
    _REPEATED,
)


def migrate(
    connection: sqlite3.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS
) -> int:
    """Bring the database to the current version, one transaction for each step; its old version."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found > len(migrations):
        raise Refusal(
            Rule.STORE_TOO_NEW,
            f"the store has version {found}, this Gridpost knows versions up to {len(migrations)}",
            "a newer Gridpost has written it: start that one, or restore a backup",
        )
    for version, statements in enumerate(migrations[found:], start=found + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return int(found)
