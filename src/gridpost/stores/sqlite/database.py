"""The folder and the database file: who may open them, with which guarantees, and whose they are."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from gridpost.core.journal import Identity
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.sqlite.bodies import sync_folder
from gridpost.stores.sqlite.faults import refusing
from gridpost.stores.sqlite.schema import MIGRATIONS, migrate

DATABASE = "gridpost.sqlite3"
CONTENTS = "contents"
LOCK = "lock"

# With FULL, COMMIT returns after the write-ahead log is on the disk; with NORMAL it would not.
DURABILITY = "PRAGMA synchronous = FULL"
WRITER_PRAGMAS = (
    DURABILITY,
    "PRAGMA foreign_keys = ON",
    # Savepoints keep old pages in memory instead of in a temporary file.
    "PRAGMA temp_store = MEMORY",
    # Pages of the log before they are copied into the database: 64 MiB. Every put changes the same
    # pages of the indexes; the later the copy, the more of them are copied once instead of often.
    "PRAGMA wal_autocheckpoint = 8192",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -32768",
    # Deleted contents are overwritten where that costs no further writing.
    "PRAGMA secure_delete = FAST",
)
_BUSY_SECONDS = 10.0
# Statements over many rows are one for each number of rows.
_STATEMENTS = 512


@dataclass(frozen=True, slots=True)
class Opened:
    """A store that is ours alone, and current."""

    connection: sqlite3.Connection
    contents: Path
    identity: Identity


def open_folder(
    folder: Path,
    component: str,
    resources: ExitStack,
    migrations: Sequence[Sequence[str]] = MIGRATIONS,
    *,
    shared: bool = False,
) -> Opened:
    """Lock, create where needed, recover and migrate. `resources` closes what was opened.

    Other kinds of stores bring `migrations` of their own. A shared one may be open in several
    processes; they only open it one after the other.
    """
    contents = folder / CONTENTS
    with refusing(), ExitStack() as opening:
        _private_folder(folder)
        if shared:
            _lock(folder / LOCK, opening, wait=True)
        else:
            _lock(folder / LOCK, resources)
        _private_folder(contents)
        file = folder / DATABASE
        # SQLite gives its other files the permissions of this one.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        file.chmod(0o600)
        sync_folder(folder)
        connection = _connect(file)
        resources.callback(connection.close)
        # Counts when the database is made: large enough for two usual messages, small enough for
        # indexes whose every change writes a page.
        connection.execute("PRAGMA page_size = 8192")
        if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise Refusal(Rule.INTERNAL, f"{folder} cannot hold a write-ahead log")
        for pragma in WRITER_PRAGMAS:
            connection.execute(pragma)
        migrate(connection, migrations)
        return Opened(connection, contents, _identity(connection, component))


def connect_reader(folder: Path) -> sqlite3.Connection:
    """A connection that cannot write. It may be closed by another thread than it was made in."""
    connection = sqlite3.connect(
        f"{(folder / DATABASE).absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        cached_statements=_STATEMENTS,
        check_same_thread=False,
    )
    connection.execute("PRAGMA query_only = ON")
    return connection


def named_files(connection: sqlite3.Connection) -> set[str]:
    """Every content file that a row names."""
    return {
        name
        for (name,) in connection.execute(
            "SELECT file FROM content WHERE file IS NOT NULL "
            "UNION ALL SELECT file FROM outgoing WHERE file IS NOT NULL"
        )
    }


def _connect(file: Path) -> sqlite3.Connection:
    # Opened here, used in the thread of the committer.
    return sqlite3.connect(
        file,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        cached_statements=_STATEMENTS,
        check_same_thread=False,
    )


def _private_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True)
        sync_folder(folder.parent)
    folder.chmod(0o700)


def _lock(file: Path, resources: ExitStack, *, wait: bool = False) -> None:
    """Held until the process ends, however it ends."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    resources.callback(os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        owner = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
        raise Refusal(
            Rule.STORE_IN_USE,
            f"another process has the store {file.parent} open (process {owner})",
            "an embedded store belongs to one process; several share a PostgreSQL store",
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)


def _identity(connection: sqlite3.Connection, component: str) -> Identity:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING",
        [("component", component), ("instance", str(uuid4()))],
    )
    connection.execute("COMMIT")
    meta = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    if meta["component"] != component:
        raise Refusal(
            Rule.STORE_OF_ANOTHER,
            f"the store belongs to {meta['component']}, not to {component}",
            "each component needs a folder of its own",
        )
    return Identity(component, meta["instance"])
