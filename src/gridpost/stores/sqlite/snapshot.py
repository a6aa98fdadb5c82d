"""A consistent copy of an embedded store, taken while its owner goes on writing, and its way back.

The database is copied inside one read transaction, so that it is the store of one moment. Content
files are linked before and after: a file that the copy names was there at one of the two times, or
the copy is taken again. Some stores write over files that no row names any more: not while this one
holds the lock of their folder, and never over a file that it has linked.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from gridpost.core.journal import AdministrationRow
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores import journal_rows
from gridpost.stores.sqlite.bodies import sync_folder
from gridpost.stores.sqlite.database import CONTENTS, DATABASE, connect_reader
from gridpost.stores.sqlite.faults import refusing

RESTORED = "restored"
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was copied: database and content files under one folder."""

    database: Path
    contents: tuple[Path, ...]
    schema_version: int
    sequence: int
    """The last row of the journal in it."""


@dataclass(frozen=True, slots=True)
class Restored:
    """This store was brought back: what happened after `taken_at` may be missing in it."""

    taken_at: str
    restored_at: str


def take(store: Path, target: Path, *, contents: bool = True) -> Snapshot:
    """A copy of the store below `target`, a new folder on the same file system.

    Without `contents` no table names content files, whatever its columns are called.
    """
    if not (store / DATABASE).exists():
        raise Refusal(Rule.USAGE, f"there is no store in {store}: has the component ever run?")
    target.mkdir(mode=0o700)
    linked = target / CONTENTS
    linked.mkdir(mode=0o700)
    with refusing(), _unchanging(store / CONTENTS):
        for _ in range(_TRIES):
            _link(store / CONTENTS, linked, _names(store / CONTENTS))
            version, sequence = _copy(store, target / DATABASE)
            named = _named(target / DATABASE) if contents else set()
            _link(store / CONTENTS, linked, named)
            here = _names(linked)
            if named <= here:
                for name in here - named:
                    (linked / name).unlink()
                files = tuple(linked / name for name in sorted(named))
                return Snapshot(target / DATABASE, files, version, sequence)
    raise Refusal(
        Rule.STORE_DAMAGED, "content files that the database names are missing; nothing was saved"
    )


def bring_back(
    store: Path, taken_at: datetime, at: datetime, by: str, *, contents: bool = True
) -> None:
    """Make a copied store one of its own: the journal goes on under a new instance."""
    with refusing(), closing(sqlite3.connect(store / DATABASE, isolation_level=None)) as database:
        if database.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            raise Refusal(Rule.STORE_DAMAGED, "the database in the backup is damaged")
        named = _named(store / DATABASE) if contents else set()
        missing = named - _names(store / CONTENTS)
        if missing:
            raise Refusal(Rule.STORE_DAMAGED, f"{len(missing)} content files are missing")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("BEGIN IMMEDIATE")
        told = json.dumps({"taken_at": taken_at.isoformat(), "restored_at": at.isoformat()})
        database.executemany(
            "INSERT INTO meta (name, value) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [("instance", str(uuid4())), (RESTORED, told)],
        )
        row = AdministrationRow(
            at, actor=by, action="restored from a backup", target=taken_at.isoformat()
        )
        database.execute(
            "INSERT INTO journal (sequence, at, kind, schema_version, payload) VALUES "
            "((SELECT max((SELECT pruned FROM journal_state), coalesce(max(sequence), 0)) + 1 "
            "FROM journal), ?, ?, ?, ?)",
            tuple(journal_rows.write(row)),
        )
        database.execute("COMMIT")
    sync_folder(store)


def restored(store: Path) -> Restored | None:
    """From which backup this store came, if from one."""
    if not (store / DATABASE).exists():
        return None
    with closing(connect_reader(store)) as reader:
        row = reader.execute("SELECT value FROM meta WHERE name = ?", (RESTORED,)).fetchone()
    return None if row is None else Restored(**json.loads(row[0]))


def _copy(store: Path, target: Path) -> tuple[int, int]:
    with closing(connect_reader(store)) as source:
        for leftover in target.parent.glob(f"{target.name}*"):
            leftover.unlink()
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(target)) as copy:
            # All pages in one step: one read transaction, in which writers do not wait.
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            (version,) = copy.execute("PRAGMA user_version").fetchone()
            (sequence,) = copy.execute(
                "SELECT max((SELECT pruned FROM journal_state), coalesce(max(sequence), 0)) "
                "FROM journal"
            ).fetchone()
    return version, sequence


def _named(database: Path) -> set[str]:
    """Every content file that a row of any table names."""
    names: set[str] = set()
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as reader:
        tables = reader.execute(
            "SELECT t.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c "
            "WHERE t.type = 'table' AND c.name = 'file'"
        ).fetchall()
        for (table,) in tables:
            names |= {
                name
                for (name,) in reader.execute(f'SELECT file FROM "{table}" WHERE file IS NOT NULL')
            }
    return names


@contextmanager
def _unchanging(contents: Path) -> Iterator[None]:
    """No content file is written over in this block, see `queues.files`."""
    if not contents.is_dir():
        yield
        return
    handle = os.open(contents, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def _names(folder: Path) -> set[str]:
    return set(os.listdir(folder)) if folder.is_dir() else set()


def _link(source: Path, target: Path, names: set[str]) -> None:
    for name in names:
        with suppress(FileNotFoundError, FileExistsError):
            os.link(source / name, target / name)
