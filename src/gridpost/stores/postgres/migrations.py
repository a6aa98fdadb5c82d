"""The tables that every component has in PostgreSQL, and how a schema becomes a current one.

A released migration never changes; a new version of the tables is one more entry at the end. Each
kind of data counts its versions by itself, so that one schema holds what its component needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from psycopg import sql

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres.session import Connection

Migrations: TypeAlias = Mapping[str, Sequence[Sequence[str]]]
"""Name of a kind of data -> its versions, each a list of statements."""

# One journal stream for each process: the numbers of a stream follow the order of its commits,
# because the row of the stream is locked from the first number of a transaction to its end.
BASE: Migrations = {
    "base": (
        (
            """
            CREATE TABLE meta (
                name text PRIMARY KEY,
                value text NOT NULL
            )
            """,
            """
            CREATE TABLE journal_stream (
                number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                instance text NOT NULL UNIQUE,
                last bigint NOT NULL DEFAULT 0,
                pruned bigint NOT NULL DEFAULT 0,
                exported bigint NOT NULL DEFAULT 0
            ) WITH (fillfactor = 10)
            """,
            """
            CREATE TABLE journal (
                stream integer NOT NULL REFERENCES journal_stream (number),
                sequence bigint NOT NULL,
                at bigint NOT NULL,
                kind text NOT NULL,
                schema_version integer NOT NULL,
                payload text NOT NULL,
                PRIMARY KEY (stream, sequence)
            )
            """,
            # What people page through, among all rows.
            """
            CREATE INDEX journal_listed ON journal (stream, kind, sequence)
            WHERE kind IN ('administration', 'refusal')
            """,
            # Written first in every transaction: whether the row has the number says, after a broken
            # connection, whether the transaction was committed.
            """
            CREATE TABLE commit_mark (
                owner text PRIMARY KEY,
                mark bigint NOT NULL,
                at timestamptz NOT NULL
            ) WITH (fillfactor = 10)
            """,
            """
            CREATE TABLE lease (
                name text PRIMARY KEY,
                token bigint NOT NULL,
                holder text NOT NULL,
                since timestamptz NOT NULL
            )
            """,
        ),
    )
}

_VERSIONS = """
    CREATE TABLE IF NOT EXISTS schema_version (
        kind text PRIMARY KEY,
        version integer NOT NULL
    )
"""
_SET_VERSION = """
    INSERT INTO schema_version VALUES (%s, %s)
    ON CONFLICT (kind) DO UPDATE SET version = excluded.version
"""


def migrate(connection: Connection, schema: str, migrations: Migrations) -> None:
    """Bring all kinds to their current versions, in one transaction; processes take turns."""
    wanted = {**BASE, **migrations}
    with connection.transaction():
        connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"{schema} migration",)
        )
        found = connection.execute("SELECT to_regnamespace(%s)", (schema,)).fetchone()
        if found == (None,):
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        if connection.execute("SELECT to_regclass('schema_version')").fetchone() == (None,):
            connection.execute(_VERSIONS)
        versions: dict[str, int] = dict(
            connection.execute("SELECT kind, version FROM schema_version").fetchall()
        )
        for kind, steps in wanted.items():
            if versions.get(kind, 0) > len(steps):
                raise Refusal(
                    Rule.STORE_TOO_NEW,
                    f"'{kind}' in schema {schema} has version {versions[kind]}, "
                    f"this Gridpost knows versions up to {len(steps)}",
                    "a newer Gridpost has written it: start that one, or restore a backup",
                )
        for kind, steps in wanted.items():
            at = versions.get(kind, 0)
            for statements in steps[at:]:
                for statement in statements:
                    connection.execute(statement)
            if at < len(steps):
                connection.execute(_SET_VERSION, (kind, len(steps)))
