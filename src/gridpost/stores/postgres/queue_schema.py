"""The tables of a broker's queues in PostgreSQL. A released list never changes."""

from __future__ import annotations

from gridpost.stores.postgres.migrations import Migrations

# An edge is a process that holds the lock of its number; a number is never given twice. Whoever
# finds a number without its lock removes it and frees what it had.
# Contents stand apart from their rows (TOAST, not compressed), so that a claim rewrites little.
BROKER_QUEUES: Migrations = {
    "broker-queues": (
        (
            "CREATE SEQUENCE edge_number",
            """
            CREATE TABLE edge (
                number bigint PRIMARY KEY,
                holder text NOT NULL,
                since timestamptz NOT NULL
            )
            """,
            # `locked_by`: this edge removes the queue, and nobody may join it.
            """
            CREATE TABLE queue (
                code text COLLATE "C" PRIMARY KEY,
                locked_by bigint REFERENCES edge (number) ON DELETE SET NULL
            )
            """,
            """
            CREATE TABLE queue_link (
                queue text COLLATE "C" NOT NULL,
                edge bigint NOT NULL REFERENCES edge (number) ON DELETE CASCADE,
                PRIMARY KEY (queue, edge)
            )
            """,
            "CREATE INDEX queue_link_by_edge ON queue_link (edge)",
            "CREATE SEQUENCE message_number",
            """
            CREATE TABLE message (
                number bigint PRIMARY KEY,
                queue text COLLATE "C" NOT NULL,
                message_id text COLLATE "C" NOT NULL,
                sender text NOT NULL,
                message_type text NOT NULL,
                stored_at bigint NOT NULL,
                expires_at bigint NOT NULL,
                size bigint NOT NULL,
                priority integer,
                deliveries integer NOT NULL,
                edge bigint,
                held text,
                content bytea NOT NULL
            ) WITH (
                toast_tuple_target = 128,
                autovacuum_vacuum_scale_factor = 0.02,
                autovacuum_vacuum_threshold = 1000,
                toast.autovacuum_vacuum_scale_factor = 0.02
            )
            """,
            "ALTER TABLE message ALTER COLUMN content SET STORAGE EXTERNAL",
            """
            CREATE INDEX message_ready ON message (queue, number)
            WHERE edge IS NULL AND held IS NULL
            """,
            "CREATE INDEX message_of_edge ON message (edge, queue) WHERE edge IS NOT NULL",
            "CREATE INDEX message_held ON message (queue) WHERE held IS NOT NULL",
            "CREATE INDEX message_by_expiry ON message (expires_at)",
            # Every id that arrived, until it expires, whatever became of its message and queue.
            """
            CREATE TABLE known_message (
                queue text COLLATE "C" NOT NULL,
                message_id text COLLATE "C" NOT NULL,
                expires_at bigint NOT NULL,
                PRIMARY KEY (queue, message_id)
            )
            """,
            "CREATE INDEX known_message_by_expiry ON known_message (expires_at)",
        ),
    )
}
