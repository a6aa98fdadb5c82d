"""The tables of a component-directory (503 cl. 7, 8) and of its clients. A released list never changes."""

from __future__ import annotations

from gridpost.stores.postgres.migrations import Migrations

# Rows of `registration` and `ledger` are never deleted: they say whose key was certified and when.
# Codes are ordered by their characters, whatever the language of the server.
COMPONENT_DIRECTORY: Migrations = {
    "component-directory": (
        (
            """
            CREATE TABLE registration (
                number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                registration_id text NOT NULL UNIQUE,
                code text COLLATE "C" NOT NULL,
                status text NOT NULL,
                request text NOT NULL,
                submitted_at bigint NOT NULL,
                submitted_by bytea NOT NULL,
                extension boolean NOT NULL,
                reason text NOT NULL,
                decided_at bigint,
                decided_by text NOT NULL,
                issued text NOT NULL
            )
            """,
            "CREATE INDEX registration_by_code ON registration (code)",
            "CREATE INDEX registration_by_status ON registration (status)",
            """
            CREATE TABLE invitation (
                fingerprint bytea PRIMARY KEY,
                code text COLLATE "C" NOT NULL,
                created_at bigint NOT NULL,
                created_by text NOT NULL,
                expires_at bigint NOT NULL,
                registration_id text NOT NULL,
                withdrawn_at bigint
            )
            """,
            "CREATE INDEX invitation_by_code ON invitation (code)",
            """
            CREATE TABLE ledger (
                fingerprint bytea PRIMARY KEY,
                key_digest bytea NOT NULL,
                code text COLLATE "C" NOT NULL,
                kind text NOT NULL,
                certificate_id text NOT NULL,
                not_after bigint NOT NULL,
                revoked_at bigint
            )
            """,
            "CREATE INDEX ledger_by_key ON ledger (key_digest)",
            "CREATE INDEX ledger_by_code ON ledger (code)",
            """
            CREATE TABLE entry (
                code text COLLATE "C" PRIMARY KEY,
                component text NOT NULL
            )
            """,
            # `number` keeps the order of the first synchronisation, by which duplicates are judged.
            """
            CREATE TABLE replica (
                number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                component_directory text NOT NULL UNIQUE,
                content_id text NOT NULL,
                valid_until bigint
            )
            """,
            """
            CREATE TABLE replica_entry (
                replica bigint NOT NULL REFERENCES replica (number) ON DELETE CASCADE,
                line integer NOT NULL,
                component text NOT NULL,
                PRIMARY KEY (replica, line)
            )
            """,
            """
            CREATE TABLE entries_state (
                one integer PRIMARY KEY CHECK (one = 1),
                revision bigint NOT NULL
            ) WITH (fillfactor = 10)
            """,
            "INSERT INTO entries_state (one, revision) VALUES (1, 0)",
        ),
    )
}

DIRECTORY_CLIENT: Migrations = {
    "directory-client": (
        (
            """
            CREATE TABLE copied_subsystem (
                component_directory text PRIMARY KEY,
                place integer NOT NULL,
                content_id text NOT NULL,
                valid_until bigint
            )
            """,
            """
            CREATE TABLE copied_component (
                component_directory text NOT NULL
                    REFERENCES copied_subsystem (component_directory) ON DELETE CASCADE,
                line integer NOT NULL,
                component text NOT NULL,
                PRIMARY KEY (component_directory, line)
            )
            """,
            """
            CREATE TABLE own_entry (
                one integer PRIMARY KEY CHECK (one = 1),
                component text NOT NULL,
                revision bigint NOT NULL,
                pushed bigint NOT NULL
            )
            """,
            """
            CREATE TABLE enrolment (
                one integer PRIMARY KEY CHECK (one = 1),
                state text NOT NULL,
                record text NOT NULL
            )
            """,
        ),
    )
}
