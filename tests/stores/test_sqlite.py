"""The embedded store keeps the contract."""

from pathlib import Path

import pytest

from gridpost.stores.sqlite import SqliteStore
from stores.contract import StoreContract
from stores.place import Place


class SqlitePlace:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, component: str = "E1") -> SqliteStore:
        return SqliteStore.open(self.folder, component)


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return SqlitePlace(tmp_path / "store")
