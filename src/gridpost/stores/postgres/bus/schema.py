"""The tables of a bus in PostgreSQL. A released migration never changes."""

from __future__ import annotations

from gridpost.stores.postgres.migrations import Migrations

_FIRST = (
    # A request that was handled; its keys are its MessageID and its nonce.
    """
    CREATE TABLE request (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        digest bytea NOT NULL,
        at bigint NOT NULL
    )
    """,
    "CREATE INDEX request_by_time ON request (at)",
    """
    CREATE TABLE request_key (
        source text NOT NULL,
        key text NOT NULL,
        request bigint NOT NULL REFERENCES request (number) ON DELETE CASCADE,
        PRIMARY KEY (source, key)
    )
    """,
    "CREATE INDEX request_key_by_request ON request_key (request)",
    """
    CREATE TABLE outbox (
        sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        request bigint REFERENCES request (number) ON DELETE CASCADE,
        address text NOT NULL,
        body bytea NOT NULL,
        message_id text NOT NULL,
        correlation_id text NOT NULL,
        reply bigint NOT NULL,
        sent bigint NOT NULL DEFAULT 0
    )
    """,
    "CREATE INDEX outbox_by_request ON outbox (request)",
    "CREATE INDEX outbox_unsent ON outbox (sequence) WHERE sent = 0",
    """
    CREATE TABLE object (
        noun text NOT NULL,
        mrid text NOT NULL,
        state text NOT NULL,
        content text NOT NULL,
        PRIMARY KEY (noun, mrid)
    )
    """,
    """
    CREATE TABLE object_name (
        noun text NOT NULL,
        mrid text NOT NULL,
        name text NOT NULL,
        id_type text NOT NULL,
        id_authority text NOT NULL,
        PRIMARY KEY (noun, mrid, name, id_type, id_authority)
    )
    """,
    "CREATE INDEX object_by_name ON object_name (noun, name)",
    # 61968-100 Annex B: the master keeps what an object was, also after it is deleted.
    """
    CREATE TABLE object_history (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        noun text NOT NULL,
        mrid text NOT NULL,
        state text NOT NULL,
        content text NOT NULL,
        at bigint NOT NULL
    )
    """,
    "CREATE INDEX object_history_by_object ON object_history (noun, mrid)",
    """
    CREATE TABLE reading (
        meter text NOT NULL,
        reading_type text NOT NULL,
        at bigint NOT NULL,
        value text NOT NULL,
        PRIMARY KEY (meter, reading_type, at)
    )
    """,
    "CREATE TABLE instance (name text PRIMARY KEY, seen bigint NOT NULL, load bigint NOT NULL)",
    # Replies that are expected from elsewhere, and where they go then.
    """
    CREATE TABLE expected (
        correlation text PRIMARY KEY,
        address text NOT NULL,
        transport text NOT NULL,
        at bigint NOT NULL
    )
    """,
)

MIGRATIONS: Migrations = {"bus": (_FIRST,)}
