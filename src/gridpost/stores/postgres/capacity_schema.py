"""The tables of the capacity ledger. A released migration never changes; a new version is one more entry."""

from __future__ import annotations

from gridpost.stores.postgres.migrations import Migrations

# One table for everything that happened, in one order. Triggers keep it append-only, also against
# a hand at the database.
CAPACITY: Migrations = {
    "capacity": (
        (
            """
            CREATE TABLE entry (
                sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                commit_number bigint NOT NULL,
                at bigint NOT NULL,
                kind text NOT NULL,
                out_area text NOT NULL,
                in_area text NOT NULL,
                period_start bigint,
                period_end bigint,
                quantity bigint NOT NULL,
                event text NOT NULL,
                actor text NOT NULL,
                balancing_group text NOT NULL,
                client_id text NOT NULL,
                correlation_id text NOT NULL,
                text text NOT NULL
            )
            """,
            """
            CREATE INDEX entry_by_period ON entry (period_start) WHERE period_start IS NOT NULL
            """,
            """
            CREATE INDEX entry_by_group ON entry (balancing_group, period_start)
            WHERE kind = 'allocation'
            """,
            """
            CREATE INDEX entry_by_kind ON entry (kind, sequence)
            WHERE kind IN ('status', 'login', 'active')
            """,
            """
            CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$
            """,
            """
            CREATE TRIGGER entry_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON entry
            FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()
            """,
            # What was answered to a request, for as long as a repetition of it is refused.
            """
            CREATE TABLE outcome (
                who text NOT NULL,
                correlation_id text NOT NULL,
                at bigint NOT NULL,
                outcomes text NOT NULL,
                PRIMARY KEY (who, correlation_id)
            )
            """,
            "CREATE INDEX outcome_by_time ON outcome (at)",
        ),
    )
}
