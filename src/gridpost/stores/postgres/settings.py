"""How a database is reached, and what its connections promise."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from gridpost.core.refusal import Refusal, Rule

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
# A server that went away without a word is noticed after these many seconds.
_KEEPALIVE: dict[str, str] = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """The defaults suit a server on the same network."""

    dsn: str = field(repr=False)
    """URL or key=value words of libpq; several hosts are tried in order."""
    password: str | None = field(default=None, repr=False)
    """Apart from the DSN, so that nobody has to write it into a file that others read."""
    schema: str = "gridpost"
    """One for each component: several may share a database."""
    connect_timeout: timedelta = timedelta(seconds=5)
    lock_timeout: timedelta = timedelta(seconds=10)
    """How long a transaction waits for a row that another process holds."""
    readers: int = 2
    """Threads that read, each with a connection of its own."""
    max_group: int = 64
    """How many works may share one commit."""
    take_over: timedelta = timedelta(seconds=10)
    """How long the server may take to notice that the former owner of an exclusive store is dead."""
    doubt_timeout: timedelta = timedelta(seconds=30)
    """How long to ask for the outcome of a commit whose connection broke."""
    lease_look: timedelta = timedelta(seconds=2)
    """How often a lease is looked at, by its holder and by those that wait for it."""

    def __post_init__(self) -> None:
        if _SCHEMA.fullmatch(self.schema) is None:
            raise Refusal(
                Rule.USAGE,
                f"'{self.schema}' cannot be the name of a schema",
                "use small letters, digits and underscores",
            )
        try:
            conninfo_to_dict(self.dsn)
        except ProgrammingError:
            # The text of the error repeats the DSN, and with it perhaps a password.
            raise Refusal(
                Rule.USAGE,
                "the DSN of the database cannot be read",
                "write postgresql://user@host:port/database or host=... dbname=... user=...",
            ) from None

    def conninfo(self) -> str:
        """For libpq. It holds the password: it is for `connect` and nobody else."""
        given = conninfo_to_dict(self.dsn)
        words: dict[str, str | int | None] = {
            **_KEEPALIVE,
            "application_name": "gridpost",
            # Of several servers the one that takes writes.
            "target_session_attrs": "read-write",
            "connect_timeout": max(1, round(self.connect_timeout.total_seconds())),
            **given,
        }
        if self.password is not None:
            words["password"] = self.password
        return make_conninfo("", **words)

    def place(self) -> str:
        """Which database, in words that may stand in a log."""
        given = conninfo_to_dict(self.dsn)
        host = given.get("host") or given.get("hostaddr") or "local"
        port = f":{given['port']}" if given.get("port") else ""
        return (
            f"{host}{port}/{given.get('dbname') or given.get('user') or ''}, schema {self.schema}"
        )
