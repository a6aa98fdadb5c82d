"""The store of a component-directory in PostgreSQL."""

from __future__ import annotations

from typing import TypeAlias

from gridpost.stores.postgres.directory_schema import COMPONENT_DIRECTORY
from gridpost.stores.postgres.entries import PostgresEntries
from gridpost.stores.postgres.registry import (
    PostgresInvitations,
    PostgresLedger,
    PostgresRegistrations,
)
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.postgres.store import PostgresStore
from gridpost.stores.postgres.transaction import Transaction


class PostgresRegistryUnit:
    """core.directory_ports.RegistryUnit."""

    __slots__ = ("entries", "invitations", "journal", "ledger", "registrations")

    def __init__(self, transaction: Transaction) -> None:
        connection = transaction.connection
        self.registrations = PostgresRegistrations(connection)
        self.invitations = PostgresInvitations(connection)
        self.ledger = PostgresLedger(connection)
        self.entries = PostgresEntries(connection)
        self.journal = transaction.journal


DirectoryStore: TypeAlias = PostgresStore[PostgresRegistryUnit]


def open_directory_store(settings: PostgresSettings, code: str) -> DirectoryStore:
    """Of one directory process: it decides by what it has read, so nobody else writes. Blocks."""
    return PostgresStore.open(
        settings, code, COMPONENT_DIRECTORY, PostgresRegistryUnit, exclusive=True
    )
