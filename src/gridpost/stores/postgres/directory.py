"""The stores of a component-directory, and of a client of it, in PostgreSQL."""

from __future__ import annotations

from typing import TypeAlias

from gridpost.stores.postgres.directory_client import (
    PostgresDirectoryCopy,
    PostgresEnrolment,
    PostgresOwnEntry,
)
from gridpost.stores.postgres.directory_schema import COMPONENT_DIRECTORY, DIRECTORY_CLIENT
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


class PostgresClientUnit:
    """core.ports.DirectoryClientWork."""

    def __init__(self, transaction: Transaction) -> None:
        connection = transaction.connection
        self.directory_copy = PostgresDirectoryCopy(connection)
        self.own_entry = PostgresOwnEntry(connection)
        self.enrolment = PostgresEnrolment(connection)
        self.journal = transaction.journal


DirectoryStore: TypeAlias = PostgresStore[PostgresRegistryUnit]
ClientStore: TypeAlias = PostgresStore[PostgresClientUnit]


def open_directory_store(settings: PostgresSettings, code: str) -> DirectoryStore:
    """Of one directory process: it decides by what it has read, so nobody else writes. Blocks."""
    return PostgresStore.open(
        settings, code, COMPONENT_DIRECTORY, PostgresRegistryUnit, exclusive=True
    )


def open_client_store(settings: PostgresSettings, code: str) -> ClientStore:
    """Of a component that keeps nothing but its copy of the directory. Blocks."""
    return PostgresStore.open(settings, code, DIRECTORY_CLIENT, PostgresClientUnit)
