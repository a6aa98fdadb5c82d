"""The message box in PostgreSQL keeps the contract."""

from __future__ import annotations

import pytest

from gridpost.core.ports import Store
from gridpost.stores.postgres.endpoint import PostgresEndpointStore
from stores.contract import StoreContract
from stores.place import Place
from support.boxed import box_entry, put
from support.postgres import PostgresDatabase, PostgresServer


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> PostgresDatabase:
    """One for all tests, which goes with the server: rows are deleted sooner than tables are made."""
    return postgres_server.create_database()


class PostgresPlace:
    """Empty, whatever the test before has left."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        with database.connect() as connection, connection.transaction():
            connection.execute("SET LOCAL session_replication_role = replica")
            for (table,) in connection.execute(
                "SELECT tablename FROM pg_tables "
                "WHERE schemaname = 'gridpost' AND tablename <> 'schema_version'"
            ).fetchall():
                connection.execute(f"DELETE FROM gridpost.{table}")

    def open(self, component: str = "E1") -> PostgresEndpointStore:
        return PostgresEndpointStore.open(self._database.settings(), component)


class TestPostgresBox(StoreContract):
    @pytest.fixture
    def place(self, database: PostgresDatabase) -> Place:
        return PostgresPlace(database)

    async def test_a_store_is_opened_once_at_a_time(self, place: Place, store: Store) -> None:
        """Here several processes share it."""
        entry = box_entry()
        second = place.open()
        try:
            assert await second.run(lambda unit: put(unit, entry))
            assert not await store.run(lambda unit: put(unit, entry))
        finally:
            await second.close()
