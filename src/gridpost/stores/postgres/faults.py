"""Which failure of the database is refused with which rule. Everything else is a bug and raised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import Error, InterfaceError, OperationalError, errors

from gridpost.core.refusal import Refusal, Rule

# Trying again alone can help: another process wanted the same rows at the same time.
CONFLICTS = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable)
_FULL = (errors.DiskFull, errors.OutOfMemory)
_DAMAGED = (errors.DataCorrupted, errors.IndexCorrupted)
_NOT_ALLOWED = (
    errors.InvalidPassword,
    errors.InvalidAuthorizationSpecification,
    errors.InsufficientPrivilege,
    errors.InvalidCatalogName,
    errors.InvalidSchemaName,
)


def refusal_of(error: BaseException) -> Refusal | None:
    """The refusal that an operator can act on; None: this is not a failure of the environment."""
    if not isinstance(error, Error):
        return None
    if isinstance(error, _FULL):
        return Refusal(
            Rule.STORE_FULL, "the disk of the database is full; nothing was stored", _text(error)
        )
    if isinstance(error, _DAMAGED):
        return Refusal(
            Rule.STORE_DAMAGED, "the database is damaged: restore a backup", _text(error)
        )
    if isinstance(error, _NOT_ALLOWED):
        return Refusal(Rule.STORE_ACCESS, "the database does not let us in", _text(error))
    if isinstance(error, CONFLICTS):
        return Refusal(Rule.BUSY, "other processes use the same rows; try again", _text(error))
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return Refusal(
            Rule.STORE_UNREACHABLE, "the database takes no writes at the moment", _text(error)
        )
    if isinstance(error, (OperationalError, InterfaceError)):
        return Refusal(Rule.STORE_UNREACHABLE, "the database cannot be reached", _text(error))
    return None


@contextmanager
def refusing() -> Iterator[None]:
    """Failures of the environment leave the block as refusals."""
    try:
        yield
    except Error as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        raise refusal from error


def _text(error: Error) -> str:
    """What the server or libpq says; neither repeats a password."""
    return " ".join(str(error).split())
