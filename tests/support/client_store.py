"""A store in PostgreSQL of a component that keeps nothing but its copy of the directory."""

from __future__ import annotations

from typing import TypeAlias

from gridpost.stores.postgres.directory_client import (
    PostgresDirectoryCopy,
    PostgresEnrolment,
    PostgresOwnEntry,
)
from gridpost.stores.postgres.directory_schema import DIRECTORY_CLIENT
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.postgres.store import PostgresStore
from gridpost.stores.postgres.transaction import Transaction


class PostgresClientUnit:
    """core.ports.DirectoryClientWork."""

    def __init__(self, transaction: Transaction) -> None:
        connection = transaction.connection
        self.directory_copy = PostgresDirectoryCopy(connection)
        self.own_entry = PostgresOwnEntry(connection)
        self.enrolment = PostgresEnrolment(connection)
        self.journal = transaction.journal


ClientStore: TypeAlias = PostgresStore[PostgresClientUnit]


def open_client_store(settings: PostgresSettings, code: str) -> ClientStore:
    return PostgresStore.open(settings, code, DIRECTORY_CLIENT, PostgresClientUnit)
