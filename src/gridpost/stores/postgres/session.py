"""One connection to the database, with the guarantees that every connection must have.

Whoever owns a `Session` uses it from one thread. A connection that broke is replaced at its next
use: a database that was away is used again as soon as it answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres.settings import PostgresSettings

Connection: TypeAlias = psycopg.Connection[TupleRow]

OLDEST_SERVER = 130000
"""The first that tells the outcome of a transaction by its 64-bit number (pg_xact_status)."""

GUARANTEES = """
    SELECT current_setting('fsync'), current_setting('synchronous_commit'),
           current_setting('full_page_writes'), current_setting('server_encoding')
"""


def check_guarantees(values: TupleRow, version: int, place: str) -> None:
    """Refuse a server that would answer a commit before it is on the disk."""
    fsync, synchronous_commit, full_page_writes, encoding = values
    if version < OLDEST_SERVER:
        raise Refusal(
            Rule.STORE_UNSAFE,
            f"PostgreSQL {version // 10000} at {place} is too old",
            "use version 13 or newer",
        )
    for name, value in (
        ("fsync", fsync),
        ("synchronous_commit", synchronous_commit),
        ("full_page_writes", full_page_writes),
    ):
        if value == "off":
            raise Refusal(
                Rule.STORE_UNSAFE,
                f"{name} is off in the database at {place}: what it has committed can be lost",
                f"set {name} = on for this server, database and role",
            )
    if encoding != "UTF8":
        raise Refusal(
            Rule.STORE_UNSAFE,
            f"the database at {place} has the encoding {encoding}",
            "create it with ENCODING 'UTF8'",
        )


def session_settings(settings: PostgresSettings) -> sql.Composed:
    """Statements for a new connection."""
    return sql.SQL(
        "SET search_path TO {schema}, pg_temp; SET lock_timeout = {lock}; "
        "SET idle_in_transaction_session_timeout = 0; SET statement_timeout = 0; "
        # The locks of a machine that vanished are free soon, too.
        "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; "
        "SET tcp_keepalives_count = 3"
    ).format(
        schema=sql.Identifier(settings.schema),
        lock=sql.Literal(round(settings.lock_timeout.total_seconds() * 1000)),
    )


def connect(settings: PostgresSettings, *, read_only: bool = False) -> Connection:
    connection = psycopg.connect(settings.conninfo(), autocommit=True)
    try:
        found = connection.execute(GUARANTEES).fetchone()
        if found is None:
            raise psycopg.InterfaceError("the server does not tell its settings")
        check_guarantees(found, connection.info.server_version, settings.place())
        connection.execute(session_settings(settings))
        if read_only:
            connection.execute("SET default_transaction_read_only = on")
    except BaseException:
        connection.close()
        raise
    return connection


class Session:
    """A connection that is made when it is needed and made again when it broke."""

    def __init__(
        self,
        settings: PostgresSettings,
        *,
        read_only: bool = False,
        prepare: Callable[[Connection], None] | None = None,
    ) -> None:
        """`prepare` is called with every new connection; what it raises refuses the connection."""
        self._settings = settings
        self._read_only = read_only
        self._prepare = prepare
        self._connection: Connection | None = None

    def begin(self, statement: str) -> tuple[Connection, TupleRow | None]:
        """Start a transaction. An idle connection that broke meanwhile is replaced: nothing was done."""
        connection = self._connection
        if connection is not None and not connection.closed:
            try:
                return connection, self._start(connection, statement)
            except psycopg.OperationalError:
                self.drop()
        connection = connect(self._settings, read_only=self._read_only)
        try:
            if self._prepare is not None:
                self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection, self._start(connection, statement)

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @staticmethod
    def _start(connection: Connection, statement: str) -> TupleRow | None:
        cursor = connection.execute(statement)
        row = None
        more: bool | None = True
        while more:
            if cursor.description is not None:
                row = cursor.fetchone()
            more = cursor.nextset()
        return row
