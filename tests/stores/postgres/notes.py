"""The smallest store in PostgreSQL: a table of notes, beside the journal that every store has."""

from __future__ import annotations

from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.postgres.store import PostgresStore
from gridpost.stores.postgres.transaction import Transaction

NOTES = {"notes": (("CREATE TABLE note (text text PRIMARY KEY)",),)}


def open_notes(
    settings: PostgresSettings, component: str = "E1", *, exclusive: bool = False
) -> PostgresStore[Transaction]:
    return PostgresStore.open(settings, component, NOTES, lambda t: t, exclusive=exclusive)


def add(text: str) -> object:
    return lambda t: t.connection.execute("INSERT INTO note VALUES (%s)", (text,)).rowcount


def texts(transaction: Transaction) -> list[str]:
    rows = transaction.connection.execute("SELECT text FROM note ORDER BY text").fetchall()
    return [text for (text,) in rows]
