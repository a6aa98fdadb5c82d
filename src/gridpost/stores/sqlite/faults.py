"""Which failure of disk or database is refused with which rule. Everything else is a bug and raised."""

from __future__ import annotations

import errno
import sqlite3

from gridpost.core.refusal import Refusal, Rule

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
# The disk or the file system, not the statement.
_ENVIRONMENT = frozenset(
    {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
    }
)


def primary_code(error: sqlite3.Error) -> int:
    """The result code of SQLite without its extension; 0 where the module itself complains."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def refusal_of(error: BaseException) -> Refusal | None:
    """The refusal that an operator can act on; None: this is not a failure of the environment."""
    if isinstance(error, OSError):
        if error.errno in _FULL:
            return _full(error)
        return Refusal(Rule.INTERNAL, "the disk of the store failed", str(error))
    if isinstance(error, sqlite3.Error):
        code = primary_code(error)
        if code == sqlite3.SQLITE_FULL:
            return _full(error)
        if code in _DAMAGED:
            return Refusal(
                Rule.STORE_DAMAGED,
                "the database of the store is damaged: restore a backup",
                str(error),
            )
        if code in _ENVIRONMENT:
            return Refusal(Rule.INTERNAL, "the database of the store failed", str(error))
    return None


def _full(error: BaseException) -> Refusal:
    return Refusal(Rule.STORE_FULL, "the disk of the store is full; nothing was stored", str(error))
